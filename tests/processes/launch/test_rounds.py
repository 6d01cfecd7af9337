"""Launchers meet, start together, restart in place when a program dies, and end together."""

from __future__ import annotations

from pathlib import Path

from tests.processes.launch.gang import Gang


def test_two_members_train_and_end_with_the_chief(tmp_path: Path) -> None:
    with Gang(tmp_path, {"worker": 2}) as gang:
        gang.start()
        assert gang.wait() == {"worker-0": 0, "worker-1": 0}
        assert {(name, number) for name, number, _ in gang.starts()} == {("worker-0", 1), ("worker-1", 1)}
        assert gang.message("worker-1")["verdict"] == "Succeeded"


def test_a_killed_program_costs_a_round(tmp_path: Path) -> None:
    with Gang(tmp_path, {"worker": 2}, "--epochs", "10", "--steps", "10", "--step-seconds", "0.01") as gang:
        gang.start()
        gang.wait_for_phase("Training")
        gang.kill_program("worker-1")
        status = gang.wait_for_phase("Training", 2)
        assert status["lastRestart"]["member"] == "worker-1"
        assert status["lastRestart"]["signal"] == 9
        assert status["ledger"]["processFailures"] == 1
        assert status["ledger"]["inPlace"] == 1
        assert gang.wait() == {"worker-0": 0, "worker-1": 0}
        assert not gang.violations()
