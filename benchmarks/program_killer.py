"""A process that waits inside a pod to kill the pod's program.

A kubectl and a Python that start for each kill would slow down the measured recovery on a machine of two cores.
"""

import subprocess
from types import TracebackType
from typing import Self

from tests.support.cluster.training import Training

PROGRAM = (
    "import json, os, sys, time, urllib.request as u\n"
    "print('ready', flush=True)\n"
    "for line in sys.stdin:\n"
    "    pid = json.load(u.urlopen('http://127.0.0.1:8472/status'))['pid']; at = time.monotonic()\n"
    "    os.kill(pid, 9); print(at, flush=True)\n"
)


class Killer:
    """Waits in one pod, which must exist until the kill."""

    def __init__(self, training: Training, replica: str) -> None:
        where = ("--namespace", training.namespace, "--stdin", training.pod(replica), "--container=tensorflow")
        command = training.kube.command("exec", *where, "--", "python", "-c", PROGRAM)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._line()

    def kill(self) -> float:
        """Send SIGKILL to the program; the time of that (CLOCK_MONOTONIC). RuntimeError if the pod is gone."""
        assert self._process.stdin is not None
        self._process.stdin.write("now\n")
        self._process.stdin.flush()
        return float(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise RuntimeError("the pod of the program to kill no longer exists")
        return line

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.terminate()
        self._process.communicate()
