"""One program: its start in a session of its own, and the end of all its processes.

It must never leave a process behind: a forked process, even one outside the program's process group, becomes a child of
the launcher (see reaper.py) and is killed as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tftraining.launch.failure.exit import NOT_FOUND
from tftraining.launch.process.open_files import restore_limit
from tftraining.launch.process.reaper import PR_SET_PDEATHSIG, Reaper, children

KILL_SECONDS = 5.0  # how long killed processes may take; any that takes longer hangs in the kernel (state D)


# The errors of the command itself. Any other may be gone at the next try: no process or memory is left (EAGAIN,
# ENOMEM), the storage fails (EIO, ESTALE), the file is being written (ETXTBSY).
PERMANENT_ERRORS = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ENOEXEC)


class StartError(Exception):
    """The command cannot be started. The message is one line; `code` is a shell's exit code, `kind` that of an Exit."""

    def __init__(self, message: str, code: int, kind: str) -> None:
        super().__init__(message)
        self.code = code
        self.kind = kind


def spawn(
    command: Sequence[str],
    env: Mapping[str, str],
    outputs: tuple[int, int],
    pass_fds: Sequence[int] = (),
    deadline: float = math.inf,
) -> int:
    """Start `command` in a new session with our stdin; return its pid. It dies with the launcher, or before its first
    instruction if the `deadline` (monotonic seconds) is over by then. StartError if it cannot be started."""
    try:
        program = subprocess.Popen(
            list(command),
            env=dict(env),
            stdout=outputs[0],
            stderr=outputs[1],
            start_new_session=True,
            pass_fds=tuple(pass_fds),
            preexec_fn=partial(_before_exec, deadline),  # noqa: PLW1509  # the other threads only copy output
        )
    except FileNotFoundError as error:
        raise StartError(f"command not found: {command[0]}", 127, NOT_FOUND) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        kind = NOT_FOUND if isinstance(error, OSError) and error.errno in PERMANENT_ERRORS else ""
        raise StartError(f"cannot start {command[0]}: {reason}", 126, kind) from error
    program.returncode = 0  # the reaper waits for it
    return program.pid


_libc = ctypes.CDLL(None)


def _before_exec(deadline: float) -> None:
    """Runs in the child: restore the limits, die with the launcher, and never begin after the deadline.

    The launcher may have been stopped after it read the clock. An exec keeps PR_SET_PDEATHSIG unless the file is
    set-user-ID.
    """
    restore_limit()
    with contextlib.suppress(AttributeError):
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if time.monotonic() >= deadline:
        os.kill(os.getpid(), signal.SIGKILL)


def kill_children(reaper: Reaper) -> set[int]:
    """SIGKILL every child of this process, adopted ones too, except the spared ones; return the pids still there."""
    reaper.reap()
    remaining = set(children()) - reaper.spared
    for pid in remaining:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return remaining


async def kill_and_wait(reaper: Reaper) -> None:
    """SIGKILL all children and wait for them."""
    reaper.spared.clear()
    await _kill_until_gone(lambda: kill_children(reaper), reaper)


async def _kill_until_gone(kill: Callable[[], set[int]], reaper: Reaper) -> list[int]:
    """Call `kill` until no process is left, or for KILL_SECONDS; return the pids left."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + KILL_SECONDS
    while remaining := kill():
        if loop.time() > deadline:
            return sorted(remaining)
        await reaper.wait_for_exit(0.02)
    return []


class Process:
    """A running program. `pid` is its first process, which leads a session and is, or becomes, our child.

    `ended`, if any, is called once with the status of waitpid(2), as soon as the first process is gone. The program's
    other processes are killed then, as a container ends with its first process.
    """

    def __init__(self, pid: int, reaper: Reaper, ended: Callable[[int], None] | None) -> None:
        self.pid = pid
        self.alive = True
        self._reaper = reaper
        self.ended = ended
        self._group_may_exist = True
        self._killing_rest: asyncio.Future[list[int]] | None = None  # kills the processes that outlive the first one
        reaper.watch(pid, self._end_the_rest)

    def signal(self, number: int) -> None:
        """Send a signal to the first process only, as a container runtime does."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def kill(self) -> list[int]:
        """SIGKILL all processes; return when they are gone, or after KILL_SECONDS with the pids still there."""
        if self._killing_rest is not None:
            self._killing_rest.cancel()  # else it would kill the processes of the next program
        return await _kill_until_gone(self._kill_once, self._reaper)

    def _kill_once(self) -> set[int]:
        remaining = kill_children(self._reaper)
        if self.alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGKILL)
        if self._kill_group() or self.alive:
            remaining.add(self.pid)
        return remaining

    def _kill_group(self) -> bool:
        """SIGKILL the process group; whether it had members. Skip a group that was empty once: its id may be reused."""
        if self._group_may_exist:
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                # A forked program that has not called setsid(2) yet has no group, but is alive.
                self._group_may_exist = self.alive
            except PermissionError:
                self._group_may_exist = False
        return self._group_may_exist

    def _end_the_rest(self, status: int) -> None:
        self.alive = False
        self._kill_group()
        # Helpers in sessions of their own are our children now; each one's children will be when it is gone.
        self._killing_rest = asyncio.ensure_future(_kill_until_gone(self._kill_once, self._reaper))
        if self.ended is not None:
            self.ended(status)
