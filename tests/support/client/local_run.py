"""A `tftj run` as a process of its own, with the stand-in program; whatever it starts is found again and must be gone.

Must leave no process behind: all of a run are known by a variable in their environment.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import yaml

PATIENCE = 240.0  # seconds; everything waited for takes a few on an idle machine
MARK = "TFTJ_TEST"
STANDIN = Path(__file__).with_name("standin.py")


def manifest(*arguments: str, workers: int = 2, **spec: Any) -> dict[str, Any]:
    """A job of the stand-in program."""
    command = ["python", str(STANDIN), *arguments]
    return {
        "apiVersion": "tftraining.dev/v1",
        "kind": "TFTrainingJob",
        "metadata": {"name": "digits"},
        "spec": {
            "replicaSpecs": {"worker": {"replicas": workers}},
            "storage": {"volume": {"hostPath": {"path": "/nowhere"}}},
            "launcher": {"warmStart": False, "terminationGraceSeconds": 1},
            "template": {"spec": {"containers": [{"name": "tensorflow", "image": "none", "command": command}]}},
            **spec,
        },
    }


class Run:
    """One run of a manifest in a directory; `with` ends it. `others` are the objects beside the job in its file."""

    def __init__(
        self, directory: Path, job: dict[str, Any], *arguments: str, others: Sequence[dict[str, Any]] = ()
    ) -> None:
        self.directory = directory
        self.job = directory / "work" / job["metadata"]["name"]
        self._mark = uuid.uuid4().hex
        (directory / "job.yaml").write_text(yaml.safe_dump_all([*others, job]))
        words = ["run", str(directory / "job.yaml"), "--workdir", str(directory / "work"), *arguments]
        self._log = directory / "log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tftraining_client", *words],
                env={**os.environ, MARK: self._mark, "TMPDIR": str(directory)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)

    @property
    def log(self) -> str:
        """All that was printed so far."""
        return self._log.read_text()

    def wait(self) -> int:
        """The exit code, once it has ended by itself and has left no process and no file of its own."""
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {PATIENCE:.0f} s:\n{self.log}")
        assert self.processes() == [], self.log
        assert {each.name for each in self.directory.iterdir()} <= {"job.yaml", "work", "log"}, self.log
        return code

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until something was printed."""
        deadline = time.monotonic() + PATIENCE
        while (found := re.search(pattern, self.log, re.MULTILINE)) is None:
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.02)
        return found

    def processes(self) -> list[int]:
        """All processes of the run that are alive, but the first (proc(5))."""
        numbers = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
        return [pid for pid in numbers if self._is_ours(pid)]

    def _is_ours(self, pid: int) -> bool:
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            return f"{MARK}={self._mark}".encode() in environment and pid != self.process.pid and not _is_dead(pid)
        except OSError:
            return False

    def launcher(self, name: str) -> int:
        """The process of a replica's launcher."""
        return next(pid for pid in self.processes() if _is_launcher(pid) and _task(pid) == name)

    def program(self, name: str, module: str) -> int:
        """The process of a replica's program, which runs this module."""
        found = [pid for pid in self.processes() if not _is_launcher(pid) and _task(pid) == name]
        return next(pid for pid in found if module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes())


def _is_dead(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def _is_launcher(pid: int) -> bool:
    return b"tftraining_client.local.die_with_parent" in Path(f"/proc/{pid}/cmdline").read_bytes()


def _task(pid: int) -> str:
    variables = dict(each.partition("=")[::2] for each in Path(f"/proc/{pid}/environ").read_text().split("\0"))
    task = json.loads(variables["TF_CONFIG"])["task"]
    return f"{task['type']}-{task['index']}"
