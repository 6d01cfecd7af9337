"""The children of a process, and the delivery of their exit statuses."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tftraining.launch.process import reaper


def test_children_with_and_without_the_kernels_list(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    try:
        assert child in reaper.children()

        def refuse(path: Path) -> None:
            raise FileNotFoundError(path)

        monkeypatch.setattr(Path, "iterdir", lambda path: refuse(path) if path.name == "task" else _entries(path))
        assert child in reaper.children()
    finally:
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)
    assert child not in reaper.children()


def _entries(path: Path) -> list[Path]:
    return [path / name for name in os.listdir(path)]  # noqa: PTH208  # iterdir is what is replaced here


@pytest.fixture
def child() -> Iterator[int]:
    """A process that waits."""
    child = os.fork()
    if not child:
        signal.pause()
        os._exit(0)
    yield child
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)


async def test_the_status_of_an_earlier_process_with_the_same_pid_is_dropped(child: int) -> None:
    ends = reaper.Reaper()
    ends.install()
    try:
        ends._deliver_status(child, 0)  # of an orphan whose number the kernel has given out again
        status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        ends.watch(child, status.set_result)
        await asyncio.sleep(0.05)
        assert not status.done()
        os.kill(child, signal.SIGKILL)
        assert await asyncio.wait_for(status, 5) == signal.SIGKILL
    finally:
        ends.uninstall()


async def test_an_exit_before_the_watch_is_delivered(child: int) -> None:
    ends = reaper.Reaper()
    ends.install()
    try:
        os.kill(child, signal.SIGKILL)
        while reaper.is_child(child):
            await ends.wait_for_exit(1)
        status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        ends.watch(child, status.set_result)
        assert await asyncio.wait_for(status, 5) == signal.SIGKILL
    finally:
        ends.uninstall()


@pytest.mark.parametrize("turns", range(6))
async def test_a_cancelled_wait_kills_no_process_of_the_next_program(turns: int) -> None:
    """The cancellation comes so many turns of the event loop after the exit that the wait is for."""
    waiter = reaper.Reaper()
    waiter.install()
    try:
        waiting = asyncio.ensure_future(waiter.wait_for_exit(60))
        await asyncio.sleep(0.01)
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222  # it ends at once
        waiter.reap()
        for _ in range(turns):
            await asyncio.sleep(0)
        if waiting.cancel():
            with pytest.raises(asyncio.CancelledError):
                await waiting
    finally:
        waiter.uninstall()
        reaper.prctl(reaper.PR_SET_CHILD_SUBREAPER, 0)


async def test_a_process_is_spared_until_it_has_ended(child: int) -> None:
    """Then another process may get its pid, one of the program."""
    ends = reaper.Reaper()
    ends.install()
    try:
        ends.spared.add(child)
        os.kill(child, signal.SIGKILL)
        await ends.wait_for_exit(10)
        assert ends.spared == set()
    finally:
        ends.uninstall()
