"""Which process of the program is the one that trains: the first that asks, as long as it lives.

The command may be a wrapper that starts the real program, and the real program may start others that load data. So the
process that creates a multi-worker strategy, calls `fit` or reports first holds a lock of the progress page, which the
kernel gives back when the process ends or executes another program. A fork does not hold it.
"""

from __future__ import annotations

import fcntl
import os


class Claim:
    """The one of a process, on the page at `path`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd: int | None = None
        self._held = self._dials = False
        os.register_at_fork(after_in_child=self._forget)

    def holds(self) -> bool:
        """Whether it is this process, which it is from now on if nobody else is. Where a lock cannot be had at all
        every process is, for nobody can tell."""
        if not self._held:
            self._fd = self._lock()
            self._held = self._fd is not None
        return self._held

    def dials(self) -> None:
        """This process connects to its peers: nobody else in this container can."""
        self._dials = True
        self.holds()

    def takes_part(self) -> bool:
        """Whether this process decides with its peers: if one of a gang did not, the others would wait for it."""
        return self._dials or self.holds()

    def _lock(self) -> int | None:
        """The open file with the lock, -1 if nothing can be locked, None if another process has the lock."""
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return -1
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except OSError:
            pass
        return fd

    def _forget(self) -> None:
        if self._fd is not None and self._fd >= 0:
            os.close(self._fd)
        self._fd, self._held, self._dials = None, False, False
