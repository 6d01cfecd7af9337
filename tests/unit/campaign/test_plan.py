"""The plan of a campaign: its seed is all that it depends on, and no kind is forgotten."""

from itertools import islice

import pytest

from tests.campaign import plan
from tests.campaign.kinds import BASIC, JOBS, KINDS

STRIKERS = plan.strikers(2)
SOME = ("scaled", "node-off", "quota-short")


def _struck(seed: int, striker: str, number: int) -> list[plan.Strike]:
    return list(islice(plan.strikes(seed, striker, 2), number))


def test_the_same_seed_gives_the_same_plan_and_another_seed_another() -> None:
    for striker in STRIKERS:
        first, again, other = (_struck(seed, striker, 200) for seed in (7, 7, 8))
        assert first == again
        assert first != other
    assert list(islice(plan.jobs(7, 0), 20)) == list(islice(plan.jobs(7, 0), 20))


def test_the_lanes_run_different_jobs() -> None:
    assert list(islice(plan.jobs(7, 0), 10)) != list(islice(plan.jobs(7, 1), 10))


def test_the_strikers_strike_differently_and_no_number_comes_twice() -> None:
    struck = [_struck(7, striker, 100) for striker in STRIKERS]
    assert [each.kind for each in struck[0]] != [each.kind for each in struck[1]]
    assert len({each.number for one in struck for each in one}) == 100 * len(STRIKERS)


@pytest.mark.parametrize("striker", STRIKERS)
def test_the_basic_kinds_come_first_and_every_kind_before_any_comes_twice(striker: str) -> None:
    kinds = {name for name, kind in KINDS.items() if plan.strikes_by(striker, kind)}
    basic = kinds & {*BASIC}
    names = [strike.kind for strike in _struck(3, striker, 3 * len(kinds))]
    assert {*names[: len(basic)]} == basic
    assert all(sorted(names[begin : begin + len(kinds)]) == sorted(kinds) for begin in (0, len(kinds)))


def test_each_kind_is_a_matter_of_one_striker() -> None:
    for kind in KINDS.values():
        struck = {each for each in STRIKERS if plan.strikes_by(each, kind)}
        assert struck in ({"0", "1"}, {plan.CLUSTER}, {plan.AROUND})


def test_all_kinds_of_jobs_come_in_each_lane() -> None:
    assert {*islice(plan.jobs(3, 1), len(JOBS))} == {*JOBS}


@pytest.mark.parametrize("striker", STRIKERS)
def test_each_fault_lasts_as_long_as_its_kind_may(striker: str) -> None:
    for strike in _struck(5, striker, 300):
        least, most = KINDS[strike.kind].seconds
        assert least <= strike.seconds <= most
        assert 0 <= strike.aim < 1
        assert strike.lane in ((0, 1) if striker in (plan.CLUSTER, plan.AROUND) else (int(striker),))


def test_a_campaign_of_some_kinds_has_no_others() -> None:
    struck = {each: {strike.kind for strike in islice(plan.strikes(5, each, 1, SOME), 20)} for each in "0ca"}
    assert struck == {"0": {"scaled"}, "c": {"node-off"}, "a": {"quota-short"}}
    assert list(plan.strikes(5, "c", 1, ["scaled"])) == []
