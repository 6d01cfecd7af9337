"""Stalled programs: a restart with stacks in the log, and which member is charged for a peer's exit."""

from __future__ import annotations

import signal
import time
from functools import partial
from pathlib import Path

import pytest

from tests.support.launchers.gang import LocalGang

ENDLESS = ("--epochs", "100000", "--steps", "10")


def shows_stacks(gang: LocalGang, name: str) -> bool:
    return 'standin.py", line' in gang.log(name)


def test_a_stalled_program_is_named_and_restarted(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, *ENDLESS, stallTimeoutSeconds=2) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        gang.wait_for(lambda: all((each["step"] or 0) > 0 for each in gang.status()["members"].values()))
        gang.order("worker-1", "hang")
        status = gang.wait_for_phase("Training", 2)
        last = status["lastRestart"]
        assert (last["member"], last["reason"]) == ("worker-1", "Stalled")
        assert status["ledger"]["processFailures"] == 1
        for name in gang.names:
            assert shows_stacks(gang, name)


def test_a_program_that_makes_no_step_for_unusually_long_is_told_with_stacks_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import tftraining.launch.gang.stall as w\nw.NO_STEP_SECONDS = 1.5\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with LocalGang(tmp_path, {"worker": 2}, *ENDLESS) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        gang.order("worker-1", "hang")
        gang.wait_for(lambda: gang.status().get("reason") == "NoStep")
        for name in gang.names:
            gang.wait_for(partial(shows_stacks, gang, name))
        status = gang.status()
        assert (status["phase"], status["round"], status["ledger"]["incidents"]) == ("Training", 1, 0)
        assert status["message"].startswith("worker-1: no step for ")


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
