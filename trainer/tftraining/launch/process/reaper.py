"""Waits for every child of this process, adopted ones too, and reports each end to its watcher.

The launcher is PID 1 in a container; elsewhere it makes itself a child subreaper, so it adopts the program's orphans
there as well. It must never leave a zombie, nor lose the end of a process that died before anybody watched it.
No other code in this process may wait for a child (no asyncio subprocesses).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from tftraining.launch.wait_for import wait_for

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
KEPT_STATUSES = 256  # exit statuses kept for a watcher that comes late


def prctl(option: int, value: int) -> bool:
    """Call prctl(2); False if it does not exist or fails."""
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0)
    except (AttributeError, OSError):
        return False


def children(parent: int | None = None) -> list[int]:
    """The children of a process (default: this one), zombies included; from a walk through /proc where the kernel has
    no list of children."""
    parent = parent or os.getpid()
    found: list[int] = []
    try:
        for task in Path(f"/proc/{parent}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    except OSError:
        return [pid for pid in _processes() if _parent(pid) == parent]
    return found


def descendants(ancestor: int) -> set[int]:
    """All descendants of a process."""
    parents = {pid: _parent(pid) for pid in _processes()}
    found = {ancestor}
    while new := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= new
    return found - {ancestor}


def is_child(pid: int) -> bool:
    """Whether `pid` is a child of this process, running or a zombie."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _processes() -> list[int]:
    try:
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    except OSError:
        return []


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        return 0


class Reaper:
    """Create it in the event loop's thread; call `install` before the first child starts."""

    def __init__(self) -> None:
        self.spared: set[int] = set()  # children that are no processes of the program, and outlive it
        self._watchers: dict[int, Callable[[int], None]] = {}
        self._unclaimed: OrderedDict[int, int] = OrderedDict()
        self._changed: asyncio.Event | None = None

    def install(self) -> None:
        """Adopt orphans from now on, and watch for the end of every child."""
        if self._changed is None:
            self._changed = asyncio.Event()
            prctl(PR_SET_CHILD_SUBREAPER, 1)
            asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self.reap)

    def uninstall(self) -> None:
        """Stop watching. Remaining children are the caller's concern."""
        if self._changed is not None:
            self._changed = None
            asyncio.get_running_loop().remove_signal_handler(signal.SIGCHLD)

    def watch(self, pid: int, ended: Callable[[int], None]) -> None:
        """Call `ended(status)` once when `pid` has ended, even if it has ended already."""
        status = self._unclaimed.pop(pid, None)
        if status is None or is_child(pid):  # a kept status of a pid that is a child now is an earlier process's
            self._watchers[pid] = ended
        else:
            asyncio.get_running_loop().call_soon(ended, status)

    def reap(self) -> None:
        """Collect every child that has ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._deliver_status(pid, status)

    def _deliver_status(self, pid: int, status: int) -> None:
        if self._changed is not None:
            self._changed.set()
        self.spared.discard(pid)  # another process may have the pid later
        if pid in self._watchers:
            self._watchers.pop(pid)(status)
            return
        self._unclaimed[pid] = status
        while len(self._unclaimed) > KEPT_STATUSES:
            self._unclaimed.popitem(last=False)

    async def wait_for_exit(self, limit: float) -> None:
        """Return once a child has ended since the last call, at the latest after `limit` seconds."""
        if self._changed is None:
            return
        with contextlib.suppress(asyncio.TimeoutError):
            await wait_for(self._changed.wait(), limit)
        if self._changed is not None:
            self._changed.clear()
