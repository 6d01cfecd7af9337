"""The directory in memory in which the program backs up its state; it outlives the program, not the launcher.

It is in /dev/shm. A lock marks it as in use: what a killed launcher has left is removed by the next one of that user.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from pathlib import Path

from tftraining.launch.in_user_process import memory_copy

PLACE = Path("/dev/shm")
PREFIX = "tftraining-memory-"
LOCK = "lock"


class MemoryStore:
    """The directory of one launcher; `percent` is the share of the time that copies may block the training."""

    def __init__(self, percent: float, place: Path = PLACE) -> None:
        """OSError if the place does not exist or cannot be written."""
        remove_abandoned(place)
        self._percent = percent
        unlocked = Path(tempfile.mkdtemp(prefix="tftraining-new-", dir=place))
        self._lock = _locked(unlocked, create=True)
        # Named only now: without its lock another launcher of this machine would take it for abandoned.
        self._directory = unlocked.rename(place / f"{PREFIX}{unlocked.name.rpartition('-')[2]}")

    def held(self) -> list[list[int]]:
        """Round and step of every complete copy, for a frame. Ask only while no program runs."""
        return [list(each) for each in memory_copy.held(str(self._directory))]

    def variables(self, restore: object) -> dict[str, str]:
        """The program's variable; `restore` is the copy that all members hold, as the chief's launcher says."""
        told = {"directory": str(self._directory), "percent": self._percent, "restore": restore}
        return {memory_copy.VARIABLE: json.dumps(told)}

    def close(self) -> None:
        """Remove the directory with all copies. A second call does nothing."""
        shutil.rmtree(self._directory, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def remove_abandoned(place: Path) -> None:
    """Remove the directories of launchers that do not run any more. Never raises."""
    with contextlib.suppress(OSError):
        for directory in place.glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):
                if (lock := _locked(directory, create=False)) is not None:
                    shutil.rmtree(directory, ignore_errors=True)
                    os.close(lock)


def _locked(directory: Path, *, create: bool) -> int | None:
    """The descriptor that holds the directory's lock; None if another process holds it. OSError if there is no lock."""
    fd = os.open(directory / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0), 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd
