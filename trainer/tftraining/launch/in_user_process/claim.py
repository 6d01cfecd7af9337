"""Determines which process of the program trains: the first that claims it, until that process ends.

The command may be a wrapper that starts the real program, and the real program may start data loaders. So the first
process that creates a multi-worker strategy, calls `fit` or reports takes a lock on the progress page. The kernel
releases the lock when the process ends or executes another program. A fork does not hold it.
"""

from __future__ import annotations

import fcntl
import os


class Claim:
    """A process's claim on the progress page at `path`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd: int | None = None
        self._held = self._connects = False
        os.register_at_fork(after_in_child=self._reset_after_fork)

    def try_hold(self) -> bool:
        """Take the claim if it is free; whether this process holds it. Every process does where files cannot be
        locked."""
        if not self._held:
            self._fd = self._lock()
            self._held = self._fd is not None
        return self._held

    def note_connecting(self) -> None:
        """Note that this process connects to its peers, which only one process of a container can."""
        self._connects = True
        self.try_hold()

    def takes_part(self) -> bool:
        """Whether this process joins its peers' collective decisions; they hang if one member does not."""
        return self._connects or self.try_hold()

    def _lock(self) -> int | None:
        """The file descriptor with the lock, -1 if the page cannot be opened, None if another process has the lock."""
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

    def _reset_after_fork(self) -> None:
        if self._fd is not None and self._fd >= 0:
            os.close(self._fd)
        self._fd, self._held, self._connects = None, False, False
