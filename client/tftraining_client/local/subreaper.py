"""Orphans of a killed launcher: this process adopts them, so that it can find and kill them.

Only descendants of this process are ever killed. Systems other than Linux have no adoption: no orphan is found
there.
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


def become_subreaper() -> None:
    """Make this process the parent of every descendant whose own parent dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_orphans(ours: Collection[int]) -> None:
    """Kill every adopted process, and its orphans in turn. `ours` are children that are not orphans."""
    deadline = time.monotonic() + PATIENCE
    while (left := set(children()) - set(ours)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)


def children() -> list[int]:
    """The process IDs of the children of this process (proc(5)); none where /proc does not list them."""
    return [int(pid) for task in Path("/proc/self/task").glob("*/children") for pid in _read(task).split()]


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text()
    return ""
