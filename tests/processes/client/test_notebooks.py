"""The section *Notebooks* of docs/code.md: the cells of a training on this machine, one after the other in a process
with an event loop, and an interrupt at a prompt."""

import ast
import asyncio
import inspect
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.page_commands import blocks
from tests.support.repository import REPOSITORY

PATIENCE = 60.0


def cells() -> list[str]:
    """The cells up to the one that needs a cluster."""
    found = [block.text for block in blocks(REPOSITORY / "docs" / "code.md", "Notebooks") if block.language == "python"]
    first = next(number for number, text in enumerate(found) if "from_function" in text)
    return found[:first]


async def run(texts: list[str], names: dict[str, Any]) -> None:
    """Run the cells as a kernel does, which awaits a cell that awaits."""
    for number, text in enumerate(texts):
        code = compile(text, f"cell {number}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, names)
        if inspect.isawaitable(result):
            await result


@pytest.mark.slow_fault  # two workers import TensorFlow
def test_the_cells_train_beside_an_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    asyncio.run(run(cells(), names))
    printed = capsys.readouterr().out
    assert "worker-1 | " in printed, printed
    history = names["history"]
    assert [point.epoch for point in history.metrics["accuracy"]] == [1, 2, 3], printed
    assert history.metrics["accuracy"][-1].value > history.metrics["accuracy"][0].value
    assert list((tmp_path / "training").iterdir()) == [tmp_path / "training" / names["job"].name]


STEPS = """
from tftraining_client import from_function
def train(directory):
    import os, pathlib, time
    for number in range(10000):
        path = pathlib.Path(directory, "steps")
        path.write_text(f"{os.getpid()} {number}")
        time.sleep(0.05)

"""


class Prompt:
    """An interactive Python on a terminal."""

    def __init__(self, terminal: int, process: "subprocess.Popen[bytes]") -> None:
        self.terminal = terminal
        self.process = process

    def until(self, text: str) -> None:
        """Read what it prints, up to the text."""
        seen = b""
        while text.encode() not in seen:
            seen += os.read(self.terminal, 1 << 16)

    def enter(self, text: str) -> None:
        os.write(self.terminal, text.encode())


@contextmanager
def prompt(directory: Path) -> Iterator[Prompt]:
    ours, theirs = pty.openpty()
    command = ["setsid", "--ctty", sys.executable, "-i", "-c", STEPS]
    environment = {**os.environ, "TERM": "dumb", "TMPDIR": str(directory)}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=directory, env=environment)
    os.close(theirs)
    try:
        yield Prompt(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def step(directory: Path) -> tuple[int, int]:
    """The process of the function, and how far it is; zeros before it writes."""
    try:
        pid, number = (directory / "steps").read_text().split()
    except (OSError, ValueError):
        return 0, 0
    return int(pid), int(number)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow_fault
def test_an_interrupt_at_the_prompt_ends_the_cell_only_and_the_job_ends_with_the_prompt(tmp_path: Path) -> None:
    with prompt(tmp_path) as python:
        python.until(">>> ")
        python.enter(f"job = from_function(train, {str(tmp_path)!r}, workers=1, where='local').submit(); job.wait()\n")
        wait_until(lambda: step(tmp_path)[1] > 0)
        python.enter("\x03")
        python.until("KeyboardInterrupt")
        pid, before = step(tmp_path)
        # More than the second that a stop by Ctrl-C takes.
        wait_until(lambda: step(tmp_path)[1] > before + 60)
        assert step(tmp_path)[0] == pid
        python.process.send_signal(signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{pid}").exists())
