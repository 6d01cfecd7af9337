"""Which members have stalled."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.simulated_gang.members import send_heartbeats, start_gang, take_sent
from tests.support.simulated_gang.simulation import heartbeat
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.gang.stall import WatchedProgram, find_stalled
from tftraining.launch.http.pages import gang_summary
from tftraining.launch.progress import Snapshot


def look(member: str, step: int, last: float, stuck: float = 0.0, reporter: bool = True) -> WatchedProgram:
    return WatchedProgram(member, reporter, 0.0, Snapshot(step=step, last_step_time=last, updated=1.0), stuck)


@pytest.mark.parametrize(
    ("looks", "blamed"),
    [
        ([look("a", 5, 95), look("b", 5, 95)], []),
        ([look("a", 5, 80), look("b", 5, 80)], ["a", "b"]),
        ([look("a", 5, 80), look("b", 4, 79)], ["b"]),
        ([look("a", 1, 80), look("b", 0, 79)], ["b"]),
        ([look("a", 5, 80), look("b", 5, 80, stuck=15.0)], ["b"]),
        ([look("a", 5, 80), look("b", 5, 80, stuck=0.5)], ["b"]),
        ([look("a", 5, 95), look("b", 4, 80)], ["b"]),
        ([look("a", 0, 0, reporter=False), look("b", 0, 0, reporter=False)], []),
    ],
)
def test_stalled_members(looks: list[WatchedProgram], blamed: list[str]) -> None:
    assert find_stalled(looks, 10.0, 100.0) == blamed


TRAINS = {"first_step_time": 0.1, "updated": 1.0}


def stand_still(chief: Coordinator, since: float, until: float, step: int, **frame: Any) -> None:
    """Heartbeats of two members, one a second, whose last step was that one."""
    for second in range(int(since), int(until) + 1):
        told = heartbeat(1, float(second), **TRAINS, step=step, last_step_time=second - since, **frame)
        for name in ("worker-0", "worker-1"):
            chief.handle_frame(name, told, float(second))
        chief.tick(float(second))


def test_a_training_that_stands_still_is_told_with_stacks_and_goes_on() -> None:
    chief = start_gang()
    stand_still(chief, 1, 600, step=5)
    assert gang_summary(chief)["reason"] == "Training"
    take_sent(chief)
    stand_still(chief, 1, 602, step=5)
    told = gang_summary(chief)
    words = "worker-0, worker-1: no step for 600 s, which is unusual for this job"
    assert (told["phase"], told["reason"], told["message"]) == ("Training", "NoStep", words)
    assert take_sent(chief) == [("worker-0", "dump"), ("worker-1", "dump")], "once"
    stand_still(chief, 700, 701, step=6)
    assert (gang_summary(chief)["reason"], chief.verdict.ledger.incidents) == ("Training", 0)


def test_a_gap_as_long_as_earlier_ones_is_no_news() -> None:
    chief = start_gang()
    stand_still(chief, 1, 1, step=5)
    stand_still(chief, 101, 1100, step=6)
    assert gang_summary(chief)["reason"] == "Training", "an evaluation took a hundred seconds"
    stand_still(chief, 101, 1102, step=6)
    assert gang_summary(chief)["message"].startswith("worker-0, worker-1: no step for 1000 s")


def test_a_program_that_reports_nothing_is_never_said_to_train() -> None:
    chief = start_gang()
    for second in range(1, 2000, 2):
        send_heartbeats(chief, float(second))
        chief.tick(float(second))
    told = gang_summary(chief)
    assert (told["phase"], told["reason"]) == ("Training", "NoStepYet")
    assert told["message"] == "all members running; no step reported yet"
    for progress in ({"connecting": True}, {"updated": 1.0, "step": 0}):
        chief.handle_frame("worker-0", heartbeat(1, 2000.0, **progress), 2000.0)
        assert gang_summary(chief)["reason"] == "NoStepYet", progress
    chief.handle_frame("worker-0", heartbeat(1, 2001.0, updated=1.0, step=1, first_step_time=0.1), 2001.0)
    assert gang_summary(chief)["reason"] == "Training"


def test_a_program_that_has_finished_or_loads_makes_no_step_and_is_no_news() -> None:
    chief = start_gang()
    stand_still(chief, 1, 700, step=5, main_exit=0)
    assert gang_summary(chief)["reason"] == "Training"
