"""successPolicy AllWorkers: finished members wait for the others, and run again only if one of them fails."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.launchers.gang import LocalGang

SHORT = ("--epochs", "2", "--steps", "25", "--step-seconds", "0.05")
POLICY = {"successPolicy": "AllWorkers"}
MEMBERS = ("worker-0", "worker-1")


def wait_until_one_has_finished(gang: LocalGang, other: str) -> str:
    """Hold the program of `other` until the one of its peer has ended; the peer."""
    gang.wait_for(lambda: rounds(gang)[other])
    gang.kill_program(other, signal.SIGSTOP)
    peer = next(name for name in gang.names if name != other)
    gang.wait_for(lambda: gang.status(peer).get("state") == "done")
    gang.wait_for(lambda: gang.status()["members"][peer]["state"] == "done")
    return peer


def verdict(gang: LocalGang) -> bool:
    """Whether the job's directory says that it has succeeded."""
    return (gang.directory / ".tftraining-verdict.json").exists()


def rounds(gang: LocalGang) -> dict[str, list[int]]:
    return {name: [number for who, number, _ in gang.starts() if who == name] for name in gang.names}


def test_a_finished_member_waits_without_a_program(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"chief": 1, "worker": 1, "ps": 1}, *SHORT, **POLICY) as gang:
        gang.start()
        gang.wait_for(lambda: rounds(gang)["worker-0"])
        gang.kill_program("worker-0", signal.SIGSTOP)
        gang.wait_for(lambda: gang.status().get("state") == "done")
        status = gang.wait_for_phase("Training")
        assert (status["pid"], status["message"]) == (None, "all members training; chief-0 has finished")
        assert gang.get("chief-0", "/readyz") == (200, "training\n")
        assert not verdict(gang)
        gang.kill_program("worker-0", signal.SIGCONT)
        assert gang.wait() == dict.fromkeys(gang.names, 0)
        assert verdict(gang)
        assert rounds(gang) == {name: [1] for name in gang.names}
        assert gang.message("worker-0")["message"] == "every chief and worker has succeeded"


@pytest.mark.parametrize("victim", MEMBERS)
def test_a_failure_after_a_success_restarts_both_members_in_place(tmp_path: Path, victim: str) -> None:
    with LocalGang(tmp_path, {"worker": 2}, *SHORT, **POLICY) as gang:
        gang.start()
        peer = wait_until_one_has_finished(gang, victim)
        assert not verdict(gang)
        gang.kill_program(victim)
        assert gang.wait() == {"worker-0": 0, "worker-1": 0}
        assert rounds(gang) == {"worker-0": [1, 2], "worker-1": [1, 2]}
        assert gang.log(peer).count(f"{peer} done") == 2, "it finds its work done"
        ledger = gang.message("worker-0")["ledger"]
        assert (ledger["processFailures"], ledger["inPlace"]) == (1, 1)
        assert verdict(gang) and not gang.violations()


def test_a_failure_beyond_the_budget_fails_the_job_even_after_the_chiefs_success(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, *SHORT, maxRestarts=0, **POLICY) as gang:
        gang.start()
        wait_until_one_has_finished(gang, "worker-1")
        gang.kill_program("worker-1")
        assert gang.wait() == {"worker-0": 1, "worker-1": 137}
        assert gang.message("worker-0")["reason"] == "MaxRestartsExceeded"
        assert not verdict(gang)


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow_fault)])
def test_a_new_launcher_of_a_finished_worker_learns_of_it(tmp_path: Path, how: signal.Signals) -> None:
    with LocalGang(tmp_path, {"worker": 2}, *SHORT, **POLICY) as gang:
        gang.start()
        wait_until_one_has_finished(gang, "worker-0")
        gang.kill("worker-1", how)
        gang.launchers["worker-1"].wait(60)
        gang.start("worker-1")
        gang.wait_for(lambda: gang.status("worker-1").get("state") == "done")
        assert gang.get("worker-1", "/readyz") == (200, "training\n")
        gang.kill_program("worker-0", signal.SIGCONT)
        assert gang.wait() == {"worker-0": 0, "worker-1": 0}
        assert rounds(gang) == {"worker-0": [1], "worker-1": [1]}


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow_fault)])
def test_losing_the_chiefs_launcher_after_the_chiefs_success(tmp_path: Path, how: signal.Signals) -> None:
    with LocalGang(tmp_path, {"worker": 2}, *SHORT, **POLICY) as gang:
        gang.start()
        wait_until_one_has_finished(gang, "worker-1")
        gang.kill("worker-0", how)
        gang.launchers["worker-0"].wait(60)
        gang.start("worker-0")
        assert gang.wait() == {"worker-0": 0, "worker-1": 0}
        assert rounds(gang) == {"worker-0": [1, 2], "worker-1": [1, 2]}
        assert gang.message("worker-1")["ledger"]["processFailures"] == 0
        assert verdict(gang) and not gang.violations()
