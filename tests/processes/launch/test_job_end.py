"""The end of a job by success, failure, deadline or signal: exit codes and what each launcher leaves."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.support.launchers.gang import LocalGang

ENDLESS = ("--epochs", "100000", "--steps", "10")


def test_failures_beyond_the_budget_end_the_job_everywhere(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, *ENDLESS, maxRestarts=1, budgetReset="Never") as gang:
        gang.start()
        gang.wait_for_phase("Training")
        gang.order("worker-1", "exit 3")
        gang.wait_for_phase("Training", 2)
        gang.order("worker-1", "exit 3")
        assert gang.wait() == {"worker-0": 1, "worker-1": 3}
        for name in gang.names:
            found = gang.message(name)
            assert (found["verdict"], found["reason"]) == ("Failed", "MaxRestartsExceeded")
            assert (found["member"], found["exitCode"], found["signal"]) == ("worker-1", 3, None)
            assert "worker-1 failed with exit code 3" in found["message"]
            assert found["ledger"]["processFailures"] == 1, "what ends the job is no restart"
            assert "worker-1 round 2" in (tmp_path / f"message-{name}").read_text()


@pytest.mark.parametrize(
    ("script", "reason"),
    [(None, "NotFound"), ("x = = 1\n", "SyntaxError"), ("import no_such_module\n", "ImportError")],
)
def test_a_fatal_exit_fails_the_job_at_once(tmp_path: Path, script: str | None, reason: str) -> None:
    with LocalGang(tmp_path, {"worker": 2}) as gang:
        if script is None:
            gang.command = ["no-such-command"]
        else:
            (tmp_path / "script.py").write_text(script)
            gang.command = [gang.command[0], str(tmp_path / "script.py")]
        gang.start()
        codes = gang.wait()
        assert set(codes.values()) <= {1, 127}
        assert set(codes.values()) != {0}
        found = gang.message("worker-0")
        assert (found["verdict"], found["reason"]) == ("Failed", reason)
        assert found["ledger"]["processFailures"] == 0
        assert "round 2" not in gang.log("worker-0")


@pytest.mark.slow_fault
def test_an_import_error_after_a_step_is_restarted(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, "--epochs", "4", "--steps", "10", "--step-seconds", "0.1") as gang:
        gang.start()
        gang.wait_for_phase("Training")
        gang.order("worker-1", "error ImportError: a plugin")
        assert gang.wait() == {"worker-0": 0, "worker-1": 0}
        assert gang.message("worker-0")["ledger"]["processFailures"] == 1


def test_hanging_storage_does_not_keep_a_launcher_from_ending(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 1}, "--epochs", "1") as gang:
        os.mkfifo(tmp_path / "message-worker-0")  # a write to it waits for a reader for ever
        gang.start()
        assert gang.wait() == {"worker-0": 0}
        log = gang.log("worker-0")
    assert "Traceback" not in log and "pending" not in log


def test_a_terminated_launcher_is_not_charged(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, *ENDLESS) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        gang.kill("worker-1", signal.SIGTERM)
        assert gang.launchers["worker-1"].wait(60) == 143
        found = gang.message("worker-1")
        assert (found["verdict"], found["reason"]) == ("", "Terminated")
        gang.wait_for(lambda: gang.status()["missing"] == ["worker-1"])
        status = gang.status()
        assert (status["phase"], status["lastRestart"]["reason"]) == ("Restarting", "Terminated")
        gang.start("worker-1")
        status = gang.wait_for_phase("Training", 2)
        assert (status["ledger"]["processFailures"], status["ledger"]["inPlace"]) == (0, 0)
        assert not gang.violations()


def test_the_chiefs_launcher_is_terminated(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, *ENDLESS) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        gang.kill("worker-0", signal.SIGTERM)
        assert gang.launchers["worker-0"].wait(60) == 143
        gang.wait_for(lambda: gang.status("worker-1")["state"] == "waiting")
        assert gang.status("worker-1")["pid"] is None
        gang.start("worker-0")
        status = gang.wait_for_phase("Training", 2)
        assert status["lastRestart"]["reason"] == "MemberLost"
        assert not gang.violations()


def test_a_gang_that_finds_an_earlier_success_ends_at_once(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, "--epochs", "1") as gang:
        gang.start()
        gang.wait()
        first = gang.starts()
        gang.start()
        assert gang.wait() == {"worker-0": 0, "worker-1": 0}
        assert gang.starts() == first
        assert gang.message("worker-1")["reason"] == "AlreadySucceeded"


@pytest.mark.slow_fault
def test_the_success_of_another_job_is_ignored(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 1}, "--epochs", "1") as gang:
        verdict = gang.directory / ".tftraining-verdict.json"
        verdict.write_text('{"version": 1, "uid": "another", "verdict": "Succeeded"}')
        gang.start()
        assert gang.wait() == {"worker-0": 0}
        assert len(gang.starts()) == 1
        assert gang.message("worker-0")["reason"] == "Succeeded"


def test_a_worker_without_a_chief_finds_the_recorded_success(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, "--epochs", "2", "--steps", "20", "--step-seconds", "0.04") as gang:
        gang.start()
        gang.wait_for_phase("Training")
        gang.kill("worker-1", signal.SIGSTOP)
        assert gang.launchers["worker-0"].wait(20) == 0
        gang.kill("worker-1", signal.SIGCONT)
        assert gang.wait()["worker-1"] == 0


def test_parameter_servers_and_the_evaluator_end_with_the_chief(tmp_path: Path) -> None:
    roles = {"chief": 1, "worker": 1, "ps": 1, "evaluator": 1}
    with LocalGang(tmp_path, roles, "--epochs", "4", "--steps", "40", evaluatorGraceSeconds=0.5) as gang:
        gang.start()
        gang.wait_for(lambda: gang.status().get("members", {}).get("evaluator-0", {}).get("state") == "running")
        gang.order("evaluator-0", "exit 1")
        assert gang.wait() == {"chief-0": 0, "worker-0": 0, "ps-0": 0, "evaluator-0": 0}
        numbers = {name: [n for who, n, _ in gang.starts() if who == name] for name in gang.names}
        assert numbers == {"chief-0": [1], "worker-0": [1], "ps-0": [1], "evaluator-0": [1, 2]}, gang.describe()


EVALUATOR = {"worker": 2, "evaluator": 1}


def evaluations(gang: LocalGang) -> int:
    """How often the evaluator's program was started."""
    return sum(name == "evaluator-0" for name, *_ in gang.starts())


