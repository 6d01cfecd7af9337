"""The file of a copy of the training state while a launcher sends, receives, stores or loads it.

A program that trains overwrites its older copy, whose file it renames first: what has been read under a name that still
holds is whole. A copy that arrives has its memory reserved, and gets its name when it is complete. All functions block:
call them in a thread.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from tftraining.launch.in_user_process.memory_backup import copy_file

Name = tuple[int, int]  # round and step
CHUNK_BYTES = 256 * 1024


class CopyGoneError(OSError):
    """The copy is overwritten, or removed."""


class OutgoingCopy:
    """A complete copy, for reading; `size` is that of the file, once it is open."""

    def __init__(self, directory: Path, name: Name) -> None:
        self.size = 0
        self._path = directory / copy_file.name_of(*name)
        self._fd = -1
        self._file = (0, 0)

    def open(self) -> None:
        """Open the file. OSError if there is no such copy."""
        self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        found = os.fstat(self._fd)
        self._file, self.size = (found.st_dev, found.st_ino), found.st_size
        if not stat.S_ISREG(found.st_mode) or self.size < copy_file.HEAD:
            raise CopyGoneError(f"{self._path.name} is no copy")

    def read(self, offset: int) -> bytes:
        """The bytes from `offset` on, CHUNK_BYTES or fewer; CopyGoneError if they may be of a newer copy."""
        data = os.pread(self._fd, CHUNK_BYTES, offset)
        try:
            found = self._path.lstat()
        except FileNotFoundError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self._file or not data:
            raise CopyGoneError(f"{self._path.name} was overwritten or removed meanwhile")
        return data

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class IncomingCopy:
    """A copy of `size` bytes that arrives in order, as the file `temporary` until it is complete. Always `close` it."""

    def __init__(self, directory: Path, name: Name, size: int, temporary: str) -> None:
        self._path, self._final = directory / temporary, directory / copy_file.name_of(*name)
        self._size, self._written = size, 0
        self._fd = -1

    def create(self) -> None:
        """Create the file. OSError if that fails."""
        self._path.unlink(missing_ok=True)
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def reserve(self) -> None:
        """Create the file, and reserve its space: the program maps it, and writes into it later. OSError if there is
        too little. Network storage may be slow at this, and needs it not."""
        self.create()
        os.posix_fallocate(self._fd, 0, self._size)

    def write(self, data: bytes) -> int:
        """Add bytes; how many are missing. ValueError if these are too many."""
        if len(data) > self._size - self._written:
            raise ValueError("the copy is longer than announced")
        view = memoryview(data)
        while view:
            done = os.pwrite(self._fd, view, self._written)
            self._written, view = self._written + done, view[done:]
        return self._size - self._written

    def complete(self, *, durable: bool = False) -> None:
        """Give the copy its name. `durable`: it survives a crash of the machine. ValueError if it is no whole copy."""
        if self._written != self._size or os.pread(self._fd, len(copy_file.MAGIC), 0) != copy_file.MAGIC:
            raise ValueError("it is no complete copy of this version")
        if durable:
            os.fsync(self._fd)
        self._path.rename(self._final)
        os.close(self._fd)
        self._fd = -1

    def close(self) -> None:
        """Remove the file, unless it is complete. A second call does nothing."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                self._path.unlink()
            os.close(self._fd)
            self._fd = -1
