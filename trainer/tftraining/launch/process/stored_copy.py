"""A copy of the training state in the job's directory, for a gang all of whose members end: a suspension, a drain.

The directory may be shared storage that is slow or hangs: all functions block, so call them in a thread and with a
timeout. A copy counts only for the job that made it. At most one per job is there; that of a job which was deleted
meanwhile goes when the directory is used again after FORGOTTEN_SECONDS. Beside it lies `crc32-<round>-<step>`, so that
no copy whose bytes the storage has changed is loaded; a launcher of an earlier version has written none.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

from tftraining.launch.in_user_process.memory_backup import copy_file
from tftraining.launch.process.copy_files import IncomingCopy, Name, OutgoingCopy

PLACE = ".tftraining-memory"
FORGOTTEN_SECONDS = 30 * 86_400.0
_INCOMPLETE = "new"


class StoredCopy:
    """The copy of the job `uid` in the job's directory."""

    def __init__(self, directory: Path, uid: str) -> None:
        self._place = directory / PLACE
        self._own = self._place / uid

    def find(self) -> Name | None:
        """Round and step of the newest complete copy; None without one. OSError if the storage cannot be read."""
        with contextlib.suppress(FileNotFoundError):
            return max(copy_file.complete(str(self._own)), default=None)
        return None

    def save(self, store: Path, name: Name, abandoned: threading.Event) -> None:
        """Store the copy of that name, then remove older ones. OSError or ValueError if that fails."""
        self._own.mkdir(parents=True, exist_ok=True)
        if self.find() == name:
            return
        checksum = self._checksum(name)
        _transfer(store, self._own, name, abandoned, lambda found: _write(checksum, found), durable=True)
        for path in self._own.iterdir():
            if path.name not in (copy_file.name_of(*name), checksum.name):
                path.unlink(missing_ok=True)
        self._remove_forgotten()

    def load(self, store: Path, name: Name, abandoned: threading.Event) -> None:
        """Load the copy of that name into the launcher's store. OSError or ValueError if that fails."""
        _transfer(self._own, store, name, abandoned, lambda found: _verify(self._checksum(name), found), durable=False)

    def _checksum(self, name: Name) -> Path:
        return self._own / f"crc32-{name[0]}-{name[1]}"

    def remove_suspects(self, first: Mapping[int, int]) -> None:
        """Remove the copy if it is one of these rounds, of this step or later. OSError if that fails."""
        name = self.find()
        if name is not None and name[1] >= first.get(name[0], name[1] + 1):
            self.remove()

    def remove(self) -> None:
        """Remove the copy, because the job has ended. OSError if that fails."""
        _remove(self._own)
        with contextlib.suppress(OSError):
            self._place.rmdir()  # unless another job has a copy there

    def _remove_forgotten(self) -> None:
        """Remove copies of other jobs that are too old to be resumed from. A directory's time is that of its copy."""
        with contextlib.suppress(OSError):
            for path in self._place.iterdir():
                if path != self._own and path.is_dir() and time.time() - path.stat().st_mtime > FORGOTTEN_SECONDS:
                    _remove(path)


def _write(path: Path, checksum: int) -> None:
    with path.open("w") as file:
        file.write(str(checksum))
        file.flush()
        os.fsync(file.fileno())


def _verify(path: Path, checksum: int) -> None:
    """ValueError if the stored copy had another checksum when it was written."""
    with contextlib.suppress(FileNotFoundError):
        if path.read_text(errors="replace") != str(checksum):
            raise ValueError("the storage has changed its bytes")


def _transfer(
    source: Path,
    target: Path,
    name: Name,
    abandoned: threading.Event,
    check: Callable[[int], None],
    *,
    durable: bool,
) -> None:
    """Copy a copy, and `check` its checksum before it has a name. It ends early, with an OSError, when nobody waits for
    it any more."""
    outgoing = OutgoingCopy(source, name)
    try:
        outgoing.open()
        incoming = IncomingCopy(target, name, outgoing.size, _INCOMPLETE)
        try:
            incoming.create() if durable else incoming.reserve()
            missing, sent, checksum = 1, 0, 0
            while missing:
                if abandoned.is_set():
                    raise TimeoutError("it took too long")
                data = outgoing.read(sent)
                sent, missing, checksum = sent + len(data), incoming.write(data), zlib.crc32(data, checksum)
            check(checksum)
            incoming.complete(durable=durable)
        finally:
            incoming.close()
    finally:
        outgoing.close()


def _remove(directory: Path) -> None:
    """Remove a directory with the files in it, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        for path in directory.iterdir():
            path.unlink(missing_ok=True)
        directory.rmdir()
