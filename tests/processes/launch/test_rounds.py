"""Launchers meet, start together, restart in place after a killed program, and end together."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.support.launchers.gang import LocalGang


def test_a_killed_program_restarts_the_gang_which_ends_with_the_chief(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, "--epochs", "10", "--steps", "10", "--step-seconds", "0.03") as gang:
        gang.start()
        gang.wait_for_phase("Training")
        gang.kill_program("worker-1")
        status = gang.wait_for_phase("Training", 2)
        assert status["lastRestart"]["member"] == "worker-1"
        assert status["lastRestart"]["signal"] == 9
        assert status["ledger"]["processFailures"] == 1
        assert status["ledger"]["inPlace"] == 1
        assert gang.wait() == {"worker-0": 0, "worker-1": 0}
        assert {(name, number) for name, number, _ in gang.starts()} == {(n, r) for n in gang.names for r in (1, 2)}
        assert gang.message("worker-1")["verdict"] == "Succeeded"
        last = gang.message("worker-0")["progress"]
        assert last["epoch"] == last["epochs"] > 0
        assert not gang.violations()


def test_the_pages_of_a_launcher(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, "--epochs", "100000") as gang:
        gang.start("worker-0")
        gang.wait_for(lambda: gang.get("worker-0", "/healthz") == (200, "ok\n"))
        assert gang.get("worker-0", "/readyz") == (503, "waiting for the gang to start\n")
        gang.wait_for(lambda: gang.status()["missing"] == ["worker-1"])
        assert (gang.status()["phase"], gang.status()["message"]) == ("Waiting", "waiting for worker-1")
        gang.start("worker-1")
        gang.wait_for_phase("Training")
        for name in gang.names:
            gang.wait_for(partial(is_ready, gang, name))
        labels = 'job_name="job",job_namespace="tests",member="worker-0"'
        assert f"tftraining_training{{{labels}}} 1" in gang.get("worker-0", "/metrics")[1]
        assert "tftraining_progress_step" in gang.get("worker-1", "/metrics")[1]
        assert gang.get("worker-0", "/nothing")[0] == 404
        assert gang.status("worker-1")["chief"] is False


def is_ready(gang: LocalGang, name: str) -> bool:
    return gang.get(name, "/readyz") == (200, "training\n")


@pytest.mark.parametrize("late", ["worker-0", "worker-1"], ids=["the chief", "a member"])
def test_a_pod_that_a_kubelet_gave_the_key_of_an_earlier_secret(tmp_path: Path, late: str) -> None:
    """The file has the key of the others a minute later; only a launcher that reads it again meets them."""
    [other] = {"worker-0", "worker-1"} - {late}
    with LocalGang(tmp_path, {"worker": 2}) as gang:
        gang.start(late)
        gang.wait_for(lambda: gang.get(late, "/healthz") == (200, "ok\n"))
        gang.secret.write_bytes(b"the key of the Secret that was made since")
        gang.start(other)
        assert gang.wait() == {"worker-0": 0, "worker-1": 0}
