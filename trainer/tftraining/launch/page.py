"""The progress page: a small file that the training process writes at every step and the launcher reads when it likes.

The training process maps it, so that a step costs two or three microseconds and no system call; the launcher reads it
with pread(2), so that nothing a program does to the file can harm it. A sequence number, odd while the writer is at it,
makes what is read consistent. This file is also loaded by itself into the user's interpreter, so it must never import
anything but a little of the standard library.
"""

from __future__ import annotations

import errno
import json
import math
import mmap
import os
import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

MAGIC = b"TFTPAGE1"  # the last character is the version of the layout
SIZE = 16384
_SEQUENCE = struct.Struct("<Q")
_PIDS = struct.Struct("<qq")
_NUMBERS = struct.Struct("<7q4d")
_LENGTH = struct.Struct("<I")
_SEQUENCE_AT, _PIDS_AT, _NUMBERS_AT, _LENGTH_AT, _TEXT_AT = 8, 16, 64, 256, 260
TEXT_BYTES = SIZE - _TEXT_AT
NONE = -1
READS = 100


@dataclass(frozen=True)
class Snapshot:
    """What a program has told of its progress; None where it told nothing.

    `epoch` is the one it is in, counted from 1 as Keras prints it; `step` the optimizer's iterations so far, in the
    whole training. `first_epoch` and `first_step` are what was done before this round: finished epochs and
    iterations. Times are of CLOCK_MONOTONIC in seconds, `updated` of CLOCK_REALTIME.
    """

    epoch: int | None = None
    epochs: int | None = None
    step: int | None = None
    steps_per_epoch: int | None = None
    steps_per_second: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    updated: float | None = None
    first_step_time: float | None = None
    last_step_time: float | None = None
    first_epoch: int | None = None
    first_step: int | None = None


def create(path: Path) -> int:
    """Make an empty page, all its blocks allocated (a full disk must not strike the writer); the open descriptor."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if os.write(fd, MAGIC.ljust(SIZE, b"\0")) != SIZE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    except OSError:
        os.close(fd)
        path.unlink()
        raise
    return fd


def read(fd: int) -> Snapshot:
    """What the page says now; an empty snapshot for a page that is none."""
    for _ in range(READS):
        data = os.pread(fd, SIZE, 0)
        if len(data) != SIZE or not data.startswith(MAGIC):
            return Snapshot()
        sequence = _SEQUENCE.unpack_from(data, _SEQUENCE_AT)[0]
        if sequence % 2 == 0 and os.pread(fd, 8, _SEQUENCE_AT) == _SEQUENCE.pack(sequence):
            return _decode(data)
    return Snapshot()  # a writer that died in the middle


def stack_pid(fd: int) -> int | None:
    """The process that answers the signal for stack dumps, None if none does."""
    data = os.pread(fd, _PIDS.size, _PIDS_AT)
    return (_PIDS.unpack(data)[1] or None) if len(data) == _PIDS.size else None


def _decode(data: bytes) -> Snapshot:
    step, epoch, epochs, per_epoch, first_step, first_epoch, _, *times = _NUMBERS.unpack_from(data, _NUMBERS_AT)
    if not _PIDS.unpack_from(data, _PIDS_AT)[0]:
        return Snapshot()
    first_time, last_time, updated, rate = (t if math.isfinite(t) and t > 0 else None for t in times)
    return Snapshot(
        epoch=_count(epoch),
        epochs=_count(epochs),
        step=_count(step),
        steps_per_epoch=_count(per_epoch),
        steps_per_second=rate,
        metrics=_metrics(data),
        updated=updated,
        first_step_time=first_time,
        last_step_time=last_time,
        first_epoch=_count(first_epoch),
        first_step=_count(first_step),
    )


def _count(number: int) -> int | None:
    return number if number >= 0 else None


def _metrics(data: bytes) -> dict[str, float]:
    length = min(_LENGTH.unpack_from(data, _LENGTH_AT)[0], TEXT_BYTES)
    try:
        found = json.loads(data[_TEXT_AT : _TEXT_AT + length] or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


class Writer:
    """The training process's side. Any method may raise: whoever calls keeps that away from the training."""

    RATE_SECONDS = 1.0  # over at least so long the speed is measured

    def __init__(self, path: str) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._map = mmap.mmap(fd, SIZE)
        finally:
            os.close(fd)
        if self._map[: len(MAGIC)] != MAGIC:
            raise ValueError(f"{path} is no progress page of this version")
        self.epoch = self.epochs = self.step = self.steps_per_epoch = NONE
        self.first_step = self.first_epoch = NONE
        self.count = 0
        self.first_time = self.last_time = self.rate = 0.0
        self._sequence = 0
        self._mark: tuple[float, int] | None = None

    def claim(self) -> bool:
        """Take the page for this process, if no other that is alive has it."""
        owner, stacks = _PIDS.unpack_from(self._map, _PIDS_AT)
        if owner not in (0, os.getpid()) and _alive(owner):
            return False
        _PIDS.pack_into(self._map, _PIDS_AT, os.getpid(), stacks)
        return True

    def answers_stacks(self) -> None:
        """Note that this process dumps its stacks when it gets the signal, unless another one does already."""
        owner, stacks = _PIDS.unpack_from(self._map, _PIDS_AT)
        if not stacks or not _alive(stacks):
            _PIDS.pack_into(self._map, _PIDS_AT, owner, os.getpid())

    def pause(self) -> None:
        """What follows (an evaluation, a backup) is not part of the speed."""
        self._mark = None

    def stepped(self, step: int) -> None:
        """`step` iterations are done by now."""
        now = time.monotonic()
        self.count += max(step - self.step, 1) if self.count else 1
        self.step = step
        if not self.first_time:
            self.first_time = now
        self.last_time = now
        if self._mark is None:
            self._mark = (now, self.count)
        elif now - self._mark[0] >= self.RATE_SECONDS:
            self.rate = (self.count - self._mark[1]) / (now - self._mark[0])
            self._mark = (now, self.count)
        self.write()

    def write(self, metrics: dict[str, Any] | None = None) -> None:
        """Put everything on the page; `metrics` only where they are new."""
        text = _text(metrics) if metrics is not None else None
        self._sequence += 1
        _SEQUENCE.pack_into(self._map, _SEQUENCE_AT, self._sequence)
        _NUMBERS.pack_into(
            self._map,
            _NUMBERS_AT,
            *(self.step, self.epoch, self.epochs, self.steps_per_epoch, self.first_step, self.first_epoch, self.count),
            *(self.first_time, self.last_time, time.time(), self.rate),
        )
        if text is not None:
            _LENGTH.pack_into(self._map, _LENGTH_AT, len(text))
            self._map[_TEXT_AT : _TEXT_AT + len(text)] = text
        self._sequence += 1
        _SEQUENCE.pack_into(self._map, _SEQUENCE_AT, self._sequence)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _text(metrics: dict[str, Any]) -> bytes:
    """JSON of the metrics that are finite numbers; nothing if they are more than a page holds."""
    numbers = {str(name)[:200]: float(value) for name, value in metrics.items()}
    text = json.dumps({name: value for name, value in numbers.items() if math.isfinite(value)}).encode()
    return text if len(text) <= TEXT_BYTES else b"{}"
