"""The progress page: a small file that the training process writes at every step and the launcher reads at any time.

This module has its layout and the training process's side, which maps the file: a step costs two or three microseconds
and no system call. A sequence number, odd during a write, lets a reader (process/progress_reader.py) recognize a
consistent state. The module is loaded into the user's interpreter, so it must never import more than a little of the
standard library.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
import time
from collections.abc import Mapping

from .stack_dump import is_alive

MAGIC = b"TFTPAGE1"  # the last character is the version of the layout
SIZE = 16384
SEQUENCE = struct.Struct("<Q")
PIDS = struct.Struct("<qq")  # the process that writes, and the one that dumps its stacks (stack_dump.py)
NUMBERS = struct.Struct("<7q4d")
METRICS = struct.Struct("<2qd")  # the metrics' step and epoch, each plus 1 (0 if unknown), and their time (0 for none)
STARTS = struct.Struct("<2q")  # the steps of the fits before the present one, and before the one that the round resumed
FITS = struct.Struct("<2I")  # the number of the present fit, and the steps made in the round before it resumed
GPUS = struct.Struct("<q")  # how many GPUs TensorFlow lists, plus 1; 0 if unknown
CHECKPOINT = struct.Struct("<q")  # the step of the newest reported checkpoint, plus 1; 0 for none
CHANGED = struct.Struct("<48s")  # the environment variable whose change requires a plain start
MAIN_THREAD = struct.Struct("<qq")  # the process whose main thread has ended, and the exit code that it will have
LENGTH = struct.Struct("<I")
OWN_TIME = struct.Struct(
    "<q2d"
)  # steps that were measured, their own seconds, those of the wait for input (own_time.py)
SEQUENCE_AT, PIDS_AT, CONNECTING_AT, ALONE_AT, MAIN_THREAD_AT, FITS_AT, NUMBERS_AT = 8, 16, 32, 33, 40, 56, 64
METRICS_AT, STARTS_AT, GPUS_AT, CHECKPOINT_AT, CHANGED_AT = 152, 176, 192, 200, 208
LENGTH_AT, TEXT_AT = 256, 260
OWN_TIME_AT = SIZE - OWN_TIME.size
TEXT_BYTES = OWN_TIME_AT - TEXT_AT
NONE = -1
_KEPT = (4, 5, 7, 8)  # indices in NUMBERS that a later process of the same round takes over


class PageWriter:
    """The training process's side. Any method may raise; the caller must keep errors from the training."""

    RATE_SECONDS = 1.0  # the least time over which the speed is measured
    FIRST_RATE_SECONDS = 0.1  # the same for the first measurement and at the end of an epoch

    def __init__(self, path: str) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._map = mmap.mmap(fd, SIZE)
        finally:
            os.close(fd)
        if self._map[: len(MAGIC)] != MAGIC:
            raise ValueError(f"{path} is not a progress page of this version")
        self.epoch = self.epochs = self.step = self.steps_per_epoch = NONE
        self.first_step = self.first_epoch = NONE
        self.fit_start = self.first_fit_start = 0
        self.fit = self.made_before = 0
        self.count = 0
        self.own_time = (0, 0.0, 0.0)
        self.first_time = self.last_time = self.rate = 0.0
        self._sequence = SEQUENCE.unpack_from(self._map, SEQUENCE_AT)[0] & ~1  # an earlier writer may have died here
        self._mark: tuple[float, int] | None = None

    def has_other_owner(self) -> bool:
        """Whether another live process has reported."""
        owner = PIDS.unpack_from(self._map, PIDS_AT)[0]
        return owner not in (0, os.getpid()) and is_alive(owner)

    def begin(self, gpus: int | None) -> None:
        """Make this process the writer. If another one wrote before it, keep that one's start of the round."""
        earlier, stacks = PIDS.unpack_from(self._map, PIDS_AT)
        if earlier:
            numbers = NUMBERS.unpack_from(self._map, NUMBERS_AT)
            self.first_step, self.first_epoch, self.first_time, self.last_time = (numbers[index] for index in _KEPT)
            self.first_fit_start = STARTS.unpack_from(self._map, STARTS_AT)[1]
            self.made_before = FITS.unpack_from(self._map, FITS_AT)[1]
        PIDS.pack_into(self._map, PIDS_AT, os.getpid(), stacks)
        if gpus is not None:
            self.record_gpus(gpus)

    def record_gpus(self, number: int) -> None:
        """Note how many GPUs TensorFlow lists in this process."""
        GPUS.pack_into(self._map, GPUS_AT, number + 1)

    def record_changed_variable(self, variable: str) -> None:
        """Note that the program has changed this variable before its import of TensorFlow: it needs a plain start."""
        CHANGED.pack_into(self._map, CHANGED_AT, variable.encode(errors="replace"))

    def record_connecting(self, begun: bool) -> None:
        """Note that this process connects to its peers (`begun`), or has connected."""
        self._map[CONNECTING_AT] = int(begun)

    def record_alone(self, alone: bool) -> None:
        """Note whether this process trains without the other members of its gang."""
        self._map[ALONE_AT] = int(alone)

    def record_main_thread_end(self, code: int) -> None:
        """Note that the main thread of this process has ended, and its exit code if no other thread changes it."""
        MAIN_THREAD.pack_into(self._map, MAIN_THREAD_AT, os.getpid(), code)

    def record_checkpoint(self, step: int) -> None:
        """Note that a checkpoint of that step is complete."""
        CHECKPOINT.pack_into(self._map, CHECKPOINT_AT, step + 1)

    def pause(self) -> None:
        """Stop measuring the speed until the next step, for an evaluation or a backup."""
        self._measure(self.last_time, self.FIRST_RATE_SECONDS)
        self._mark = None

    def record_step(self, step: int) -> None:
        """Note that `step` iterations are done."""
        now = time.monotonic()
        self.count += max(step - self.step, 1) if self.step != NONE else 1
        self.step = step
        if not self.first_time:
            self.first_time = now
        self.last_time = now
        if self._mark is None:
            self._mark = (now, self.count)
        else:
            self._measure(now, self.RATE_SECONDS if self.rate else self.FIRST_RATE_SECONDS)
        self.write()

    def record_resumption(self) -> None:
        """Note that the training has resumed with nothing left to do, so no step follows."""
        self.first_time = self.last_time = self.first_time or time.monotonic()

    def _measure(self, now: float, seconds: float) -> None:
        if self._mark is not None and now - self._mark[0] >= seconds:
            self.rate = (self.count - self._mark[1]) / (now - self._mark[0])
            self._mark = (now, self.count)

    def write(self, metrics: Mapping[str, object] | None = None) -> None:
        """Write all values to the page; pass `metrics` only if they are new."""
        text = _text(metrics) if metrics is not None else None
        self._sequence += 1
        SEQUENCE.pack_into(self._map, SEQUENCE_AT, self._sequence)
        NUMBERS.pack_into(
            self._map,
            NUMBERS_AT,
            *(self.step, self.epoch, self.epochs, self.steps_per_epoch, self.first_step, self.first_epoch, self.count),
            *(self.first_time, self.last_time, time.time(), self.rate),
        )
        STARTS.pack_into(self._map, STARTS_AT, self.fit_start, self.first_fit_start)
        FITS.pack_into(self._map, FITS_AT, self.fit, self.made_before)
        OWN_TIME.pack_into(self._map, OWN_TIME_AT, *self.own_time)
        if text is not None:
            METRICS.pack_into(self._map, METRICS_AT, self.step + 1, self.epoch + 1, time.time())
            LENGTH.pack_into(self._map, LENGTH_AT, len(text))
            self._map[TEXT_AT : TEXT_AT + len(text)] = text
        self._sequence += 1
        SEQUENCE.pack_into(self._map, SEQUENCE_AT, self._sequence)


def _text(metrics: Mapping[str, object]) -> bytes:
    """JSON of the finite metrics; an empty object if it does not fit on the page."""
    import json  # noqa: PLC0415  # imported only when needed: every plain start pays for the module's imports

    numbers = {str(name)[:200]: _number(value) for name, value in metrics.items()}
    text = json.dumps({name: value for name, value in numbers.items() if math.isfinite(value)}).encode()
    return text if len(text) <= TEXT_BYTES else b"{}"


def _number(value: object) -> float:
    """The float of a number, or of an array or tensor with one element; NaN for anything else."""
    try:
        item = getattr(value, "item", None)  # float() does not take every NumPy array
        return float(value if item is None else item())  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return math.nan
