"""Makes one process of the program dump the stack of every thread when the launcher sends it a signal.

The progress page (progress_page.py) has the pid of that process. Every Python that the program starts reads it there,
so this module must take and import next to nothing.
"""

from __future__ import annotations

import os

SIGNAL = 50  # a real-time signal that neither a libc nor a usual program uses
AT, SIZE = 24, 8  # where the page has the pid of the process that answers
_stderr = 2


def register_handler(path: str, instead: bool = False) -> None:
    """Answer the signal in this process, unless another live process does; with `instead`, take over from that one.
    OSError if the page cannot be written."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        other = int.from_bytes(os.pread(fd, SIZE, AT), "little", signed=True)
        if instead or other in (0, os.getpid()) or not is_alive(other):
            import faulthandler  # noqa: PLC0415  # most processes do not answer, and need no import

            faulthandler.register(SIGNAL, file=_stderr, all_threads=True, chain=False)
            os.pwrite(fd, os.getpid().to_bytes(SIZE, "little"), AT)
    finally:
        os.close(fd)


def answers(path: str) -> bool:
    """Whether this process answers the signal."""
    with open(path, "rb", buffering=0) as page:
        return int.from_bytes(os.pread(page.fileno(), SIZE, AT), "little", signed=True) == os.getpid()


def is_alive(pid: int) -> bool:
    """Whether the process exists."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
