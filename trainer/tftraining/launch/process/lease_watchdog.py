"""The lease watchdog: a process that kills the program when its lease has run out, even if the launcher hangs.

A fork of the launcher (lease.py). It sleeps until the deadline in their shared memory. After the deadline it kills all
processes that the launcher has started except the warm interpreter, repeatedly until the launcher resets the deadline.
It must open only files of /proc, and wait only for the clock and the launcher.
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

from tftraining.launch.in_user_process import proctitle
from tftraining.launch.process.reaper import PR_SET_PDEATHSIG, children, descendants, prctl

NAME = b"tft-lease"
# Shown by ps. It must contain the name of neither the program nor the launcher: people kill processes by name.
TITLE = "lease watchdog: kills the training program when its launcher hangs"
IGNORED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)
FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.5  # seconds between two kills of the remaining processes

# Indices into the shared table; each entry is a double, because the CPU reads and writes it as a whole.
DEADLINE = 0  # monotonic seconds after which no program may run; 0 if no lease is in force
FENCED = 1  # when the watchdog began to enforce the deadline; 0 if it has not
SPARED = 2  # pid of the warm interpreter, which runs no user code; 0 if there is none
TABLE_SIZE = 3
Table = ctypes.Array[ctypes.c_double]


def shared_table() -> Table:
    """A new table in memory that this process shares with its forks."""
    return (ctypes.c_double * TABLE_SIZE).from_buffer(mmap.mmap(-1, mmap.PAGESIZE))


def fork(table: Table, control: int) -> int:
    """Fork the watchdog; return its pid. `control` is its end of a stream socket: it answers each message on it, and
    exits when the launcher closes it. OSError if the fork fails."""
    launcher, pid = os.getpid(), os.fork()
    if not pid:
        _run(launcher, table, control)
    return pid


def _run(launcher: int, table: Table, control: int) -> NoReturn:
    try:
        _detach(launcher, control)
        _enforce(launcher, table, control)
    finally:
        os._exit(0)


def _detach(launcher: int, control: int) -> None:
    """Detach from the launcher: close its file descriptors, ignore signals that are meant for it."""
    gc.disable()  # a garbage collection would copy pages shared with the launcher
    signal.set_wakeup_fd(-1)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()  # so that a signal to the launcher's process group, as from a terminal, does not stop the watchdog
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    proctitle.set_name(NAME)
    proctitle.show([TITLE], {})
    _close_all_but(control)
    if os.getppid() != launcher:
        os._exit(0)


def _close_all_but(kept: int) -> None:
    try:
        highest = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
    except OSError:
        highest = 4096
    os.closerange(0, kept)
    os.closerange(kept + 1, highest + 1)


def _enforce(launcher: int, table: Table, control: int) -> None:
    """Enforce deadlines until the launcher has closed `control`."""
    poll, pause = select.poll(), FIRST_PAUSE
    poll.register(control, select.POLLIN)
    while True:
        deadline, now = table[DEADLINE], time.monotonic()
        if deadline and now >= deadline:
            table[FENCED] = now  # before the first kill: the launcher must know that the exit is the watchdog's doing
            end_descendants(launcher, (os.getpid(), int(table[SPARED])))
            wait, pause = pause, min(2 * pause, LONGEST_PAUSE)
        else:
            wait, pause = (deadline - now) if deadline else math.inf, FIRST_PAUSE
        if poll.poll(None if wait == math.inf else math.ceil(wait * 1000)):
            if not os.read(control, 64):
                return
            os.write(control, b".")


def end_descendants(launcher: int, spared: Collection[int]) -> None:
    """SIGKILL all processes that the launcher has started or adopted, except `spared`.

    First its children with the process groups that they lead, then descendants outside these groups. Killed parents
    stay zombies until the launcher waits for them, so their descendants can still be found; while it hangs, the kernel
    cannot reuse their pids.
    """
    for find in (children, descendants):
        for pid in find(launcher):
            if pid not in spared:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    (os.killpg if os.getpgid(pid) == pid else os.kill)(pid, signal.SIGKILL)
