"""The operator, with a record of each long turn of its event loop; for `benchmarks.event_loop`.

A turn is the work of the event loop between two polls of the sockets. The measured time is CPU time of the loop's
thread, so that a busy machine does not count. Each turn of NOTED milliseconds or more becomes a line of JSON in the
file $LOOP_NOTES: the end of the turn (seconds since 1970), its duration, the part of Python's garbage collection, the
number of callbacks, the longest callback with its duration, and the number of turns since the line before. Users must
never run this program.
"""

import asyncio
import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from tftraining_operator.__main__ import main

NOTED = 5.0


class Notes:
    """Measures the loop's turns and callbacks by patching asyncio's classes, and records the long turns."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("a", buffering=1)
        self._run = asyncio.events.Handle._run
        self._turn = asyncio.BaseEventLoop._run_once  # type: ignore[attr-defined]
        self._collecting = self._collected = 0.0
        self._callbacks, self._longest, self._what = 0, 0.0, ""
        self._turns = 0

    def install(self) -> None:
        """Patch asyncio and start to measure."""
        notes = self

        def run(handle: asyncio.Handle) -> None:
            notes.measure(handle)

        def turn(loop: asyncio.BaseEventLoop) -> None:
            notes.measure_turn(loop)

        asyncio.events.Handle._run = run  # type: ignore[method-assign,assignment]
        asyncio.BaseEventLoop._run_once = turn  # type: ignore[attr-defined]
        gc.callbacks.append(self._collect)

    def measure(self, handle: asyncio.Handle) -> None:
        """Run and measure one callback."""
        what = handle._callback  # type: ignore[attr-defined]
        began = time.thread_time()
        self._run(handle)
        took = time.thread_time() - began
        self._callbacks += 1
        if took > self._longest:
            self._longest, self._what = took, _name(what) if took * 1000 >= NOTED else ""

    def measure_turn(self, loop: asyncio.BaseEventLoop) -> None:
        """Run and measure one turn; its wait for the sockets takes no CPU time."""
        self._callbacks, self._collected, self._longest, self._what = 0, 0.0, 0.0, ""
        began = time.thread_time()
        self._turn(loop)
        took = (time.thread_time() - began) * 1000
        self._turns += 1
        if took >= NOTED:
            times = {"ms": took, "gc_ms": self._collected * 1000, "longest_ms": self._longest * 1000}
            note = {"at": time.time(), **times, "callbacks": self._callbacks, "what": self._what, "turns": self._turns}
            self._turns = 0
            self._file.write(json.dumps(note) + "\n")

    def _collect(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.thread_time()
        else:
            self._collected += time.thread_time() - self._collecting


def _name(what: Any) -> str:
    """The name of a task's coroutine and of the innermost place where it waits; otherwise of the function."""
    task = getattr(what, "__self__", None)
    if not isinstance(task, asyncio.Task):
        return getattr(what, "__qualname__", repr(what))
    coroutine: Any = task.get_coro()
    names = [coroutine.__qualname__]
    while (coroutine := getattr(coroutine, "cr_await", None)) is not None and hasattr(coroutine, "cr_await"):
        names.append(coroutine.__qualname__)
    return " > ".join(names)


if __name__ == "__main__":
    Notes(Path(os.environ["LOOP_NOTES"])).install()
    sys.exit(main())
