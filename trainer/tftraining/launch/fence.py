"""The process that ends the program when its lease has run out, whatever the launcher does: it may stand still.

A fork of the launcher (lease.py). It sleeps until the deadline that both see in shared memory, and when that is over it
kills all that the launcher has started but the warm interpreter, again and again until the launcher says that it has
taken notice. It must never open a file but those of /proc, nor wait for anything but the clock and the launcher's end.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import mmap
import os
import select
import signal
import time
from collections.abc import Collection
from pathlib import Path
from typing import NoReturn

from tftraining.launch import proctitle
from tftraining.launch.reaper import PR_SET_PDEATHSIG, children, descendants, prctl

NAME = b"tft-lease"
# For who looks at ps. It must not have the program's name in it, by which the program is killed, nor the launcher's.
TITLE = "lease watchdog: ends the training program when its launcher stands still"
IGNORED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)
FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.5  # seconds between two looks for who is left

# The places of the shared table, a double each: it is written and read as one.
DEADLINE = 0  # monotonic seconds after which nothing may run, 0 where there is nothing to end
FENCED = 1  # when that was enforced, 0 if it was not
SPARED = 2  # the warm interpreter, which runs nothing of the program; 0 if there is none
PLACES = 3
Table = ctypes.Array[ctypes.c_double]


def table() -> Table:
    """A new one, which this process shares with its forks."""
    return (ctypes.c_double * PLACES).from_buffer(mmap.mmap(-1, mmap.PAGESIZE))


def fork(shared: Table, orders: int) -> int:
    """Fork the process; its pid. `orders` is its end of a stream socket: each word on it is answered by one, its end is
    the launcher's. OSError if it cannot be forked."""
    launcher, pid = os.getpid(), os.fork()
    if not pid:
        _run(launcher, shared, orders)
    return pid


def _run(launcher: int, shared: Table, orders: int) -> NoReturn:
    try:
        _settle(launcher, orders)
        _enforce(launcher, shared, orders)
    finally:
        os._exit(0)


def _settle(launcher: int, orders: int) -> None:
    """Become a process of its own: nothing of the launcher's is held open, nothing that is meant for it is heard."""
    gc.disable()  # a collection would copy the pages that both share
    signal.set_wakeup_fd(-1)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()  # what stops the launcher's group, as a terminal does, does not stop this one
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    proctitle.set_name(NAME)
    proctitle.show([TITLE], {})
    _close_all_but(orders)
    if os.getppid() != launcher:
        os._exit(0)


def _close_all_but(kept: int) -> None:
    try:
        highest = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
    except OSError:
        highest = 4096
    os.closerange(0, kept)
    os.closerange(kept + 1, highest + 1)


def _enforce(launcher: int, shared: Table, orders: int) -> None:
    """Return when the launcher is gone."""
    poll, pause = select.poll(), FIRST_PAUSE
    poll.register(orders, select.POLLIN)
    while True:
        deadline, now = shared[DEADLINE], time.monotonic()
        if deadline and now >= deadline:
            shared[FENCED] = now  # before the first kill: who sees an end has to know whose doing it is
            end_descendants(launcher, (os.getpid(), int(shared[SPARED])))
            wait, pause = pause, min(2 * pause, LONGEST_PAUSE)
        else:
            wait, pause = (deadline - now) if deadline else math.inf, FIRST_PAUSE
        if poll.poll(None if wait == math.inf else math.ceil(wait * 1000)):
            if not os.read(orders, 64):
                return
            os.write(orders, b".")


def end_descendants(launcher: int, spared: Collection[int]) -> None:
    """SIGKILL what the launcher has started or adopted. First its children with the process groups that they lead, then
    who has left those groups; the latter are found under their parents, which are there until the launcher waits for
    them. As long as it stands still it does not, so no number is another process's."""
    for find in (children, descendants):
        for pid in find(launcher):
            if pid not in spared:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    (os.killpg if os.getpgid(pid) == pid else os.kill)(pid, signal.SIGKILL)
