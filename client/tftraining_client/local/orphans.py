"""Processes that a killed launcher leaves behind. This process adopts them, so that they can be found and ended.

Only processes of this job are ever touched: those that this process has started, or that theirs have. Without Linux
nothing is adopted, and nothing found.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
PATIENCE = 5.0


def adopt() -> None:
    """From now on, become the parent of every descendant whose own parent dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans(ours: Collection[int]) -> None:
    """SIGKILL every adopted process, and those that it leaves in turn. `ours` are children that nobody left."""
    deadline = time.monotonic() + PATIENCE
    while (left := set(children()) - set(ours)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)


def children() -> list[int]:
    """The processes whose parent is this one (proc(5)); none where that cannot be told."""
    return [int(pid) for task in Path("/proc/self/task").glob("*/children") for pid in _read(task).split()]


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text()
    return ""
