"""The gang of benchmarks.lost_work: two launchers of this machine, whose programs (state_worker.py) write records."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import training_records
from benchmarks.training_records import Step
from tests.support.launchers.gang import LocalGang

PROGRAM = Path(__file__).with_name("state_worker.py")
MEMBERS = ("worker-0", "worker-1")
LOOK_SECONDS = 0.02
PATIENCE = 600.0
LONG_EPOCH = 1_000_000  # steps: BackupAndRestore makes no backup while a table is measured
COPIES = {"mode": "Auto", "maxOverheadPercent": 1, "sizeLimit": 8 * 2**30, "memoryLimit": None}
NO_COPIES = {"mode": "Off"}
REPORT = "report.json"  # of a program on its copies, in their directory
RESTORED = re.compile(r"resumed from memory at .*, in ([0-9.]+) s")


def say(line: str) -> None:
    """Print a line of progress at once."""
    print(line, flush=True)


class Gang:
    """Two launchers whose programs write records, to be killed and started again."""

    def __init__(self, local: LocalGang) -> None:
        self._local = local

    @property
    def directory(self) -> Path:
        """The directory of the records."""
        return self._local.directory

    def rounds(self, task: int = 0) -> list[list[Step]]:
        """The steps of a task, round by round."""
        return [*training_records.read(self.directory, task).values()]

    def programs(self) -> list[int]:
        """The process IDs of the programs."""
        return [self._local.pid(name) for name in MEMBERS]

    def processes(self) -> list[int]:
        """The process IDs of the programs and of their launchers."""
        return [*self.programs(), *(launcher.pid for launcher in self._local.launchers.values())]

    def signal(self, number: int) -> None:
        """Send a signal to all programs."""
        for pid in self.programs():
            os.kill(pid, number)

    def wait_for_steps(self, since: float, count: int = 1) -> float:
        """Wait until all members have made so many steps that began after `since`; the end of the last first one."""
        deadline = time.monotonic() + PATIENCE
        while True:
            made = [[step for step in self._newest(task) if step.begin > since] for task in range(len(MEMBERS))]
            if all(len(steps) >= count for steps in made):
                return max(steps[0].end for steps in made)
            if time.monotonic() > deadline or any(each.poll() is not None for each in self._local.launchers.values()):
                raise TimeoutError(f"not all members made {count} steps\n{self._local.describe()}")
            time.sleep(LOOK_SECONDS)

    def _newest(self, task: int) -> list[Step]:
        return next(reversed(self.rounds(task)), [])

    def wait_for_copies(self) -> None:
        """Wait until all members hold a copy in memory."""
        deadline = time.monotonic() + PATIENCE
        while not all(self._holds_copy(task) for task in range(len(MEMBERS))):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no copies\n{self._local.describe()}")
            time.sleep(0.1)

    def _holds_copy(self, task: int) -> bool:
        place = self.directory / f"memory-{task}"
        return place.exists() and any(Path(place.read_text()).glob("copy-*"))

    def report(self, task: int) -> dict[str, Any]:
        """The report of a task's program on its newest copy."""
        told: dict[str, Any] = json.loads((Path((self.directory / f"memory-{task}").read_text()) / REPORT).read_text())
        return told

    def copies_in(self, seconds: float) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Let the gang train so long, and until a newer copy at least; each task's report before and after."""
        before = [self.report(task) for task in range(len(MEMBERS))]
        deadline = time.monotonic() + PATIENCE
        time.sleep(seconds)
        while any(self.report(task)["step"] == before[task]["step"] for task in range(len(MEMBERS))):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no new copies\n{self._local.describe()}")
            time.sleep(LOOK_SECONDS)
        return [(first, self.report(task)) for task, first in enumerate(before)]

    def kill_program(self, name: str) -> float:
        """Send SIGKILL to a member's program; the time of that."""
        pid, at = self._local.pid(name), time.monotonic()
        os.kill(pid, signal.SIGKILL)
        return at

    def replace_launcher(self, name: str) -> float:
        """Kill a launcher, and with it its program, as with a deleted pod, and start another; the time of the kill."""
        at = time.monotonic()
        self._local.kill(name)
        self._local.start(name)
        return at

    def begins(self) -> list[float]:
        """The seconds that BackupAndRestore took to begin in the newest round, a restore included, in each task."""
        names = [[*training_records.read(self.directory, task)][-1] for task in range(len(MEMBERS))]
        return [float((self.directory / f"begin-{task}-{name}").read_text()) for task, name in enumerate(names)]

    def restores(self) -> list[float]:
        """The seconds in which the members have taken the values of their last copies, as their logs tell."""
        found = [RESTORED.findall(self._local.log(name)) for name in MEMBERS]
        return [float(seconds[-1]) for seconds in found if seconds]

    def stop(self) -> None:
        """End the launchers, so that they remove their files in memory."""
        for launcher in self._local.launchers.values():
            launcher.terminate()
        for launcher in self._local.launchers.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                launcher.wait(20)


@contextlib.contextmanager
def running(megabytes: float, copies: bool, epoch: int = LONG_EPOCH, *more: str) -> Iterator[Gang]:
    """Train with a state of this size until the end of the block; both members have made a step."""
    options = {"memoryBackup": COPIES if copies else NO_COPIES, "warmStart": True, "policy": {"maxRestarts": 100_000}}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lost-work-")))
        local = stack.enter_context(LocalGang(folder, {"worker": 2}, **options))
        local.command = [sys.executable, str(PROGRAM), str(local.directory), str(megabytes), str(epoch), *more]
        gang, began = Gang(local), time.monotonic()
        stack.callback(gang.stop)
        local.start()
        try:
            gang.wait_for_steps(began)
            yield gang
        except Exception:
            say(local.describe())
            raise
