"""The launcher's side of the progress page: creates it, and reads what the program has written.

It reads with pread(2) and trusts no value, so nothing that a program does to the file can harm the launcher.
"""

from __future__ import annotations

import errno
import math
import os
import time
from pathlib import Path
from typing import Any

from tftraining.launch.config.json_text import parse
from tftraining.launch.in_user_process import progress_page as page
from tftraining.launch.in_user_process.stack_dump import is_alive
from tftraining.launch.progress import Snapshot

TRIES, TRIES_WITHOUT_PAUSE = 100, 10
PAUSE_SECONDS = 0.0002
# How long a `fit` whose end was restored counts as no training: the next one may resume, and tells where.
RESTORED_SECONDS = 5.0
PID_LIMIT = 2**22  # Linux assigns only smaller ones


def create(path: Path) -> int:
    """Create an empty page, its blocks allocated so that a full disk cannot fail the writer; the open descriptor."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if os.write(fd, page.MAGIC.ljust(page.SIZE, b"\0")) != page.SIZE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    except OSError:
        os.close(fd)
        path.unlink()
        raise
    return fd


def read(fd: int) -> Snapshot:
    """The present content of the page; an empty snapshot if the file is no page."""
    for attempt in range(TRIES):
        if attempt > TRIES_WITHOUT_PAUSE:
            time.sleep(PAUSE_SECONDS)  # the writer was preempted in the middle of a write
        data = os.pread(fd, page.SIZE, 0)
        if len(data) != page.SIZE or not data.startswith(page.MAGIC):
            return Snapshot()
        sequence = page.SEQUENCE.unpack_from(data, page.SEQUENCE_AT)[0]
        if sequence % 2 == 0 and os.pread(fd, 8, page.SEQUENCE_AT) == page.SEQUENCE.pack(sequence):
            return _decode(data)
    return _decode(data)  # the writer died in a write: at worst one number is a step older than another


def read_stack_pid(fd: int) -> int | None:
    """The process that answers the signal for stack dumps, None if none does. Only a valid pid is returned: kill(2)
    takes a negative number for a process group."""
    data = os.pread(fd, page.PIDS.size, page.PIDS_AT)
    pid = int(page.PIDS.unpack(data)[1]) if len(data) == page.PIDS.size else 0
    return pid if 0 < pid < PID_LIMIT else None


def read_gpu_count(fd: int) -> int | None:
    """How many GPUs TensorFlow lists in the program; None while that is unknown."""
    data = os.pread(fd, page.GPUS.size, page.GPUS_AT)
    number = int(page.GPUS.unpack(data)[0]) if len(data) == page.GPUS.size else 0
    return number - 1 if number > 0 else None


def read_changed_variable(fd: int) -> str:
    """The environment variable whose change requires a plain start; "" if there is none."""
    name = os.pread(fd, page.CHANGED.size, page.CHANGED_AT).partition(b"\0")[0].decode(errors="replace")
    return "".join(character if character.isprintable() else "?" for character in name)


def _decode(data: bytes) -> Snapshot:
    step, epoch, epochs, per_epoch, first_step, first_epoch, count, *times = page.NUMBERS.unpack_from(
        data, page.NUMBERS_AT
    )
    connecting, main_exit = bool(data[page.CONNECTING_AT]), _main_exit(data)
    if not page.PIDS.unpack_from(data, page.PIDS_AT)[0]:
        return Snapshot(connecting=connecting, main_exit=main_exit)
    metrics_step, metrics_epoch, metrics_time = page.METRICS.unpack_from(data, page.METRICS_AT)
    fit_start, first_fit_start = page.STARTS.unpack_from(data, page.STARTS_AT)
    fit, made_before = page.FITS.unpack_from(data, page.FITS_AT)
    first_time, last_time, updated, rate = (t if math.isfinite(t) and t > 0 else None for t in times)
    if not count and first_time and _may_resume(data, first_time):
        first_time = last_time = None
    return Snapshot(
        epoch=_number_or_none(epoch),
        epochs=_number_or_none(epochs),
        step=_number_or_none(step),
        steps_per_epoch=_number_or_none(per_epoch),
        steps_per_second=rate,
        metrics=_metrics(data),
        metrics_step=_number_or_none(metrics_step - 1),
        metrics_epoch=_number_or_none(metrics_epoch - 1),
        metrics_time=metrics_time if math.isfinite(metrics_time) and metrics_time > 0 else None,
        updated=updated,
        first_step_time=first_time,
        last_step_time=last_time,
        first_epoch=_number_or_none(first_epoch),
        first_step=_number_or_none(first_step),
        fit_start=max(0, fit_start),
        first_fit_start=max(0, first_fit_start),
        fit=fit or None,
        made_before=made_before,
        connecting=connecting,
        alone=bool(data[page.ALONE_AT]),
        main_exit=main_exit,
        **_own_time(data),
        checkpoint=_number_or_none(page.CHECKPOINT.unpack_from(data, page.CHECKPOINT_AT)[0] - 1),
    )


def _main_exit(data: bytes) -> int | None:
    """The exit code of a program whose main thread has ended; None while that runs, or if another process answers for
    the program by now."""
    pid, code = page.MAIN_THREAD.unpack_from(data, page.MAIN_THREAD_AT)
    return int(code) & 0xFF if pid and pid == page.PIDS.unpack_from(data, page.PIDS_AT)[1] else None


def _may_resume(data: bytes, restored: float) -> bool:
    """Whether the program, which has restored the end of a `fit`, is about to begin another one."""
    writer = int(page.PIDS.unpack_from(data, page.PIDS_AT)[0])
    return time.monotonic() - restored < RESTORED_SECONDS and 0 < writer < PID_LIMIT and is_alive(writer)


def _own_time(data: bytes) -> dict[str, Any]:
    steps, seconds, of_input = page.OWN_TIME.unpack_from(data, page.OWN_TIME_AT)
    is_sound = steps > 0 and math.isfinite(seconds) and math.isfinite(of_input)
    return {"own_steps": steps, "own_seconds": seconds, "input_seconds": of_input} if is_sound else {}


def _number_or_none(number: int) -> int | None:
    return number if number >= 0 else None


def _metrics(data: bytes) -> dict[str, float]:
    length = min(page.LENGTH.unpack_from(data, page.LENGTH_AT)[0], page.TEXT_BYTES)
    try:
        found = parse(data[page.TEXT_AT : page.TEXT_AT + length] or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
