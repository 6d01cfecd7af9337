"""A copy from which the program fails is not restored again, and newer copies are progress only after a while."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.simulated_gang.copies import (
    fail,
    make_steps,
    report,
    restart,
    restored,
    start_gang_with_copies,
)
from tests.support.simulated_gang.members import start_gang
from tests.support.simulated_gang.simulation import exited, heartbeat
from tftraining.launch.gang.coordinator import Coordinator

HELD = [[1, 32], [1, 48]]
DROPPED = [(1, 48), (2, 0)]  # the restored copy, and all of the round that has restored it


def resumed_gang(**policy: Any) -> Coordinator:
    """A gang in round 2, which has restored the copy of step 48 and made two steps since."""
    chief = start_gang_with_copies("worker-0", "worker-1", held=HELD, **{"max_restarts": 100, **policy})
    make_steps(chief, 5.0, 50, report(resumed=48), first_step=48)
    return chief


def suspects(chief: Coordinator) -> list[tuple[int, int]]:
    return chief.backups.suspects.to_frame()


def test_a_copy_is_dropped_if_the_program_fails_before_the_next_one() -> None:
    chief = resumed_gang()
    fail(chief, "worker-1", 6.0)
    assert chief.last_incident is not None
    assert chief.last_incident.message.endswith("; the backup in memory of step 48 is not used again")
    assert restored(restart(chief, 7.0, *HELD)) == [1, 32]
    make_steps(chief, 8.0, 34, report(resumed=32), first_step=32)
    fail(chief, "worker-0", 8.0)
    assert restored(restart(chief, 9.0, *HELD)) is None
    assert chief.verdict.ledger.process_failures == 2


def test_a_copy_is_dropped_if_the_program_fails_while_it_restores_it() -> None:
    chief = start_gang_with_copies("worker-0", "worker-1", held=HELD)
    fail(chief, "worker-1", 6.0)
    assert restored(restart(chief, 7.0, *HELD)) == [1, 32]


def test_a_member_that_holds_only_a_dropped_copy_fetches_another() -> None:
    chief = resumed_gang()
    fail(chief, "worker-1", 6.0)
    chief.handle_frame("worker-0", {"type": "ready", "round": 2, "copiesHeld": [[1, 48]]}, 7.0)
    orders = restart(chief, 7.0, *HELD)
    assert restored(orders) == [1, 32]
    assert [order["source"] for order in orders.values()] == ["Peer", "Memory"]


def test_a_program_that_ran_out_of_memory_ends_the_backups_of_the_job() -> None:
    chief = resumed_gang()
    chief.handle_frame("worker-1", exited(chief.rounds.number, number_of_signal=9, kind="OOMKilled"), 6.0)
    assert set(restart(chief, 7.0, *HELD).values()) == {None}
    summary = chief.backups.summarize()
    assert summary is not None
    assert (summary.on, summary.reason) == (False, "worker-1 was OOMKilled")


def test_a_job_without_backups_says_nothing_of_them_after_it_ran_out_of_memory() -> None:
    chief = start_gang("worker-0", "worker-1")
    chief.handle_frame("worker-1", exited(1, number_of_signal=9, kind="OOMKilled"), 6.0)
    assert chief.backups.summarize() is None


@pytest.mark.parametrize(
    "ended",
    [
        {"number_of_signal": 9},
        {"number_of_signal": 15},
        {"code": 137},
        {"code": 1, "exception": "ConnectionResetError: [Errno 104]"},
        {"code": 1, "exception": "tensorflow.python.framework.errors_impl.UnavailableError: lost"},
    ],
)
def test_no_kill_and_no_failure_of_the_surroundings_drops_a_copy(ended: dict[str, Any]) -> None:
    chief, exception = resumed_gang(), ended.pop("exception", "")
    frame = exited(chief.rounds.number, **ended)
    frame["exit"]["exception"] = exception
    chief.handle_frame("worker-1", frame, 6.0)
    assert restored(restart(chief, 7.0, *HELD)) == [1, 48]


@pytest.mark.parametrize(
    "ended", [{"number_of_signal": number} for number in (4, 6, 7, 8, 11)] + [{"code": 134}, {"code": 139}]
)
def test_a_crash_drops_a_copy_before_the_next_one_and_never_later(ended: dict[str, Any]) -> None:
    """TensorFlow aborts the process where values are impossible; a shell that runs the program has 128 + n."""
    chief = resumed_gang()
    chief.handle_frame("worker-1", exited(chief.rounds.number, **ended), 6.0)
    assert restored(restart(chief, 7.0, *HELD)) == [1, 32]
    for now, copy in ((10.0, 48), (20.0, 64)):
        make_steps(chief, now, copy + 2, report(copy, resumed=copy - 16), first_step=copy - 16)
        chief.handle_frame("worker-1", exited(chief.rounds.number, **ended), now)
        assert restored(restart(chief, now + 5.0, [chief.rounds.number, copy])) == [chief.rounds.number - 1, copy]


def test_the_members_are_told_to_remove_a_dropped_copy() -> None:
    chief = resumed_gang()
    fail(chief, "worker-1", 6.0)
    stops = [frame for _, frame in chief.outbox.take_all() if frame["type"] == "stop"]
    assert [frame["suspects"] for frame in stops] == [DROPPED] * 2


def test_a_loss_that_is_not_finite_after_a_restore_is_one_charged_failure_and_drops_the_copy() -> None:
    chief = resumed_gang()
    told = "_tftraining.memory_backup.copier.LossIsNotFinite: tftraining: the loss is NaN 16 steps after the restore"
    fail(chief, "worker-1", 6.0, told)
    assert chief.verdict.ledger.process_failures == 1
    assert restored(restart(chief, 7.0, *HELD)) == [1, 32]


def test_a_member_that_has_finished_too_early_drops_no_copy() -> None:
    chief = resumed_gang()
    chief.handle_frame("worker-1", exited(chief.rounds.number, 0), 6.0)
    fail(chief, "worker-0", 6.5, "tensorflow.python.framework.errors_impl.UnavailableError: Connection reset by peer")
    assert chief.last_incident is not None
    assert (chief.last_incident.member, chief.last_incident.charged) == ("worker-1", True)
    assert not suspects(chief)


@pytest.mark.parametrize("code", [1, 3])
def test_an_exit_without_a_known_exception_drops_a_copy(code: int) -> None:
    chief = resumed_gang()
    chief.handle_frame("worker-1", exited(chief.rounds.number, code), 6.0)
    assert restored(restart(chief, 7.0, *HELD)) == [1, 32]


def test_a_stall_before_the_first_step_drops_the_copy() -> None:
    """The programs may have skipped their input for longer than spec.runPolicy.stallTimeoutSeconds."""
    chief = start_gang_with_copies("worker-0", "worker-1", held=HELD, stall_timeout_seconds=20.0)
    for peer in chief.membership.members:
        peer.has_reported = True
    chief.tick(1.0)
    for now in (25.0, 45.0, 65.0):
        for peer in chief.membership.members:
            chief.handle_frame(peer.name, heartbeat(chief.rounds.number, now, step=48, first_step=48, updated=now), now)
        chief.tick(now)
    assert chief.last_incident is not None and chief.last_incident.reason == "Stalled"
    assert suspects(chief) == DROPPED


def test_lost_members_and_stalls_drop_no_copy() -> None:
    chief = resumed_gang(stall_timeout_seconds=20.0)
    chief.handle_disconnect("worker-1", 6.0)
    assert not suspects(chief)
    chief = resumed_gang(stall_timeout_seconds=20.0)
    for now in (25.0, 27.0):
        make_steps(chief, now, 50, report(resumed=48), last_step_time=now - 1.0)
        chief.tick(now)
    assert chief.last_incident is not None and chief.last_incident.reason == "Stalled"
    assert not suspects(chief)


@pytest.mark.parametrize(("steps", "dropped"), [((48, 64), True), ((64, 64), False), ((None, 64), True)])
def test_a_copy_is_kept_once_all_members_have_made_a_newer_one(steps: Any, dropped: bool) -> None:
    chief = resumed_gang()
    for peer, step in zip(chief.membership.members, steps, strict=True):
        frame = {"type": "beat", "t": 6.0, "round": peer.round, "mode": "", "pid": 7, "stuck": 0.0, "progress": {}}
        chief.handle_frame(peer.name, {**frame, "backup": report(step, resumed=48)}, 6.0)
    fail(chief, "worker-1", 6.5)
    assert suspects(chief) == (DROPPED if dropped else [])


def test_a_copy_that_the_programs_did_not_take_is_kept() -> None:
    """It does not fit, or the storage has a newer backup."""
    chief = start_gang_with_copies("worker-0", "worker-1", held=HELD)
    make_steps(chief, 5.0, 70, report(), first_step=60)
    fail(chief, "worker-1", 6.0)
    assert not suspects(chief)


def test_a_copy_reported_with_the_exit_counts() -> None:
    chief = resumed_gang()
    frame = exited(chief.rounds.number, 1)
    make_steps(chief, 6.0, 65, report(64, resumed=48))
    chief.handle_frame("worker-1", {**heartbeat(1, 6.1), "backup": report(48, resumed=48)}, 6.1)
    chief.handle_frame("worker-1", {**frame, "backup": report(64, resumed=48)}, 6.5)
    assert not suspects(chief)


def test_a_failure_counts_as_the_same_only_after_all_copies_are_dropped() -> None:
    chief = resumed_gang(same_failure_limit=3)
    for now, copies in ((10.0, [[1, 32]]), (100.0, [])):
        fail(chief, "worker-1", now, epoch=1, step=50, first_step_time=1.0, updated=1.0)
        assert chief.verdict.ledger.same.count == 0
        restart(chief, now + 60.0, *copies)
    for number, now in enumerate((200.0, 300.0), 1):
        fail(chief, "worker-1", now, epoch=1, step=50, first_step_time=1.0, updated=1.0)
        assert chief.verdict.ledger.same.count == number
        restart(chief, now + 60.0)
    assert chief.verdict.ledger.process_failures == 4


# Progress.


def train(chief: Coordinator, now: float, seconds: float, first: int, copy: int, **fields: Any) -> None:
    """The round, which begins at `now`, trains so long and makes a copy; then a program is killed."""
    resumed = report(copy, resumed=first) if first else report(copy)
    told = {"epoch": 1, "first_epoch": 0, "first_step": first, "first_step_time": seconds, **fields}
    make_steps(chief, now + seconds, copy + 1, resumed, **told)
    chief.handle_frame("worker-1", exited(chief.rounds.number, number_of_signal=9, **told), now + seconds)


@pytest.mark.parametrize(("seconds", "has_progress"), [(9.9, False), (10.1, True)])
def test_a_newer_copy_is_progress_once_the_gang_has_trained_for_10_seconds(seconds: float, has_progress: bool) -> None:
    chief = start_gang_with_copies(max_restarts=100)
    now = 0.0
    for number in range(4):
        resumed = {"checkpoint": 100 * number} if number else {}  # as the program reports each restored state
        train(chief, now, seconds, 100 * number, 100 * number + 100, **resumed)
        assert chief.verdict.ledger.without_progress == (1 if has_progress else number + 1)
        now += seconds + 60.0
        restart(chief, now, [number + 1, 100 * number + 100])


def test_the_same_copy_again_is_no_progress() -> None:
    chief = start_gang_with_copies(max_restarts=100)
    for number, now in enumerate((0.0, 100.0, 200.0), 1):
        train(chief, now, 20.0, 0, 100)
        assert chief.verdict.ledger.without_progress == number
        restart(chief, now + 90.0)


def test_the_first_copy_after_a_resumption_counts_for_a_new_launcher_of_the_chief() -> None:
    for copy, expected in ((100, False), (116, True)):
        chief = start_gang_with_copies(held=[[1, 100]])
        make_steps(chief, 20.0, 120, report(copy, resumed=100), first_step_time=15.0)
        assert chief.rounds.check_progress(20.0, charged=True) is expected


def test_checkpoints_in_storage_are_progress_at_once() -> None:
    chief = start_gang_with_copies(max_restarts=100)
    for number in range(4):
        now, first = 100.0 * number, 100 * number
        train(chief, now, 2.0, first, first + 100, checkpoint=first + 70)
        assert chief.verdict.ledger.without_progress == 1
        restart(chief, now + 90.0, [number + 1, first + 100])


def test_an_uncharged_incident_does_not_raise_the_bar() -> None:
    chief = start_gang_with_copies(max_restarts=100)
    make_steps(chief, 3.0, 101, report(100), first_step_time=2.0)
    assert not chief.rounds.check_progress(3.0, charged=False)
    make_steps(chief, 15.0, 101, report(100), first_step_time=14.0)
    assert chief.rounds.check_progress(15.0, charged=True)
    assert not chief.rounds.check_progress(16.0, charged=True)
