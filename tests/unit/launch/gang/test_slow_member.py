"""Which member of a gang the others wait for."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from tests.support.simulated_gang.members import send_ready, start_gang
from tests.support.simulated_gang.simulation import exited, heartbeat
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.gang.slow_member import (
    COMPUTES,
    LARGEST,
    SECONDS,
    STEPS,
    WAITS_FOR_INPUT,
    WINDOWS,
    SlowMember,
    SlowMemberSearch,
    Totals,
    judge,
)
from tftraining.launch.http import pages
from tftraining.launch.progress import Snapshot

NOBODY = SlowMember()
FAST = (0.02, 0.0)  # own seconds of a step, and those of the wait for input


def window(*own: tuple[float, float]) -> dict[str, Totals]:
    return {f"worker-{n}": Totals(20, 20 * seconds, 20 * of_input) for n, (seconds, of_input) in enumerate(own)}


@pytest.mark.parametrize(
    ("own", "slow"),
    [
        ([FAST, FAST], {}),
        ([FAST, (0.0249, 0)], {}),
        ([FAST, (0.03, 0)], {"worker-1": (1.5, COMPUTES)}),
        ([(0.03, 0), FAST, FAST], {"worker-0": (1.5, COMPUTES)}),
        ([(0.03, 0.009), FAST], {"worker-0": (1.5, WAITS_FOR_INPUT)}),
        ([(0.03, 0.004), FAST], {"worker-0": (1.5, COMPUTES)}),
        ([(0.03, 0.015), (0.02, 0.014), (0.02, 0.014)], {"worker-0": (1.5, COMPUTES)}),  # all wait for their input
        ([(0.03, 0), (0.04, 0), FAST, FAST], {"worker-0": (1.5, COMPUTES), "worker-1": (2.0, COMPUTES)}),
        ([(0.03, 0), (0.03, 0), (0.03, 0), FAST], {}),
        ([(90.0, 0), (0.001, 0)], {"worker-0": (LARGEST, COMPUTES)}),
        ([(0.03, 0)], {}),
        ([], {}),
    ],
)
def test_a_window(own: list[tuple[float, float]], slow: dict[str, tuple[float, str]]) -> None:
    assert judge(window(*own)) == {name: SlowMember(name, *each) for name, each in slow.items()}


@pytest.mark.parametrize("odd", [(-0.1, 0.0), (0.0, 0.0), (math.inf, 0.0), (math.nan, 0.0), (0.03, -1.0), (0.03, 0.04)])
def test_an_impossible_figure_accuses_nobody(odd: tuple[float, float]) -> None:
    assert judge(window(odd, FAST, (0.05, 0.0))) == {}


class Gang:
    """Members whose own time is told; each call of `windows` ends so many windows."""

    def __init__(self, *names: str) -> None:
        self.search, self.round, self.now = SlowMemberSearch(), 1, 0.0
        self.totals = {name: Totals(0, 0.0, 0.0) for name in names or ("worker-0", "worker-1")}

    def look(self, steps: int, slow: Mapping[str, float] = {}, seconds: float = SECONDS) -> SlowMember | None:
        self.now += seconds
        for name, each in self.totals.items():
            self.totals[name] = Totals(each.steps + steps, each.seconds + steps * slow.get(name, 0.02), 0.0)
        told = {name: Snapshot(own_steps=n.steps, own_seconds=n.seconds) for name, n in self.totals.items()}
        self.search.look(self.round, told, self.now)
        return self.search.found

    def windows(self, count: int, **slow: float) -> SlowMember | None:
        for _ in range(count):
            self.look(STEPS, {name.replace("_", "-"): each for name, each in slow.items()})
        return self.search.found


def gang(*names: str) -> Gang:
    found = Gang(*names)
    found.look(1)
    return found


def test_a_member_is_named_once_it_is_slow_in_several_windows() -> None:
    slow = gang()
    assert slow.windows(WINDOWS - 1, worker_1=0.03) is None
    assert slow.windows(1, worker_1=0.03) == SlowMember("worker-1", 1.5, COMPUTES)
    assert slow.windows(5, worker_1=0.04) == SlowMember("worker-1", 1.5, COMPUTES), "a status that changes is written"


def test_a_short_disturbance_names_nobody() -> None:
    slow = gang()
    for _ in range(9):
        slow.windows(WINDOWS - 1, worker_1=0.09)
        slow.windows(1)
        assert slow.search.found is None
    assert slow.windows(2) == NOBODY


def test_it_is_over_when_it_is_slow_no_more() -> None:
    slow = gang()
    slow.windows(WINDOWS, worker_1=0.03)
    for _ in range(9):
        slow.windows(WINDOWS - 1)
        found = slow.windows(1, worker_1=0.03)
        assert found is not None and found.member == "worker-1", "now and then"
    assert slow.windows(WINDOWS) == NOBODY


def test_another_one_takes_its_place() -> None:
    slow = gang("worker-0", "worker-1", "worker-2")
    slow.windows(WINDOWS, worker_1=0.03)
    found = slow.windows(WINDOWS, worker_2=0.04)
    assert found == SlowMember("worker-2", 2.0, COMPUTES)


def test_a_named_member_is_over_though_others_are_disturbed() -> None:
    slow = gang("worker-0", "worker-1", "worker-2")
    slow.windows(WINDOWS, worker_1=0.03)
    slow.windows(1)
    slow.windows(1, worker_2=0.03)
    assert slow.windows(1) == NOBODY


def test_the_slowest_of_several_is_named() -> None:
    slow = gang("worker-0", "worker-1", "worker-2", "worker-3")
    found = slow.windows(WINDOWS, worker_1=0.03, worker_2=0.05)
    assert found is not None and found.member == "worker-2"


def test_a_window_has_enough_steps_of_each_member_and_lasts() -> None:
    slow = gang()
    for _ in range(WINDOWS - 1):
        slow.look(STEPS, {"worker-1": 0.03})
    slow.look(STEPS - 1, {"worker-1": 0.03})
    assert slow.search.found is None, "one step is missing"
    slow.look(1, {"worker-1": 0.03})
    assert slow.search.found is not None
    slow = gang()
    for _ in range(2 * WINDOWS - 1):
        slow.look(10 * STEPS, {"worker-1": 0.03}, seconds=SECONDS / 2)
    assert slow.search.found is None
    assert slow.look(1, {"worker-1": 0.03}, seconds=SECONDS / 2) is not None


def test_a_member_that_measures_nothing_is_left_out() -> None:
    search = SlowMemberSearch()
    for at in range(1, 9):
        search.look(
            1, {"worker-0": Snapshot(own_steps=20 * at, own_seconds=at * 0.4), "worker-1": Snapshot()}, at * 10.0
        )
    assert search.found is None, "one alone says nothing"


def test_a_program_that_begins_again_begins_anew() -> None:
    slow = gang()
    slow.windows(WINDOWS - 1, worker_1=0.03)
    slow.totals = {name: Totals(0, 0.0, 0.0) for name in slow.totals}
    slow.look(1)
    assert slow.windows(WINDOWS - 1, worker_1=0.03) is None
    assert slow.windows(1, worker_1=0.03) is not None


def test_a_round_begins_anew_though_its_programs_have_gone_on_counting() -> None:
    slow = gang()
    slow.windows(WINDOWS - 1, worker_1=0.03)
    slow.round += 1
    assert slow.windows(WINDOWS, worker_1=0.03) is None
    assert slow.windows(1, worker_1=0.03) is not None


def report(chief: Coordinator, number: int, windows: int, slow: float) -> None:
    """Heartbeats for so many windows of a round."""
    for each in range(1, windows + 2):
        now = number * 1000 + each * SECONDS
        for name, seconds in (("worker-0", 0.02), ("worker-1", slow)):
            own = {"own_steps": each * STEPS, "own_seconds": each * STEPS * seconds, "input_seconds": 0.0}
            chief.handle_frame(name, heartbeat(number, now, step=each * STEPS, updated=1.0, **own), now)
        chief.tick(now)


def test_the_status_names_it_and_a_new_round_keeps_it_until_something_is_known() -> None:
    chief = start_gang()
    assert pages.gang_summary(chief)["slowMember"] is None
    before = pages._gang_fields(chief)
    report(chief, 1, WINDOWS, 0.03)
    told = {"member": "worker-1", "factor": 1.5, "cause": COMPUTES}
    assert pages.gang_summary(chief)["slowMember"] == told
    assert pages._gang_fields(chief) != before, "it answers a long poll"
    chief.handle_frame("worker-0", exited(1, 1), 1500.0)
    send_ready(chief, 1500.0)
    chief.tick(1600.0)
    assert chief.rounds.number == 2
    report(chief, 2, WINDOWS - 1, 0.02)
    assert pages.gang_summary(chief)["slowMember"] == told
    report(chief, 2, WINDOWS + 1, 0.02)
    assert pages.gang_summary(chief)["slowMember"] == {"member": None, "factor": 1.0, "cause": ""}


@pytest.mark.parametrize("odd", ["many", None, 1e999])
def test_an_invalid_frame_is_refused_as_a_whole(odd: object) -> None:
    chief = start_gang()
    with pytest.raises((TypeError, ValueError, OverflowError)):
        chief.handle_frame("worker-1", heartbeat(1, 1.0, own_steps=odd), 1.0)
