"""A program that no longer starts in its container, though it has run longer there, needs a new pod. Pure decisions."""

from __future__ import annotations

import pytest

from tftraining.launch.failure.exit import OOM_KILLED, Exit
from tftraining.launch.failure.first_step import Starts
from tftraining.launch.progress import Snapshot

STEPPED = Snapshot(step=7, first_step_time=1.0, updated=1.0)
SILENT = Snapshot()


def fail(starts: Starts, after: float = 0.5, exception: str = "") -> bool:
    """The program fails by itself at its start; whether its container is spoilt."""
    starts.record_exit(Exit(1, None, exception=exception), SILENT, False, after)
    return starts.are_spoilt


def trained(seconds: float = 10.0) -> Starts:
    """A program that has made steps, until the round was ended."""
    starts = Starts()
    starts.record_stop(STEPPED, True, seconds)
    return starts


@pytest.mark.parametrize("exception", ["", "FileExistsError: [Errno 17] File exists: 'src'", "KeyError: 'x'"])
def test_the_second_failed_start_in_a_row_needs_a_new_pod(exception: str) -> None:
    starts = trained()
    assert [fail(starts, exception=exception) for _ in range(3)] == [False, True, True]
    assert starts.describe("worker-1").startswith("worker-1 failed 3 times in a row before its first step")


def test_a_round_that_was_killed_before_its_first_step_was_longer_too() -> None:
    starts = Starts()
    starts.record_exit(Exit(None, 9), SILENT, False, 3.0)
    assert [fail(starts), fail(starts), starts.stepped] == [False, True, False]


def test_a_program_that_never_started_is_at_fault_itself() -> None:
    starts = Starts()
    assert [fail(starts, after=seconds) for seconds in (5.0, 4.0, 3.0)] == [False] * 3


def test_a_step_between_two_failures_proves_the_container() -> None:
    starts = trained()
    for _ in range(3):
        assert not fail(starts)
        starts.record_stop(STEPPED, True, 1.0)


def test_a_member_that_another_one_stops_between_its_failures_still_fails_in_a_row() -> None:
    starts = trained()
    assert not fail(starts)
    starts.record_stop(SILENT, False, 0.2)
    assert fail(starts)


@pytest.mark.parametrize(
    ("ended", "told", "ran"),
    [
        (Exit(137, None), SILENT, 0.5),
        (Exit(None, 11), SILENT, 0.5),
        (Exit(1, None, kind=OOM_KILLED), SILENT, 0.5),
        (Exit(1, None, exception="UnavailableError: Socket closed"), SILENT, 0.5),
        (Exit(1, None), STEPPED, 0.5),
        (Exit(1, None), SILENT, 30.0),
        (Exit(0, None), SILENT, 0.5),
    ],
)
def test_kills_lost_peers_and_failures_behind_a_step_are_no_failed_starts(
    ended: Exit, told: Snapshot, ran: float
) -> None:
    starts = trained(seconds=100.0)
    for _ in range(3):
        starts.record_exit(ended, told, False, ran)
    assert (starts.failed, starts.are_spoilt) == (0, False)


def test_a_failure_later_than_any_end_of_a_round_is_not_of_the_container() -> None:
    starts = trained(seconds=2.0)
    assert [fail(starts, after=20.0), fail(starts, after=20.0)] == [False, False]


def test_a_failure_behind_the_restore_of_a_backup_in_memory_may_be_the_backups() -> None:
    starts = trained()
    for _ in range(3):
        starts.record_exit(Exit(1, None), SILENT, True, 0.5, restored=True)
    assert (starts.failed, starts.are_spoilt) == (0, False)
