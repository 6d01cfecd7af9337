"""Backups in memory outlive pods: real launchers and a stand-in program that makes copies."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.launchers.copying_gang import EVERY, STEPS, CopyingGang

ROOT = Path(__file__).parents[3]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., CopyingGang]]:
    """A function that starts a gang and waits until it has made copies."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    gangs: list[CopyingGang] = []

    def start(*arguments: str) -> CopyingGang:
        gangs.append(CopyingGang(tmp_path, *arguments))
        gangs[-1].start()
        gangs[-1].wait_for_step(100)
        return gangs[-1]

    yield start
    for gang in gangs:
        with gang:
            pass


@pytest.mark.parametrize("name", ["worker-1", pytest.param("worker-0", marks=pytest.mark.slow_fault)])
def test_a_new_pod_fetches_the_copy_from_a_peer(start: Callable[..., CopyingGang], name: str) -> None:
    gang = start()
    gang.delete_pods(name)
    reached = gang.steps()[-1]
    gang.start(name)
    gang.finish()
    other = "worker-1" if name == "worker-0" else "worker-0"
    assert [source for _, source in gang.resumptions(name)] == ["Peer"]
    assert [source for _, source in gang.resumptions(other)] == ["Memory"]
    assert gang.resumptions(name)[0][0] >= reached - 2 * EVERY
    assert "fetched the backup in memory of round 1" in gang.log(name)


def test_a_suspended_gang_resumes_from_the_storage_and_loses_no_step(start: Callable[..., CopyingGang]) -> None:
    gang = start()
    gang.delete_pods(*gang.names, number=signal.SIGTERM)
    stored = list((gang.directory / ".tftraining-memory").rglob("copy-*"))
    assert [path.name for path in stored] == [f"copy-1-{gang.steps()[-1]}"]
    gang.start()
    gang.finish()
    assert gang.steps() == list(range(1, STEPS + 1))
    assert [source for _, source in gang.resumptions("worker-0")] == ["Storage"]
    assert not (gang.directory / ".tftraining-memory").exists()  # the job has ended


@pytest.mark.slow_fault
@pytest.mark.parametrize("name", ["worker-1", "worker-0"])
def test_a_pod_that_is_asked_to_leave_loses_no_step(start: Callable[..., CopyingGang], name: str) -> None:
    gang = start()
    gang.delete_pods(name, number=signal.SIGTERM)
    gang.start(name)
    gang.finish()
    assert gang.steps() == list(range(1, STEPS + 1))


@pytest.mark.slow_fault
def test_a_container_that_restarts_takes_its_own_copies_over(start: Callable[..., CopyingGang]) -> None:
    gang = start()
    gang.kill("worker-1")
    reached = gang.steps()[-1]
    gang.start("worker-1")
    gang.finish()
    assert [source for _, source in gang.resumptions("worker-1")] == ["Memory"]
    assert gang.resumptions("worker-1")[0][0] >= reached - 2 * EVERY


@pytest.mark.slow_fault
def test_a_sender_that_is_killed_in_the_middle_of_a_transfer(start: Callable[..., CopyingGang]) -> None:
    gang = start("--size", "100000000", "--every", "64")
    gang.delete_pods("worker-1")
    gang.start("worker-1")
    gang.wait_for(lambda: list(gang.memory.glob("*-worker-1/fetch-*")))
    gang.kill("worker-0")  # its container restarts, and has its copies
    assert not list(gang.memory.glob("*-worker-1/copy-*"))
    gang.start("worker-0")
    gang.finish()
    assert gang.resumptions("worker-1")[0][1] == "Peer"


@pytest.mark.slow_fault
def test_a_new_pod_whose_memory_is_full_trains_without_a_copy(start: Callable[..., CopyingGang]) -> None:
    gang = start()
    gang.delete_pods("worker-1")
    told = {"mode": "Auto", "directory": str(gang.memory), "sizeLimit": 1000}
    gang.start("worker-1", memoryBackup=told)
    gang.wait_for(lambda: "cannot fetch the backup in memory" in gang.log("worker-1"))
    gang.finish()
    assert "begins at 0: the copy was not fetched" in gang.log("worker-1")


@pytest.mark.slow_fault
def test_pods_deleted_again_and_again(start: Callable[..., CopyingGang]) -> None:
    gang = start()
    for turn in range(4):
        name = gang.names[turn % 2]
        resumed = len(gang.resumptions(name))
        gang.delete_pods(name)
        gang.start(name)
        gang.wait_for_resumptions(name, resumed + 1)
        time.sleep(0.3)
    gang.finish()
    repeated = len(gang.steps()) - STEPS
    assert repeated <= 4 * 2 * EVERY
