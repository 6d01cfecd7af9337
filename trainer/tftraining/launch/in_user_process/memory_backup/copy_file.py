"""The files of one member's backups in memory: two slots, each free or a complete copy named after round and step.

With spec.restartPolicy.onDivergence: Restore, up to two more copies are set aside: `agreed-<round>-<step>` is a second
name of a copy, whose file no later copy overwrites while it has that name. They are the newest copy on which all
members agree, and the next one, of which the launchers do not know yet whether they do.

`copy-<round>-<step>` is a head (JSON) and the raw state. A slot is renamed to `free-<n>` before its first byte changes
and to its next name after the last, so a program that is killed in between leaves one copy. The memory is reserved
before it is mapped: a write into a mapped file of a full file system would kill the program. Standard library only: the
launcher reads the names, the user's interpreter the rest.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import re
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any

VARIABLE = "TFTRAINING_MEMORY_BACKUP"  # the launcher's settings for the program, as JSON
MAGIC = b"TFTCOPY2"  # the last character is the version of the layout
HEAD = 8192  # bytes for magic, length and JSON; the state begins behind them, aligned to a page
SLOTS, ASIDE = 2, 2
AGREED = "agreed-"  # a copy that is set aside
FETCHED, FAILED = "fetch-", "failed-"  # a copy that the launcher fetches, or has failed to fetch, and round and step
_POLL_SECONDS = 0.02
_LENGTH = struct.Struct("<I")
_NAME = re.compile(r"(?:copy|agreed)-(\d{1,18})-(\d{1,18})")


def held(directory: str) -> list[tuple[int, int]]:
    """Round and step of every complete copy, the oldest first; none if the directory cannot be read."""
    with contextlib.suppress(OSError):
        return complete(directory)
    return []


def complete(directory: str) -> list[tuple[int, int]]:
    """The same; OSError if the directory cannot be read."""
    return _named("copy-", directory)


def set_aside(directory: str) -> list[tuple[int, int]]:
    """Round and step of every copy that is set aside, the oldest first; OSError if the directory cannot be read."""
    return _named(AGREED, directory)


def _named(prefix: str, directory: str) -> list[tuple[int, int]]:
    found = (_NAME.fullmatch(name) for name in os.listdir(directory) if name.startswith(prefix))
    return sorted((int(each[1]), int(each[2])) for each in found if each)


def name_of(number: int, step: int) -> str:
    """The file name of the copy of that round and step."""
    return f"copy-{number}-{step}"


def agreed_name(number: int, step: int) -> str:
    """The second name of a copy that is set aside."""
    return f"{AGREED}{number}-{step}"


def failed_name(number: int, step: int) -> str:
    """The name of the file that the launcher leaves if it cannot fetch that copy."""
    return f"{FAILED}{number}-{step}"


def wait_for(directory: str, number: int, step: int, seconds: float) -> bool:
    """Wait for the copy that the launcher fetches; False if it could not, or if it takes longer."""
    end = time.monotonic() + seconds
    while not os.path.exists(os.path.join(directory, name_of(number, step))):
        if os.path.exists(os.path.join(directory, failed_name(number, step))) or time.monotonic() > end:
            return False
        time.sleep(_POLL_SECONDS)
    return True


class Copy:
    """A complete copy, opened for reading; `head` is its JSON, `state` a read-only view of the raw state."""

    def __init__(self, directory: str, number: int, step: int) -> None:
        """OSError, ValueError or KeyError if it is absent or not a copy of this version."""
        with open(os.path.join(directory, name_of(number, step)), "rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        self.head: dict[str, Any] = _head(self._map)
        self.step, self.exponent = int(self.head["step"]), int(self.head["exponent"])
        self.state = memoryview(self._map)[HEAD:]
        self.size = len(self._map)

    def close(self) -> None:
        """Release the file, unless a part of `state` is still in use."""
        with contextlib.suppress(BufferError):
            self.state.release()
            self._map.close()


def _head(text: mmap.mmap) -> dict[str, Any]:
    length = _LENGTH.unpack_from(text, len(MAGIC))[0] if len(text) >= HEAD else HEAD
    start = len(MAGIC) + _LENGTH.size
    if text[: len(MAGIC)] != MAGIC or start + length > HEAD:
        raise ValueError("this is no copy of this version")
    head = json.loads(text[start : start + length])
    if not isinstance(head, dict):
        raise ValueError("the head of the copy is no object")
    return head


class Slots:
    """The slots of a program that trains. `kept` is the copy that it has restored; it may set copies aside if
    `sets_aside`."""

    def __init__(
        self, directory: str, size: int | None, kept: tuple[int, int] | None, *, sets_aside: bool = False
    ) -> None:
        """`size`: of the state; None if it is known only when the memory is reserved."""
        self._directory = directory
        self._size = None if size is None else HEAD + size
        self._kept = kept
        self._files: list[tuple[str, mmap.mmap]] = []  # the next to be written first: the free ones, the oldest copy
        self.sets_aside = sets_aside
        self._spares: list[tuple[str, mmap.mmap]] = []  # free files, to take the place of one that is set aside
        self._aside: dict[tuple[int, int], mmap.mmap] = {}

    def clear(self) -> None:
        """Remove what earlier programs have left, but not what this one has restored, nor the copy before that: if
        the restored state turns out to be bad, the launchers go back to it. OSError if something cannot be removed."""
        kept = self._names() + self._names_aside()
        for name in os.listdir(self._directory):
            if name.startswith(("copy-", "free-", AGREED, FAILED)) and name not in kept:
                os.unlink(self._path(name))

    def reserve(self, size: int | None = None) -> None:
        """Reserve the memory of the slots, for a state of `size` bytes. OSError if there is too little."""
        self._size = self._size if size is None else HEAD + size
        self.clear()
        kept = self._names()
        names = [*(f"free-{place}" for place in range(SLOTS - len(kept))), *kept]
        self._files = [(name, self._map(name)) for name in names]
        self._spares, self._aside = [], {}
        if self.sets_aside:
            self._reserve_aside()

    def _reserve_aside(self) -> None:
        """Map what is set aside, a file that is a slot, too, only once; and reserve the rest."""
        slots = {self._inode(name): buffer for name, buffer in self._files}
        own = 0
        for copy in set_aside(self._directory):
            name = agreed_name(*copy)
            buffer = slots.get(self._inode(name))
            own += buffer is None
            self._aside[copy] = self._map(name) if buffer is None else buffer
        names = [f"free-{SLOTS + place}" for place in range(ASIDE - own)]
        self._spares = [(name, self._map(name)) for name in names]

    def reserved(self) -> bool:
        """Whether the memory is reserved."""
        return bool(self._files)

    def _names(self) -> list[str]:
        """The restored copy, behind the newest one that is older."""
        if self._kept is None:
            return []
        older = [each for each in held(self._directory) if each < self._kept and self._fits(each)][-1:]
        return [name_of(*each) for each in [*older, self._kept] if self._fits(each)]

    def _names_aside(self) -> list[str]:
        """The copies set aside that stay: those of this training, which has restored a copy."""
        if self._kept is None or not self.sets_aside:
            return []
        found = set_aside(self._directory)[-ASIDE:]
        return [agreed_name(*each) for each in found if self._fits(each, agreed_name)]

    def _fits(self, copy: tuple[int, int], name: Callable[[int, int], str] = name_of) -> bool:
        path = self._path(name(*copy))
        return os.path.exists(path) and self._size in (None, os.path.getsize(path))

    def begin(self) -> mmap.mmap:
        """Take the oldest slot to write into; the state belongs behind the first HEAD bytes. OSError if it is gone."""
        name, buffer = self._files[0]
        if name.startswith("copy-") and any(buffer is each for each in self._aside.values()):
            os.unlink(self._path(name))  # it has another name
            self._files[0] = self._spares.pop()
        elif name.startswith("copy-"):
            free = f"free-{name[len('copy-') :]}"
            os.rename(self._path(name), self._path(free))
            self._files[0] = (free, buffer)
        return self._files[0][1]

    def commit(self, number: int, step: int, head: Mapping[str, Any]) -> None:
        """Complete the slot that was begun: from now on it is a copy of that round and step. OSError if it cannot."""
        free, buffer = self._files[0]
        text = json.dumps(head).encode()
        start = len(MAGIC) + _LENGTH.size
        if start + len(text) > HEAD:
            raise ValueError("the head of the copy is too long")
        buffer[: len(MAGIC)] = MAGIC
        _LENGTH.pack_into(buffer, len(MAGIC), len(text))
        buffer[start : start + len(text)] = text
        name = name_of(number, step)
        os.rename(self._path(free), self._path(name))
        self._files = [*self._files[1:], (name, buffer)]

    def reuse(self) -> None:
        """Write over the newest copy before the older ones: not all members may have made it."""
        free = [each for each in self._files if each[0].startswith("free-")]
        copies = [each for each in self._files if each not in free]
        self._files = [*free, *copies[-1:], *copies[:-1]]

    def set_aside(self, number: int, step: int, agreed: tuple[int, int] | None) -> None:
        """Set the newest copy aside, which is of this round and step. Of the earlier ones only the `agreed` one stays.
        OSError if it cannot."""
        for copy in [each for each in self._aside if each != agreed]:
            self._take_back(copy)
        os.link(self._path(name_of(number, step)), self._path(agreed_name(number, step)))
        self._aside[number, step] = self._files[-1][1]

    def _take_back(self, copy: tuple[int, int]) -> None:
        """A copy is not set aside any more: its file is a slot again, or still is one."""
        buffer, path = self._aside.pop(copy), self._path(agreed_name(*copy))
        if any(buffer is each for _, each in self._files):
            os.unlink(path)
            return
        free = f"free-{copy[0]}-{copy[1]}"
        os.rename(path, self._path(free))
        self._spares.append((free, buffer))

    def discard(self) -> None:
        """Remove all files; their memory is free when the buffers are. OSError if one cannot be removed."""
        self._files, self._spares, self._aside, self._kept = [], [], {}, None
        self.clear()

    def _map(self, name: str) -> mmap.mmap:
        assert self._size is not None
        fd = os.open(self._path(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, self._size)
            return mmap.mmap(fd, self._size)
        finally:
            os.close(fd)

    def _inode(self, name: str) -> int:
        return os.stat(self._path(name)).st_ino

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)
