"""The plan of a campaign: its seed is all that it depends on, and no kind is forgotten."""

from itertools import islice

from tests.campaign import plan
from tests.campaign.kinds import BASIC, JOBS, KINDS


def test_the_same_seed_gives_the_same_plan_and_another_seed_another() -> None:
    first, again, other = (list(islice(plan.strikes(seed, 2), 200)) for seed in (7, 7, 8))
    assert first == again
    assert first != other
    assert list(islice(plan.jobs(7, 0), 20)) == list(islice(plan.jobs(7, 0), 20))


def test_the_lanes_run_different_jobs() -> None:
    assert list(islice(plan.jobs(7, 0), 10)) != list(islice(plan.jobs(7, 1), 10))


def test_the_basic_kinds_come_first_and_every_kind_before_any_comes_twice() -> None:
    names = [strike.kind for strike in islice(plan.strikes(3, 2), 3 * len(KINDS))]
    assert {*names[: len(BASIC)]} == {*BASIC}
    assert all(sorted(names[begin : begin + len(KINDS)]) == sorted(KINDS) for begin in (0, len(KINDS)))


def test_all_kinds_of_jobs_come_in_each_lane() -> None:
    assert {*islice(plan.jobs(3, 1), len(JOBS))} == {*JOBS}


def test_each_fault_lasts_as_long_as_its_kind_may() -> None:
    for strike in islice(plan.strikes(5, 2), 300):
        least, most = KINDS[strike.kind].seconds
        assert least <= strike.seconds <= most
        assert 0 <= strike.aim < 1
        assert strike.lane in (0, 1)


def test_a_campaign_of_some_kinds_has_no_others() -> None:
    assert {strike.kind for strike in islice(plan.strikes(5, 1, ["scaled", "edited"]), 20)} == {"scaled", "edited"}