@pytest.mark.parametrize(("ended", "started"), [("exit 0", 1), ("exit 1", 2)])
@pytest.mark.parametrize("alone", [False, pytest.param(True, marks=pytest.mark.slow_fault)])
def test_a_finished_evaluator_does_not_run_again_for_a_new_chief(
    tmp_path: Path, ended: str, started: int, alone: bool
) -> None:
    with LocalGang(tmp_path, EVALUATOR, *ENDLESS) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        gang.wait_for(lambda: evaluations(gang) == 1)
        if alone:
            gang.kill("worker-0")  # nobody hears of the evaluator's end
        gang.order("evaluator-0", ended)
        gang.wait_for(lambda: gang.status("evaluator-0")["pid"] is None or evaluations(gang) == started)
        if not alone:
            gang.wait_for(lambda: evaluations(gang) == started)
            gang.kill("worker-0")
        gang.start("worker-0")
        gang.wait_for_phase("Training", 2)
        gang.wait_for(lambda: evaluations(gang) == started)
        time.sleep(0.5)
        assert evaluations(gang) == started
        assert gang.status("evaluator-0")["state"] == ("done" if ended == "exit 0" else "running")


@pytest.mark.slow_fault
def test_a_new_launcher_of_a_finished_evaluator_learns_of_it(tmp_path: Path) -> None:
    with LocalGang(tmp_path, EVALUATOR, *ENDLESS) as gang:
        gang.start()
        gang.wait_for(lambda: evaluations(gang) == 1)
        gang.order("evaluator-0", "exit 0")
        gang.wait_for(lambda: gang.status()["members"]["evaluator-0"]["state"] == "done")
        for replaced in ("evaluator-0", "worker-0"):  # what the first is told by the chief's it tells the next one
            gang.kill(replaced)
            gang.start(replaced)
            gang.wait_for(lambda: gang.status("evaluator-0").get("state") == "done")
        gang.wait_for_phase("Training", 2)
        assert evaluations(gang) == 1


def test_the_start_deadline_names_the_missing_members(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 3}, startDeadlineSeconds=1) as gang:
        gang.start("worker-0", "worker-1")
        assert gang.wait() == {"worker-0": 1, "worker-1": 1}
        found = gang.message("worker-1")
        assert (found["verdict"], found["reason"]) == ("Failed", "StartDeadlineExceeded")
        assert found["message"].startswith("worker-2 did not connect within 1 s")
        assert gang.starts() == []


@pytest.mark.slow_fault
def test_a_full_disk_does_not_undo_a_success(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, "--epochs", "2") as gang:
        # Wherever the verdict goes first, there is a directory in its way.
        (gang.directory / ".tftraining-verdict.json").mkdir()
        gang.start()
        assert gang.wait() == {"worker-0": 0, "worker-1": 0}
        assert "cannot write the verdict" in gang.log("worker-0")


def test_a_port_in_use_is_named_and_bound_once_it_is_free(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, "--epochs", "2") as gang:
        with socket.create_server(("127.0.0.1", gang.rendezvous)):
            gang.start()
            time.sleep(1.0)
        assert gang.wait() == {"worker-0": 0, "worker-1": 0}


def test_an_open_request_at_the_end_leaves_no_traceback(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 1}, *ENDLESS) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        with socket.create_connection(("127.0.0.1", gang.ports["worker-0"])) as asking:
            asking.sendall(b"GET /status HTTP/1.1\r\n")  # and never the rest
            gang.wait_for(lambda: gang.get("worker-0", "/status")[0] == 200)  # the one before is accepted by now
            gang.order("worker-0", "exit 0")
            assert gang.wait() == {"worker-0": 0}
        assert "Traceback" not in gang.log("worker-0"), gang.log("worker-0")
