"""Backups in memory outlive pods: real launchers and a stand-in program that makes copies.

A launcher that is killed takes its copies with it, as the pod of a deleted replica does.
"""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.launchers.gang import LocalGang

SHM = Path("/dev/shm")
PROGRAM = Path(__file__).parents[2] / "support" / "launchers" / "copying_standin.py"
EVERY = 16
ROOT = Path(__file__).parents[3]


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., LocalGang]]:
    """A function that starts two workers whose programs make copies."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    before = set(SHM.iterdir())
    gangs: list[LocalGang] = []

    def start(*arguments: str, **options: object) -> LocalGang:
        told = {"memoryBackup": {"mode": "Auto"}, "terminationGraceSeconds": 10, "memberTimeoutSeconds": 3, **options}
        gang = LocalGang(tmp_path, {"worker": 2}, **told)
        gang.command = [sys.executable, str(PROGRAM), str(gang.directory), *arguments]
        gangs.append(gang)
        gang.start()
        return gang

    yield start
    for gang in gangs:
        assert gang.violations() == ""
        with gang:
            pass
    for name in ("lasting", "temporary"):
        assert name
    left = [path for path in set(SHM.iterdir()) - before if path.name.startswith("tftraining-")]
    for path in left:  # of launchers that the test has killed
        assert (path / "lock").exists() or not any(path.iterdir())


def steps(gang: LocalGang, worker: int = 0) -> list[int]:
    path = gang.directory / f"steps-{worker}"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def resumptions(gang: LocalGang, name: str) -> list[tuple[int, str]]:
    """Step and source of every restored copy."""
    return [(int(step), source) for step, source in re.findall(r"resumed at (\d+) from (\w+)", gang.log(name))]


def wait_for_step(gang: LocalGang, step: int) -> None:
    gang.wait_for(lambda: steps(gang) and steps(gang)[-1] >= step)


def test_a_replaced_launcher_fetches_the_copy_from_its_peer(started: Callable[..., LocalGang]) -> None:
    gang = started("--steps", "400")
    wait_for_step(gang, 100)
    gang.kill("worker-1")
    reached = steps(gang)[-1]
    gang.start("worker-1")
    assert gang.wait() == {"worker-0": 0, "worker-1": 0}
    assert [source for _, source in resumptions(gang, "worker-1")] == ["Peer"]
    assert [source for _, source in resumptions(gang, "worker-0")] == ["Memory"]
    assert resumptions(gang, "worker-1")[0][0] >= reached - 2 * EVERY
    assert "fetched the backup in memory of round 1" in gang.log("worker-1")
    assert sorted(set(steps(gang))) == list(range(1, 401))


def test_a_replaced_launcher_of_the_chief_fetches_too(started: Callable[..., LocalGang]) -> None:
    gang = started("--steps", "400")
    wait_for_step(gang, 100)
    gang.kill("worker-0")
    gang.start("worker-0")
    assert gang.wait() == {"worker-0": 0, "worker-1": 0}
    assert [source for _, source in resumptions(gang, "worker-0")] == ["Peer"]


def test_a_member_that_is_asked_to_leave_loses_no_step(started: Callable[..., LocalGang]) -> None:
    gang = started("--steps", "400")
    wait_for_step(gang, 100)
    gang.kill("worker-1", signal.SIGTERM)
    gang.launchers["worker-1"].wait()
    gang.start("worker-1")
    assert gang.wait() == {"worker-0": 0, "worker-1": 0}
    assert steps(gang) == list(range(1, 401))


def test_a_gang_that_is_suspended_resumes_from_the_storage_and_loses_no_step(started: Callable[..., LocalGang]) -> None:
    gang = started("--steps", "400")
    wait_for_step(gang, 100)
    for name in gang.names:
        gang.kill(name, signal.SIGTERM)
    for launcher in gang.launchers.values():
        launcher.wait()
    stored = list((gang.directory / ".tftraining-memory").rglob("copy-*"))
    assert len(stored) == 1
    gang.start()
    assert gang.wait() == {"worker-0": 0, "worker-1": 0}
    assert steps(gang) == list(range(1, 401))
    assert [source for _, source in resumptions(gang, "worker-0")] == ["Storage"]
    assert not (gang.directory / ".tftraining-memory").exists()
