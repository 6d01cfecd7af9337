"""A job with parameter servers: which member restarts alone, which restarts the gang, and the order of the end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.launchers.gang import LocalGang

SERVERS = {"chief": 1, "worker": 2, "ps": 1}
ENDLESS = ("--serve", "--epochs", "100000")
MEMORY = Path("/sys/fs/cgroup/memory")
LIMIT = 200 << 20


def rounds(gang: LocalGang, name: str) -> list[int]:
    """The rounds in which a member's program was started."""
    return [number for who, number, _ in gang.starts() if who == name]


def test_a_killed_worker_restarts_alone(tmp_path: Path) -> None:
    with LocalGang(tmp_path, SERVERS, *ENDLESS, scope="Pod") as gang:
        gang.start()
        gang.wait_for_phase("Training")
        others = {name: gang.pid(name) for name in ("chief-0", "worker-0", "ps-0")}
        assert {gang.get(name, "/readyz") for name in gang.names} == {(200, "training\n")}
        gang.kill_program("worker-1")
        gang.wait_for(lambda: rounds(gang, "worker-1") == [1, 2])
        status = gang.wait_for_phase("Training", 2)
        assert {name: gang.pid(name) for name in others} == others
        assert (status["ledger"]["processFailures"], status["ledger"]["inPlace"]) == (1, 1)
        last = gang.wait_for(lambda: (found := gang.status()["lastRestart"])["downSeconds"] is not None and found)
        assert (last["member"], last["signal"], last["alone"]) == ("worker-1", 9, True)
        assert not gang.violations()


def test_a_workers_launcher_is_replaced_while_the_others_train(tmp_path: Path) -> None:
    with LocalGang(tmp_path, SERVERS, *ENDLESS, scope="Pod") as gang:
        gang.start()
        gang.wait_for_phase("Training")
        pid = gang.pid("chief-0")
        gang.kill("worker-1")
        gang.wait_for(lambda: gang.status()["reason"] == "MemberLost")
        gang.start("worker-1")
        gang.wait_for(lambda: rounds(gang, "worker-1") == [1, 2])
        assert (gang.pid("chief-0"), gang.status()["ledger"]["processFailures"]) == (pid, 0)
        assert not gang.violations()


@pytest.mark.slow_fault
def test_a_lost_parameter_server_restarts_the_gang(tmp_path: Path) -> None:
    with LocalGang(tmp_path, SERVERS, *ENDLESS, scope="Pod") as gang:
        gang.start()
        gang.wait_for_phase("Training")
        gang.kill_program("ps-0")
        status = gang.wait_for_phase("Training", 2)
        assert (status["lastRestart"]["member"], status["lastRestart"]["alone"]) == ("ps-0", False)
        assert {tuple(rounds(gang, name)) for name in gang.names} == {(1, 2)}
        assert not gang.violations()


def test_a_killed_evaluator_restarts_alone(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2, "evaluator": 1}, "--epochs", "100000") as gang:
        gang.start()
        gang.wait_for_phase("Training")
        pid = gang.pid("evaluator-0")
        gang.kill_program("evaluator-0")
        gang.wait_for(lambda: gang.status("evaluator-0").get("pid") not in (None, pid))
        status = gang.status()
        assert (status["round"], status["ledger"]["processFailures"], status["lastRestart"]) == (1, 0, None)


def test_parameter_servers_end_with_the_chief_and_the_evaluator_gets_its_grace(tmp_path: Path) -> None:
    roles = {**SERVERS, "evaluator": 1}
    arguments = ("--serve", "--epochs", "2", "--steps", "40")
    with LocalGang(
        tmp_path, roles, *arguments, scope="Pod", evaluatorGraceSeconds=4, terminationGraceSeconds=20
    ) as gang:
        gang.start()
        gang.wait_for(lambda: gang.status("evaluator-0").get("pid"))
        ended = {}
        for name in ("chief-0", "worker-0", "worker-1", "ps-0", "evaluator-0"):
            assert gang.launchers[name].wait(60) == 0, gang.describe()
            ended[name] = time.monotonic()
        assert ended["evaluator-0"] - ended["chief-0"] > 1.0


# Rules.


@pytest.mark.parametrize(
    ("rule", "order", "charges", "verdict", "reason"),
    [
        ({"action": "Ignore", "onExitCodes": [3]}, "exit 3", 0, "Succeeded", "Succeeded"),
        ({"action": "FailJob", "onExitCodes": [3], "role": "worker"}, "exit 3", 0, "Failed", "FailedByRule"),
        (
            {"action": "Restart", "onReasons": ["ImportError"]},
            "error ImportError: a plugin",
            1,
            "Succeeded",
            "Succeeded",
        ),
    ],
)
def test_the_action_of_a_restart_rule(
    tmp_path: Path, rule: dict[str, object], order: str, charges: int, verdict: str, reason: str
) -> None:
    with LocalGang(tmp_path, {"worker": 2}, "--epochs", "2", "--steps", "20", rules=[rule]) as gang:
        gang.order("worker-1", order)
        gang.start()
        codes = gang.wait()
        found = gang.message("worker-0")
        assert (found["verdict"], found["reason"], found["ledger"]["processFailures"]) == (verdict, reason, charges)
        assert codes == ({"worker-0": 0, "worker-1": 0} if verdict == "Succeeded" else {"worker-0": 1, "worker-1": 3})


# Memory.


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A memory cgroup with a limit, as a container has one."""
    if not os.access(MEMORY / "cgroup.procs", os.W_OK):
        pytest.skip("needs cgroup v1 and the right to make one")
    made = MEMORY / f"tftraining-test-{os.getpid()}"
    made.mkdir()
    (made / "memory.limit_in_bytes").write_text(str(LIMIT))
    yield made
    made.rmdir()


def test_a_program_that_runs_out_of_memory(tmp_path: Path, cgroup: Path) -> None:
    """Only the program dies, and its launcher, which is in the same cgroup, knows why."""
    rule = {"action": "FailJob", "onReasons": ["OOMKilled"]}
    with LocalGang(tmp_path, {"worker": 2}, "--epochs", "100000", rules=[rule]) as gang:
        gang.wrappers["worker-1"] = ["sh", "-c", f'echo $$ > {cgroup}/cgroup.procs && exec "$@"', "sh"]
        gang.start()
        gang.wait_for_phase("Training")
        gang.order("worker-1", "eat")
        codes = gang.wait()
        found = gang.message("worker-0")
        assert (found["reason"], found["member"], found["signal"]) == ("FailedByRule", "worker-1", signal.SIGKILL)
        assert found["message"].startswith("worker-1 ran out of memory (OOMKilled)")
        assert codes["worker-1"] == 137
