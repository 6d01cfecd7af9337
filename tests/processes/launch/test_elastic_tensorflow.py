"""A real training of two workers goes on under three, without a lost one, whole again, and alone: each time from the
epoch of its last backup, warm, and without a charge.

One test, for TensorFlow is slow to start: about a minute on two cores.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes.launch.test_elastic import order
from tests.support.launchers.gang import LocalGang
from tests.support.ports import free_ports

PATIENCE = 120.0


def free_decade() -> int:
    """Ten ports in a row, by their number without its last digit: TensorFlow listens on all addresses there are."""
    return next(port for port in free_ports(19) if port % 10 == 0) // 10


def joined(gang: LocalGang, number: int) -> dict[str, Any]:
    """The status of the gang once it trains in that round, all that it restarted for told."""
    found: dict[str, Any] = {}

    def trains() -> bool:
        found.clear()
        found.update(gang.status())
        return found.get("phase") == "Training" and found["round"] >= number

    gang.wait_for(trains, PATIENCE)
    assert found["round"] == number, gang.describe()
    return found


@pytest.mark.slow_fault
def test_a_training_resumes_after_each_of_four_resizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFTRAINING_DIR", str(tmp_path / "job" / "run"))
    pattern = f"127.0.0.1:{free_decade()}%d"
    options = {"orders": str(tmp_path / "orders"), "workerAddress": pattern, "minReplicas": 1, "warmStart": True}
    with LocalGang(tmp_path, {"worker": 3}, **options) as gang:
        gang.command = [sys.executable, "-m", "tftraining.examples.multi_worker_mnist", "--epochs", "10000"]
        gang.command += ["--scale-learning-rate"]
        addresses = [pattern.replace("%d", str(index)) for index in range(3)]
        gang.cluster = {"worker": addresses[:2]}
        order(gang, workers=2)
        gang.start("worker-0", "worker-1")
        joined(gang, 1)
        gang.wait_for(lambda: gang.status()["progress"]["epoch"] >= 2, PATIENCE)

        order(gang, workers=3)
        gang.cluster = {"worker": addresses}
        gang.start("worker-2")
        report = [restart(joined(gang, 2), "Resized", 3)]

        gang.kill("worker-1")
        report.append(restart(joined(gang, 3), "MemberLost", 2))
        gang.start("worker-1")
        report.append(restart(joined(gang, 4), "Grown", 3))

        order(gang, workers=1)
        report.append(restart(joined(gang, 5), "Resized", 1))
        print(json.dumps(report))
        assert report == sorted(report, key=lambda each: each["epoch"])
        assert gang.status()["ledger"]["processFailures"] == 0
        assert {name: gang.status(name)["mode"] for name in gang.names} == dict.fromkeys(gang.names, "warm")


def restart(status: dict[str, Any], reason: str, size: int) -> dict[str, Any]:
    """What the last restart cost, after a look at what it was."""
    last = status["lastRestart"]
    assert (last["reason"], status["gang"]["size"]) == (reason, size), status
    assert last["resumedFromEpoch"] >= 1, "from a backup"
    assert last["lostSteps"] <= 2 * 70, "the epoch that it hit, at most"
    return {"reason": reason, "size": size, "epoch": last["resumedFromEpoch"], "seconds": last["downSeconds"]}
