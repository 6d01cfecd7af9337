"""Which members have stalled."""

from __future__ import annotations

import pytest

from tftraining.launch.gang.watchdog import WatchedProgram, find_stalled
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
        ([look("a", 5, 95), look("b", 4, 80)], ["b"]),
        ([look("a", 0, 0, reporter=False), look("b", 0, 0, reporter=False)], []),
    ],
)
def test_stalled_members(looks: list[WatchedProgram], blamed: list[str]) -> None:
    assert find_stalled(looks, 10.0, 100.0) == blamed
