"""Real launchers of a gang that trains on with fewer workers, and grows back when they return."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.processes.launch.gang import Gang

ENDLESS = ("--epochs", "100000", "--steps", "10", "--step-seconds", "0.01")


def addresses(gang: Gang, *members: str) -> list[str]:
    """Of these workers, as TF_CONFIG has them."""
    return [gang.cluster["worker"][int(name.rpartition("-")[2])] for name in members]


def test_a_gang_goes_on_without_a_lost_worker_and_grows_back(tmp_path: Path) -> None:
    with Gang(tmp_path, {"worker": 3}, *ENDLESS, minReplicas=1) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        killed = time.monotonic()
        gang.kill("worker-1")
        status = gang.wait_for_phase("Training", 2)
        assert time.monotonic() - killed < 2.5, "the lost launcher is not waited for"
        assert (status["gang"], status["missing"]) == ({"size": 2, "full": 3}, ["worker-1"])
        assert status["ledger"]["processFailures"] == 0
        two = addresses(gang, "worker-0", "worker-2")
        assert gang.told(2) == {
            "worker-0": {"index": 0, "workers": two, "numbers": [2, 3]},
            "worker-2": {"index": 1, "workers": two, "numbers": [2, 3]},
        }
        gang.start("worker-1")
        status = gang.wait_for_phase("Training", 3)
        assert status["gang"] == {"size": 3, "full": 3}
        assert status["lastRestart"]["reason"] == "Grown"
        assert {name: told["index"] for name, told in gang.told(3).items()} == dict(
            zip(gang.names, range(3), strict=True)
        )
        assert status["ledger"].items() >= {"processFailures": 0, "inPlace": 2}.items()
        assert not gang.violations()


def test_a_worker_that_is_told_to_go_is_left_out(tmp_path: Path) -> None:
    with Gang(tmp_path, {"worker": 3}, *ENDLESS, minReplicas=2) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        gang.kill("worker-2", signal.SIGTERM)
        status = gang.wait_for_phase("Training", 2)
        assert status["lastRestart"]["reason"] == "Terminated"
        assert sorted(gang.told(2)) == ["worker-0", "worker-1"]
        assert gang.launchers["worker-2"].wait(10) == 143


@pytest.mark.slow_fault
def test_a_frozen_worker_is_left_out_and_comes_back(tmp_path: Path) -> None:
    with Gang(tmp_path, {"worker": 3}, *ENDLESS, minReplicas=1) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        pid = gang.pid("worker-1")
        gang.kill("worker-1", signal.SIGSTOP)
        os.kill(pid, signal.SIGSTOP)
        status = gang.wait_for_phase("Training", 2)
        assert status["missing"] == ["worker-1"]
        gang.kill("worker-1", signal.SIGCONT)
        assert gang.wait_for_phase("Training", 3)["gang"]["size"] == 3
        assert not Path(f"/proc/{pid}").exists()


@pytest.mark.slow_fault
def test_the_chief_is_waited_for(tmp_path: Path) -> None:
    with Gang(tmp_path, {"worker": 3}, *ENDLESS, minReplicas=1) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        gang.kill("worker-0")
        gang.kill("worker-2")
        gang.start("worker-0")
        status = gang.wait_for_phase("Training", 2)
        assert (status["missing"], status["gang"]["size"]) == (["worker-2"], 2)
        gang.start("worker-2")
        assert gang.wait_for_phase("Training", 3)["gang"]["size"] == 3
        assert not gang.violations()
