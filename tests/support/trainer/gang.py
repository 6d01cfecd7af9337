"""Real workers of one job as processes of this machine, to be killed and started again as the operator does it.

Must leave no process behind: every worker is the leader of its own process group, and the group is killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from tests.support.ports import free_ports

PATIENCE = 120.0  # seconds; everything waited for takes a few on an idle machine

PROGRAM = ("-m", "tftraining.examples.multi_worker_mnist")


class Gang:
    """The workers of a job with one directory; `with` ends them all."""

    def __init__(self, directory: Path, arguments: list[str], size: int = 2, operated: bool = True) -> None:
        self.directory = directory
        self.arguments = arguments
        self.operated = operated
        self.addresses = [f"127.0.0.1:{port}" for port in free_ports(size)]
        self.workers: list[subprocess.Popen[bytes]] = []
        self.attempt = 0

    def __enter__(self) -> Gang:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill_all()

    def start(self) -> None:
        """Start every worker, with the same TF_CONFIG each time."""
        self.attempt += 1
        self.workers = [self._start(index) for index in range(len(self.addresses))]

    def _start(self, index: int) -> subprocess.Popen[bytes]:
        config = {"cluster": {"worker": self.addresses}, "task": {"type": "worker", "index": index}}
        environment = {key: value for key, value in os.environ.items() if key != "TFTRAINING_DIR"}
        environment["TF_CONFIG"] = json.dumps(config)
        environment["TMPDIR"] = str(
            self.directory.parent
        )  # TensorFlow's files that a SIGKILL leaves go with the test's
        if self.operated:
            environment["TFTRAINING_DIR"] = str(self.directory)
        places = [] if self.operated else ["--directory", str(self.directory)]
        with self._log(index, "out").open("wb") as out, self._log(index, "err").open("wb") as err:
            return subprocess.Popen(
                [sys.executable, *PROGRAM, *self.arguments, *places],
                env=environment,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def _log(self, index: int, kind: str) -> Path:
        return self.directory.parent / f"{kind}-{self.attempt}-{index}"

    def lines(self, index: int) -> list[str]:
        """What a worker of the present attempt has printed so far."""
        return self._log(index, "out").read_text().splitlines()

    def errors(self, index: int) -> str:
        """The standard error output of a worker of the present attempt."""
        return self._log(index, "err").read_text()

    def wait_for_line(self, index: int, start: str) -> None:
        """Wait until a worker has printed a line that begins so."""
        deadline = time.monotonic() + PATIENCE
        while not any(line.startswith(start) for line in self.lines(index)):
            ended = self.workers[index].poll()
            assert ended is None, f"worker {index} ended ({ended}) before {start!r}:\n{self.errors(index)[-2000:]}"
            assert time.monotonic() < deadline, f"worker {index} never printed {start!r}: {self.lines(index)}"
            time.sleep(0.05)

    def wait_for_saves(self, number: int) -> None:
        """Wait until the chief has saved so many more times."""
        deadline, seen = time.monotonic() + PATIENCE, self._saved()
        while number > 0:
            assert time.monotonic() < deadline, f"{number} more saves never came:\n{self.errors(0)[-2000:]}"
            time.sleep(0.01)
            if (now := self._saved()) != seen:
                seen, number = now, number - 1

    def _saved(self) -> list[str]:
        """Which checkpoint is the latest, as TensorFlow notes it in each place where the chief saves."""
        walk = os.walk(self.directory)  # what vanishes meanwhile is left out
        places = [Path(root, "checkpoint") for root, _, files in walk if "checkpoint" in files]
        return [path.read_text().partition("\n")[0] for path in places if "workertemp_" not in str(path)]

    def wait(self) -> list[int]:
        """The exit codes of all workers, once they have ended by themselves."""
        deadline = time.monotonic() + PATIENCE
        return [worker.wait(timeout=max(deadline - time.monotonic(), 0.1)) for worker in self.workers]

    def kill(self, index: int) -> None:
        """SIGKILL one worker and what it has started."""
        if self.workers[index].poll() is None:
            os.killpg(self.workers[index].pid, signal.SIGKILL)
        self.workers[index].wait()

    @contextmanager
    def stopped(self, index: int) -> Iterator[None]:
        """SIGSTOP one worker for a while."""
        os.killpg(self.workers[index].pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.workers[index].pid, signal.SIGCONT)

    def kill_all(self) -> None:
        """SIGKILL every worker that is still there, as a gang restart does."""
        for index in range(len(self.workers)):
            self.kill(index)
