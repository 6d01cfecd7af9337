"""A process that stands still for a part of the time, as on a machine with too little CPU time."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stopped_now_and_then(pid: int, stopped: float, runs: float) -> Iterator[None]:
    """Stop the process for `stopped` seconds, let it run for `runs` seconds, and so on. It runs at the end."""
    over = threading.Event()

    def alternate() -> None:
        while not over.is_set():
            os.kill(pid, signal.SIGSTOP)
            over.wait(stopped)
            os.kill(pid, signal.SIGCONT)
            over.wait(runs)

    thread = threading.Thread(target=alternate)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
