"""Programs under test with their exits, and helpers to read processes of this machine."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tftraining.launch.process.program import Exit, Program

T = TypeVar("T")
# Where the `python` of the programs lies: set it to see that another version is forked from as well.
PYTHONS = Path(os.environ.get("TFTRAINING_TEST_PYTHONS") or Path(sys.executable).parent)


class Harness:
    """Creates programs and collects their exits."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.programs: list[Program] = []
        self.exits: list[Exit] = []
        self.ended = asyncio.Event()

    def make(self, *command: str, grace: float = 5.0, warm: bool = False) -> Program:
        program = Program(command, warm=warm, grace=grace, directory=self.directory)
        self.programs.append(program)
        return program

    def on_exit(self, ended: Exit) -> None:
        self.exits.append(ended)
        self.ended.set()

    async def start(self, program: Program) -> None:
        self.ended.clear()
        await program.start(dict(os.environ), self.on_exit)

    async def end(self, program: Program, seconds: float = 20) -> Exit:
        await asyncio.wait_for(self.ended.wait(), seconds)
        return self.exits[-1]

    async def run(self, *command: str) -> Exit:
        program = self.make(*command)
        await self.start(program)
        return await self.end(program)

    async def close(self) -> None:
        while self.programs:
            await self.programs.pop().close()
        assert not list_pages(self.directory)


class Lab(Harness):
    """One script in a working directory, with stand-ins for TensorFlow in another."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.extra: dict[str, str] = {}
        self.work, self.modules = directory / "work", directory / "modules"
        for place in (self.work, self.modules):
            place.mkdir()
        self.tensorflow("")
        (self.modules / "tf_keras.py").write_text("")

    def tensorflow(self, text: str) -> None:
        (self.modules / "tensorflow.py").write_text(text)

    def script(self, text: str, name: str = "script.py") -> None:
        (self.work / name).write_text(text)

    def environment(self) -> dict[str, str]:
        return {**environment(self.modules), "OUT": str(self.directory), **self.extra}

    async def prepared(self, *command: str) -> Program:
        program = self.make(*(command or ("python", "script.py")), warm=True)
        await program.prepare(self.environment())
        return program

    async def go(self, program: Program) -> Exit:
        """Start the program and wait for its exit."""
        self.ended.clear()
        await program.start(self.environment(), self.on_exit)
        return await self.end(program)


@contextmanager
def stdin(text: str) -> Iterator[None]:
    """Replace this process's standard input."""
    source, sink = os.pipe()
    os.write(sink, text.encode())
    os.close(sink)
    with _replaced(0, source):
        yield


@contextmanager
def stderr(path: Path) -> Iterator[None]:
    """Replace this process's standard error by a file that can be read meanwhile (capfd truncates it)."""
    with _replaced(2, os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)):
        yield


@contextmanager
def _replaced(fd: int, by: int) -> Iterator[None]:
    """Replace a file descriptor by another one, which is closed."""
    kept = os.dup(fd)
    os.dup2(by, fd)
    os.close(by)
    try:
        yield
    finally:
        os.dup2(kept, fd)
        os.close(kept)


def environment(modules: Path) -> dict[str, str]:
    """The environment of `python` with `modules`, the stand-ins for TensorFlow, on its path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "COV"))}
    path = f"{PYTHONS}:{kept['PATH']}"
    return {**kept, "PATH": path, "PYTHONPATH": str(modules), "TF_CONFIG": "{}"}


def start_aside(command: Sequence[str | Path], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process that belongs to no Program."""
    return subprocess.Popen(command, env=env)


def succeeds(*command: str | Path) -> bool:
    """Whether a command exits with 0."""
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


def list_pages(directory: Path) -> list[Path]:
    return list(directory.glob("progress-*"))


def alive(pid: int) -> bool:
    """Whether a process exists and has not ended; a busy machine's init may take a while to ask for its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def children_of(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == pid:
                found.append(int(entry.name))
    return found


def line_of(path: Path) -> str | None:
    """The line that a program has written to `path`; None until it is complete."""
    text = path.read_text() if path.exists() else ""
    return text.strip() if text.endswith("\n") else None


async def until(look: Callable[[], T], what: str, seconds: float = 60) -> T:
    """The first true value that `look` returns."""
    deadline = time.monotonic() + seconds
    while not (found := look()):  # what is waited for happens in another process
        assert time.monotonic() < deadline, f"{what}: not in {seconds} s"
        await asyncio.sleep(0.005)
    return found


async def written(path: Path) -> str:
    """The line that a program writes to `path`, once it is complete."""
    return await until(lambda: line_of(path), f"{path} written") or ""
