"""Killed launchers are replaced as pods are: the others wait, and the ledger survives."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.launchers.gang import LocalGang

ENDLESS = ("--epochs", "100000", "--steps", "10")


@pytest.mark.parametrize("victim", ["worker-0", pytest.param("worker-1", marks=pytest.mark.slow_fault)])
def test_a_killed_launcher_is_replaced(tmp_path: Path, victim: str) -> None:
    with LocalGang(tmp_path, {"worker": 3}, *ENDLESS) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        gang.kill_program("worker-2")
        gang.wait_for_phase("Training", 2)
        gang.kill(victim)
        gang.wait_for(lambda: gang.status("worker-2")["pid"] is None)
        time.sleep(0.5)
        gang.start(victim)
        status = gang.wait_for_phase("Training", 3)
        assert (status["lastRestart"]["member"], status["lastRestart"]["reason"]) == (victim, "MemberLost")
        assert (status["ledger"]["inPlace"], status["ledger"]["processFailures"]) == (1, 1)
        assert status["lastRestart"]["downSeconds"] >= 0.5
        assert not gang.violations()


def test_the_operators_ledger_is_merged(tmp_path: Path) -> None:
    known = {
        "inPlace": 4,
        "processFailures": 1,
        "podFailures": 2,
        "refilledAt": 1,
        "withoutProgress": 0,
        "incidents": 5,
    }
    with LocalGang(tmp_path, {"worker": 2}, *ENDLESS, maxRestarts=2, budgetReset="Never") as gang:
        gang.start("worker-0")
        gang.start("worker-1", ledger=known)
        assert gang.wait_for_phase("Training")["ledger"] == known
        gang.order("worker-0", "exit 1")
        assert gang.wait() == {"worker-0": 1, "worker-1": 1}
        assert gang.message("worker-1")["reason"] == "MaxRestartsExceeded"


def is_charged(gang: LocalGang, failures: int) -> bool:
    return bool(gang.status()["ledger"]["processFailures"] == failures)


def test_a_charge_survives_the_chiefs_launcher_in_the_back_off(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, "--epochs", "1", "--steps", "100000", maxRestarts=100) as gang:
        gang.start()
        for failures in (1, 2, 3):
            gang.wait_for_phase("Training", failures)
            gang.order("worker-1", "exit 1")
            gang.wait_for(partial(is_charged, gang, failures))
        gang.wait_for(lambda: gang.status("worker-1")["pid"] is None)
        gang.kill("worker-0")
        gang.start("worker-0")
        assert gang.wait_for_phase("Training", 4)["ledger"]["processFailures"] == 3


@pytest.mark.parametrize(
    ("workers", "told"), [(2, {}), (1, {"proven": True})], ids=["by the members", "by the operator"]
)
def test_a_new_chief_learns_that_steps_were_made(tmp_path: Path, workers: int, told: dict[str, bool]) -> None:
    broken, last = tmp_path / "broken", f"worker-{workers - 1}"
    script = f'[ $STANDIN = {last} ] && rm {broken} 2>/dev/null || exec "$@"; echo "ImportError: x" >&2; exit 1'
    with LocalGang(tmp_path, {"worker": workers}, "--epochs", "40", "--steps", "5") as gang:
        gang.command = ["sh", "-c", script, "sh", *gang.command]
        gang.start()
        gang.wait_for_phase("Training")
        broken.touch()
        gang.kill("worker-0")
        gang.start("worker-0", **told)
        assert set(gang.wait().values()) == {0}
        assert not broken.exists()
        assert gang.message("worker-0")["ledger"]["processFailures"] == 1


MOMENTS: dict[str, Callable[[LocalGang], object]] = {
    "before the rendezvous": lambda gang: None,
    "in the rendezvous": lambda gang: gang.wait_for(lambda: gang.get("worker-1", "/healthz")[0] == 200),
    "first step": lambda gang: gang.wait_for(lambda: len(gang.starts()) == 2),
    "saving": lambda gang: gang.wait_for((gang.directory / "epoch-worker-1").exists),
    "the last save": lambda gang: gang.wait_for(lambda: "done" in gang.log("worker-1")),
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("victim", ["worker-0", "worker-1"])
@pytest.mark.slow_fault
def test_a_launcher_is_killed_at_each_stage(tmp_path: Path, moment: str, victim: str) -> None:
    with LocalGang(tmp_path, {"worker": 2}, "--epochs", "3", "--steps", "5") as gang:
        gang.start()
        MOMENTS[moment](gang)
        gang.kill(victim)
        gang.start(victim)
        assert gang.wait() == {"worker-0": 0, "worker-1": 0}
        assert not gang.violations()


@pytest.mark.parametrize("victim", ["worker-0", "worker-1"])
@pytest.mark.slow_fault
def test_a_program_is_killed_before_its_first_step(tmp_path: Path, victim: str) -> None:
    with LocalGang(tmp_path, {"worker": 2}, "--epochs", "2", "--steps", "5", "--step-seconds", "0.1") as gang:
        gang.start()
        gang.kill_program(victim)
        assert gang.wait() == {"worker-0": 0, "worker-1": 0}
        assert gang.message("worker-1")["ledger"]["processFailures"] == 1
        assert not gang.violations()


def test_after_the_chiefs_success_a_killed_launcher_changes_nothing(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, "--epochs", "2", "--steps", "20") as gang:
        gang.order("worker-1", "hang")
        gang.start()
        assert gang.launchers["worker-0"].wait(20) == 0
        gang.kill("worker-1", signal.SIGKILL)
        gang.start("worker-1")
        assert gang.wait()["worker-1"] == 0
