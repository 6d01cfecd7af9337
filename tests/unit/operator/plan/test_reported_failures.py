"""What launchers report of a restart and of a failure is in the status, field by field."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tftraining_api.model.status import LastFailure, LastRestart, Status
from tftraining_operator.model.launcher_report import ReportedFailure, ReportedRestart, ReportedResult
from tftraining_operator.plan.launcher_report import restart_record
from tftraining_operator.plan.messages import account, with_failure

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ENDED: dict[str, Any] = {"exit_code": 1, "signal": 9, "exception": "ValueError: boom"}


def test_every_field_of_a_restart_is_kept() -> None:
    told: dict[str, Any] = {
        "time": NOW,
        "reason": "Killed",
        "down_seconds": 1.1,
        "lost_steps": 3,
        "lost_seconds": 0.2,
        "alone": True,
    }
    resumed: dict[str, Any] = {
        "resumed_from": "Memory",
        "resumed_from_epoch": 2,
        "resumed_from_step": 170,
        "backup_skipped": "no",
    }
    record = restart_record("digits", ReportedRestart(member="worker-1", **ENDED, **told, **resumed), Status())
    assert record == LastRestart(pod="digits-worker-1", **ENDED, **told, **resumed)
    assert all(getattr(record, name) for name in LastRestart.__struct_fields__), "a field that no launcher fills"


def test_what_is_not_known_is_unset() -> None:
    assert restart_record("digits", ReportedRestart(time=NOW), Status()) == LastRestart(time=NOW, reason="Error")
    assert restart_record("digits", ReportedRestart(), Status()) is None


@pytest.mark.parametrize("ended", [ReportedFailure(**ENDED), ReportedResult("Failed", **ENDED)])
def test_every_field_of_a_failure_is_kept(ended: ReportedFailure | ReportedResult) -> None:
    status = with_failure(Status(), "digits-worker-1", ended, "Killed", "last words")
    assert status.failure == LastFailure(pod="digits-worker-1", reason="Killed", log_tail="last words", **ENDED)
    assert all(getattr(status.failure, name) for name in LastFailure.__struct_fields__)
    silent = with_failure(status, "digits-worker-1", msgspec.structs.replace(ended, exception=""), "Error", None)
    assert silent.failure is not None and silent.failure.exception is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "worker-1 was killed (SIGKILL); restarting in place"),
        ({"alone": True}, "worker-1 was killed (SIGKILL); restarting it alone; other members keep training"),
        (
            {"down_seconds": 1.1, "resumed_from": "Memory", "resumed_from_step": 170, "lost_steps": 1},
            "worker-1 was killed (SIGKILL); resumed from memory at step 170 after 1.1 s; 1 step lost",
        ),
        ({"reason": "Resized", "down_seconds": 1.1}, "the number of workers changed; resumed after 1.1 s"),
        ({"reason": "Grown"}, "worker-1 is back; restarting in place"),
        (
            {"reason": "ImportError", "signal": None, "exit_code": 1, "exception": "ImportError: x"},
            "worker-1 failed with exit code 1: the program cannot import a module: ImportError: x; restarting in place",
        ),
        ({"reason": "OOMKilled"}, "worker-1 ran out of memory (OOMKilled); restarting in place"),
        ({"signal": None, "exception": "ValueError: boom"}, "worker-1: ValueError: boom; restarting in place"),
        ({"signal": None, "reason": "SpecChanged"}, "worker-1 was restarted: SpecChanged; restarting in place"),
        ({"pod": None}, "the gang was killed (SIGKILL); restarting in place"),
    ],
)
def test_a_restart_in_place_is_told(fields: dict[str, Any], words: str) -> None:
    killed = LastRestart(time=NOW, pod="digits-worker-1", reason="Killed", signal=9)
    assert account("digits", msgspec.structs.replace(killed, **fields)) == words
