"""Notes on the progress page that the main thread of the program has ended, while its other threads still run.

Python waits for threads that are no daemons before the process ends, for ever if need be. A fork, and a process beside
the one that answers for the program (stack_dump.py), note nothing. It must never disturb the end of the program.
"""

from __future__ import annotations

import os
import sys

from .progress_page import PageWriter
from .stack_dump import answers

# The first frame of an exception that ends the main thread, not of one that a C extension prints.
OUTERMOST = ("<module>", "_run_module_as_main")
_exit_code: object = None  # of a SystemExit in the warm interpreter; a plain one leaves no trace


def install(path: str) -> None:
    """Note the end of this process's main thread on the page. `threading._shutdown` is what Python calls then: handlers
    of atexit come behind the wait, and those of `threading` may be behind that of concurrent.futures."""
    threading = sys.modules.get("threading")
    wait, pid = getattr(threading, "_shutdown", None), os.getpid()
    if threading is None or wait is None:
        return

    def note_and_wait() -> None:
        if os.getpid() == pid:
            _note(path)
        wait()

    threading._shutdown = note_and_wait  # type: ignore[attr-defined]


def note_exit(code: object) -> None:
    """Note the code of the SystemExit that ends the program."""
    global _exit_code  # noqa: PLW0603  # one process
    _exit_code = code


def _note(path: str) -> None:
    try:
        if answers(path):
            PageWriter(path).record_main_thread_end(_code())
    except Exception as error:
        sys.stderr.write(f"tftraining: cannot note the end of the program: {error!r}\n")


def _code() -> int:
    """The exit code that the process will have: Python keeps an exception that it has printed."""
    trace = getattr(sys, "last_traceback", None)
    if trace is not None and trace.tb_frame.f_code.co_name in OUTERMOST:
        return 1
    return _exit_code & 0xFF if isinstance(_exit_code, int) else int(_exit_code is not None)
