"""Stalled programs: a restart with stacks in the log, and which member is charged for a peer's exit."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.support.launchers.gang import LocalGang

ENDLESS = ("--epochs", "100000", "--steps", "10")


def test_a_stalled_program_is_named_and_restarted(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, *ENDLESS, stallTimeoutSeconds=2) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        time.sleep(0.5)
        gang.order("worker-1", "hang")
        status = gang.wait_for_phase("Training", 2)
        last = status["lastRestart"]
        assert (last["member"], last["reason"]) == ("worker-1", "Stalled")
        assert status["ledger"]["processFailures"] == 1
        for name in gang.names:
            assert 'standin.py", line' in gang.log(name), "its stacks"


def test_a_stopped_program_is_charged_for_its_peers_exit(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, *ENDLESS, memberTimeoutSeconds=1) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        gang.kill_program("worker-1", signal.SIGSTOP)
        time.sleep(2.5)
        gang.order("worker-0", "error UnavailableError: a heartbeat ended")
        status = gang.wait_for_phase("Training", 2)
        assert (status["lastRestart"]["member"], status["lastRestart"]["reason"]) == ("worker-1", "Stalled")
        assert "UnavailableError" in status["lastRestart"]["message"]
        assert status["ledger"]["processFailures"] == 1


@pytest.mark.slow_fault
def test_a_program_that_never_reports_is_never_stalled(tmp_path: Path) -> None:
    arguments = ("--quiet", "--epochs", "1", "--steps", "40", "--step-seconds", "0.1")
    with LocalGang(tmp_path, {"worker": 2}, *arguments, stallTimeoutSeconds=1) as gang:
        gang.start()
        assert gang.wait() == {"worker-0": 0, "worker-1": 0}
        assert {number for _, number, _ in gang.starts()} == {1}
