"""The logs show the traceback of the member that failed first, and fold those that it caused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.launchers.gang import LocalGang
from tests.support.launchers.standin import LOST

BOOM = "Traceback (most recent call last):\nValueError: boom\n"
FOLDED = (
    "tftraining: this program failed because of worker-1; omitting its traceback of 7 lines: "
    "UnavailableError: Collective ops is aborted by: Socket closed (set TFTRAINING_FULL_TRACEBACKS=1 to see it)\n"
    "closing\n"
)


@pytest.mark.parametrize("restarts", [0, 3])
def test_a_survivors_traceback_is_folded_after_the_cause(tmp_path: Path, restarts: int) -> None:
    with LocalGang(tmp_path, {"worker": 2}, "--epochs", "1000", maxRestarts=restarts) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        gang.order("worker-0", "lose worker-1")
        if restarts:
            gang.wait_for_phase("Training", 2)
            gang.order("worker-0", "exit 0")
        gang.wait()
        assert BOOM in gang.log("worker-1")
        survivor = gang.log("worker-0")
        assert FOLDED in survivor
        assert "/app/train.py" not in survivor
        if restarts:
            assert "ValueError: boom" in survivor.partition(FOLDED)[0]  # the cause comes first
            assert survivor.index(FOLDED) < survivor.index("round 2 starts")
        else:
            assert gang.message("worker-0")["member"] == "worker-1"


def test_a_traceback_caused_by_a_lost_chief_is_folded(tmp_path: Path) -> None:
    """Nobody is left to say whose failure it is, and no program of the gang can go on without the chief."""
    with LocalGang(tmp_path, {"worker": 2}, "--epochs", "1000") as gang:
        gang.start()
        gang.wait_for_phase("Training")
        gang.order("worker-1", "lose nobody")
        gang.wait_for((gang.directory / "order-nobody").exists)
        gang.kill("worker-0")
        folded = FOLDED.replace("because of worker-1", "because of worker-0")
        gang.wait_for(lambda: folded in gang.log("worker-1"))


def test_full_tracebacks_are_shown_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFTRAINING_FULL_TRACEBACKS", "1")
    with LocalGang(tmp_path, {"worker": 2}, "--epochs", "1000", maxRestarts=0) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        gang.order("worker-0", "lose worker-1")
        gang.wait()
        assert f"{LOST}\nclosing\n" in gang.log("worker-0")
        assert "omitting its traceback" not in gang.log("worker-0")


def test_the_first_failure_is_never_folded(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, "--epochs", "1000", maxRestarts=0) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        gang.order("worker-1", "error UnavailableError: Socket closed")
        gang.wait()
        shown = "Traceback (most recent call last):\nUnavailableError: Socket closed\n"
        assert shown in gang.log("worker-1")
        assert gang.message("worker-0")["member"] == "worker-1"
        assert "UnavailableError: Socket closed" in gang.message("worker-0")["message"]


def test_a_program_that_survives_the_loss_prints_its_traceback(tmp_path: Path) -> None:
    """It caught the error itself, and nobody has failed: all is shown, in its order, while it goes on."""
    with LocalGang(tmp_path, {"worker": 1}) as gang:
        gang.command[1:] = ["-c", f"import sys, time; print('''{LOST}\\nclosing''', file=sys.stderr); time.sleep(600)"]
        gang.start()
        gang.wait_for(lambda: f"{LOST}\nclosing\n" in gang.log("worker-0"))
        assert gang.status()["state"] == "running"
