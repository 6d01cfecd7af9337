"""Real launchers of a gang that trains on with fewer workers, and grows back when they return."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.support.launchers.gang import LocalGang

ENDLESS = ("--epochs", "100000", "--steps", "10", "--step-seconds", "0.01")


def addresses(gang: LocalGang, *members: str) -> list[str]:
    """Of these workers, as TF_CONFIG has them."""
    return [gang.cluster["worker"][int(name.rpartition("-")[2])] for name in members]


def test_a_gang_trains_without_a_lost_worker_and_grows_back(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 3}, *ENDLESS, minReplicas=1) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        gang.kill("worker-1")
        status = gang.wait_for_phase("Training", 2)  # the lost launcher is not waited for, only its lease
        assert (status["gang"], status["missing"]) == ({"size": 2, "full": 3}, ["worker-1"])
        assert status["ledger"]["processFailures"] == 0
        two = addresses(gang, "worker-0", "worker-2")
        assert gang.gang_environments(2) == {
            "worker-0": {"index": 0, "workers": two, "numbers": [2, 3], "rate": 0.2},
            "worker-2": {"index": 1, "workers": two, "numbers": [2, 3], "rate": 0.2},
        }
        gang.start("worker-1")
        status = gang.wait_for_phase("Training", 3)
        assert status["gang"] == {"size": 3, "full": 3}
        assert status["lastRestart"]["reason"] == "Grown"
        assert {name: told["index"] for name, told in gang.gang_environments(3).items()} == dict(
            zip(gang.names, range(3), strict=True)
        )
        assert status["ledger"].items() >= {"processFailures": 0, "inPlace": 2}.items()
        assert not gang.violations()


def test_a_terminated_worker_is_left_out(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 3}, *ENDLESS, minReplicas=2) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        gang.kill("worker-2", signal.SIGTERM)
        status = gang.wait_for_phase("Training", 2)
        assert status["lastRestart"]["reason"] == "Terminated"
        assert sorted(gang.gang_environments(2)) == ["worker-0", "worker-1"]
        assert gang.launchers["worker-2"].wait(60) == 143


@pytest.mark.slow_fault
def test_a_frozen_worker_is_left_out_and_comes_back(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 3}, *ENDLESS, minReplicas=1) as gang:
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
def test_the_gang_waits_for_the_chief(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 3}, *ENDLESS, minReplicas=1) as gang:
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


# --- another size, by orders


def order(gang: LocalGang, **orders: object) -> None:
    """Tell the chief's launcher of a change of the spec, as the kubelet does: all at once."""
    path = gang.place / "orders"
    path.with_suffix(".new").write_text(json.dumps(orders))
    path.with_suffix(".new").rename(path)


def sized(place: Path, workers: int, most: int) -> LocalGang:
    """A gang whose job has so many workers now, with launchers for more to come."""
    gang = LocalGang(place, {"worker": most}, *ENDLESS, orders=str(place / "orders"), workerAddress="worker-%d:1")
    gang.cluster = {"worker": [f"worker-{index}:1" for index in range(workers)]}
    order(gang, workers=workers)
    return gang


def test_each_resize_takes_one_restart(tmp_path: Path) -> None:
    with sized(tmp_path, 2, 3) as gang:
        gang.start("worker-0", "worker-1")
        gang.wait_for_phase("Training")
        pids = {name: gang.launchers[name].pid for name in gang.names[:2]}
        order(gang, workers=3)
        gang.wait_for(lambda: gang.status()["missing"] == ["worker-2"])
        assert gang.status()["round"] == 1, "it trains on until the new worker is there"
        gang.cluster["worker"].append("worker-2:1")
        gang.start("worker-2")
        status = gang.wait_for_phase("Training", 2)
        assert status["lastRestart"]["reason"] == "Resized"
        three = [f"worker-{index}:1" for index in range(3)]
        assert gang.gang_environments(2) == {
            name: {"index": index, "workers": three, "numbers": [3, 3], "rate": 0.3}
            for index, name in enumerate(gang.names)
        }
        order(gang, workers=1)
        status = gang.wait_for_phase("Training", 3)
        assert gang.gang_environments(3) == {
            "worker-0": {"index": 0, "workers": three[:1], "numbers": [1, 1], "rate": 0.3}
        }
        assert status["ledger"].items() >= {"inPlace": 2, "processFailures": 0, "withoutProgress": 0}.items()
        assert pids == {name: gang.launchers[name].pid for name in pids}
        assert not gang.violations()


def test_a_changed_limit_takes_effect_in_running_launchers(tmp_path: Path) -> None:
    with sized(tmp_path, 2, 2) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        order(gang, workers=2, maxRestarts=0)
        time.sleep(1)
        gang.kill_program("worker-1")
        assert gang.wait() == {"worker-0": 1, "worker-1": 137}
        assert gang.message("worker-0")["reason"] == "MaxRestartsExceeded"


def test_invalid_spec_updates_change_nothing(tmp_path: Path) -> None:
    with sized(tmp_path, 2, 2) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        order(gang, workers=0)
        gang.wait_for(lambda: "ignoring invalid spec update" in gang.log("worker-0"))
        (tmp_path / "orders").write_text("{")
        gang.wait_for(lambda: gang.log("worker-0").count("ignoring invalid spec update") == 2)
        assert gang.status()["round"] == 1
