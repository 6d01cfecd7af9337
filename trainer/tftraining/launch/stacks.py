"""A process of the program that dumps the stack of every thread when the launcher sends it a signal.

It is noted on the progress page (page.py). Every Python that the program starts looks there, so this must cost next to
nothing, and import next to nothing.
"""

from __future__ import annotations

import os

SIGNAL = 50  # a real-time signal that neither a libc nor a usual program has a use for
AT, SIZE = 24, 8  # on the page: who answers it
_stderr = 2


def answer(path: str, instead: bool = False) -> None:
    """Answer the signal in this process, unless another one that is alive does; `instead` of that one as well. OSError
    if the page cannot be written."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        other = int.from_bytes(os.pread(fd, SIZE, AT), "little", signed=True)
        if instead or other in (0, os.getpid()) or not alive(other):
            import faulthandler  # noqa: PLC0415  # not for the many that do not answer

            faulthandler.register(SIGNAL, file=_stderr, all_threads=True, chain=False)
            os.pwrite(fd, os.getpid().to_bytes(SIZE, "little"), AT)
    finally:
        os.close(fd)


def alive(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
