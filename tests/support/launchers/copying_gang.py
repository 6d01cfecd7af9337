"""Launchers whose programs make copies for backups in memory, without TensorFlow."""

from __future__ import annotations

import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from tests.support.launchers.gang import LocalGang

PROGRAM = Path(__file__).with_name("copying_standin.py")
EVERY = 16  # steps between two copies
STEPS = 400


class CopyingGang(LocalGang):
    """Workers whose programs make copies, each in a volume of its own, as pods have one."""

    def __init__(self, place: Path, *arguments: str, workers: int = 2, **settings: Any) -> None:
        self.memory = place / "memory"
        told = {"mode": "Auto", "directory": str(self.memory)}
        roles = {"worker": workers}
        settings = {"terminationGraceSeconds": 20, "memberTimeoutSeconds": 3, **settings}
        super().__init__(place, roles, memoryBackup=told, **settings)
        self.command = [sys.executable, str(PROGRAM), str(self.directory), "--steps", str(STEPS), *arguments]

    def store(self, name: str) -> Path:
        """The volume of a member."""
        return next(self.memory.glob(f"*-{name}"))

    def delete_pods(self, *names: str, number: int = signal.SIGKILL) -> None:
        """End launchers; their volumes go with them."""
        for name in names:
            self.kill(name, number)
        for name in names:
            self.launchers[name].wait()
            shutil.rmtree(self.store(name), ignore_errors=True)

    def steps(self, worker: int = 0) -> list[int]:
        """All steps that a worker has made, those that were repeated included."""
        path = self.directory / f"steps-{worker}"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def wait_for_step(self, step: int) -> None:
        """Wait until the first worker has made this step."""
        self.wait_for(lambda: self.steps()[-1:] >= [step])

    def finish(self) -> None:
        """Wait for the end; every step has been made, and no wrong state was restored."""
        assert self.wait() == dict.fromkeys(self.names, 0)
        assert self.violations() == ""
        assert sorted(set(self.steps())) == list(range(1, STEPS + 1))
        assert list(self.memory.iterdir()) == []

    def resumptions(self, name: str) -> list[tuple[int, str]]:
        """Step and source of every restored copy."""
        return [(int(step), source) for step, source in re.findall(r"resumed at (\d+) from (\w+)", self.log(name))]

    def wait_for_resumptions(self, name: str, count: int) -> None:
        """Wait until a member's program has restored so many copies."""
        self.wait_for(lambda: len(self.resumptions(name)) >= count)
