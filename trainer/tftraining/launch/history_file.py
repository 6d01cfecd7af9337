"""Keeps the history of the training in the job's directory, for a launcher in a pod made anew.

A write never delays the training, and storage that hangs stops only the writes. Each launcher writes only after it has
read the file of its predecessor, so it never replaces a longer curve by a shorter one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from tftraining.launch.atomic_file import read_file, write_file
from tftraining.launch.config.json_text import parse
from tftraining.launch.gang.training_history import TrainingHistory
from tftraining.launch.history import FILE, SERIES_BYTES, Series, compact, from_json
from tftraining.launch.wait_for import in_thread, wait_for

FIRST_SECONDS = 1.0  # between two looks for the first report
INTERVAL_SECONDS = 10.0  # between two writes
SHARE = 20  # the least pause after a write, in durations of the write
LAST_WRITE_SECONDS = 2.0
UNWRITTEN = -1


class HistoryFile:
    """The file of the job `uid`. Without a directory it does nothing."""

    def __init__(self, directory: Path | None, uid: str, history: TrainingHistory, log: Callable[[str], None]) -> None:
        self._path = None if directory is None else directory / FILE
        self._uid = uid
        self._history = history
        self._log = log
        self._written: int | None = None  # the revision in the file; None before the file is read
        self._warned = False
        self._storage = asyncio.Lock()  # at most one thread waits for the storage
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin to read the file of an earlier launcher and to write the history, in the background."""
        if self._path is not None:
            self._task = asyncio.create_task(self._keep(self._path))

    async def close(self) -> None:
        """Write the end of the history; leave it if the storage hangs."""
        if self._path is not None and self._task is not None:
            with contextlib.suppress(asyncio.TimeoutError):
                await wait_for(self._write(self._path), LAST_WRITE_SECONDS)
            self._task.cancel()

    async def _keep(self, path: Path) -> None:
        async with self._storage:
            earlier = await in_thread(lambda: read_history(path, self._uid))
            self._history.continue_after(earlier)
            self._written = UNWRITTEN
        while True:
            began = time.monotonic()
            await self._write(path)
            pause = INTERVAL_SECONDS if len(self._history.series) else FIRST_SECONDS
            await asyncio.sleep(max(pause, SHARE * (time.monotonic() - began)))

    async def _write(self, path: Path) -> None:
        """Write the history if it has changed; an error is logged once."""
        async with self._storage:
            series = self._history.series
            if self._written in (None, series.revision) or not len(series):
                return
            text, revision = history_text(series, self._uid), series.revision
            try:
                await in_thread(lambda: write_file(path, text))
                self._written = revision
            except OSError as error:
                if not self._warned:
                    self._log(f"tftraining: cannot write the history to {path}: {error.strerror}")
                self._warned = True


def history_text(series: Series, uid: str) -> str:
    """The content of the file."""
    return compact({"version": 1, "uid": uid, "after": series.after, **series.to_json()}) + "\n"


def read_history(path: Path, uid: str) -> Series:
    """The series of the file, if it is about the job `uid`; otherwise an empty one."""
    try:
        found = parse(read_file(path, SERIES_BYTES))
        if isinstance(found, dict) and found.get("uid") == uid:
            after = found.get("after")
            return from_json(found, after if isinstance(after, int) else None)
    except (OSError, ValueError):
        pass
    return Series()
