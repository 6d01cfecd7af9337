"""A program whose main thread has ended while another thread keeps its process alive."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.launchers.gang import LocalGang

# Worker 1 ends as the test wants; worker 0 waits for it, as for a peer. From the second round on all end well.
PROGRAM = """
import os, sys, threading, time
import concurrent.futures, tensorflow, tftraining
lives = float(sys.argv[2])
concurrent.futures.ThreadPoolExecutor().submit(time.sleep, lives)
tftraining.report(step=1)
if os.environ["TFTRAINING_ROUND"] != "1":
    os._exit(0)
if os.environ["STANDIN"] == "worker-0" and sys.argv[1] != "pass":
    time.sleep(600)
exec(sys.argv[1])
"""


def gang_of(place: Path, monkeypatch: pytest.MonkeyPatch, end: str, lives: float, **options: object) -> LocalGang:
    (place / "tensorflow").mkdir()
    (place / "tensorflow" / "__init__.py").write_text("")
    (place / "train.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(place))
    gang = LocalGang(place, {"worker": 2}, **options)
    gang.command = [sys.executable, str(place / "train.py"), end, str(lives)]
    return gang


@pytest.mark.parametrize(
    ("warm", "end", "code", "exception"),
    [
        (False, "raise RuntimeError('disk full')", 1, "RuntimeError: disk full"),
        (True, "raise RuntimeError('disk full')", 1, "RuntimeError: disk full"),
        (True, "sys.exit(3)", 3, ""),
    ],
)
def test_a_failed_program_that_a_thread_keeps_alive_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm: bool, end: str, code: int, exception: str
) -> None:
    with gang_of(tmp_path, monkeypatch, end, 600, warmStart=warm) as gang:
        gang.start()
        status = gang.wait_for(lambda: found if (found := gang.status()).get("lastRestart") else None)
        last = status["lastRestart"]
        assert (last["member"], last["reason"], last["exitCode"]) == ("worker-1", "Error", code)
        assert last["exception"] == exception
        gang.wait_for(lambda: "its process does not end" in gang.log("worker-1"))  # written by a thread
        assert gang.wait() == {"worker-0": 0, "worker-1": 0}
        assert gang.message("worker-0")["ledger"]["processFailures"] == 1


def test_a_finished_program_that_a_thread_keeps_alive_is_neither_stalled_nor_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gang_of(tmp_path, monkeypatch, "pass", 4, stallTimeoutSeconds=1) as gang:
        gang.start()
        assert gang.wait() == {"worker-0": 0, "worker-1": 0}
        assert gang.message("worker-0")["ledger"]["incidents"] == 0
