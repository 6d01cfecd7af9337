"""The launcher's side of the program's lease: until when it may run, and the process that enforces it (fence.py).

It must never let a program run without that process: its loop may stand still (SIGSTOP, a read from storage that hangs)
just when the lease runs out, and the chief's launcher starts the next round then.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
import signal
import socket
import time
import warnings

from tftraining.launch import fence
from tftraining.launch.reaper import Reaper

ANSWER_SECONDS = 5.0  # for the process to say that it is there
TRIES = 2


class Lease:
    """Not in force until `begin`. All times are monotonic seconds."""

    def __init__(self, reaper: Reaper) -> None:
        self.pid: int | None = None
        self._reaper = reaper
        self._shared = fence.table()
        self._socket: socket.socket | None = None
        self._unguarded = False
        self._asking = False

    @property
    def deadline(self) -> float:
        """When nothing of the program may run any more; infinite where no lease is in force."""
        return self._shared[fence.DEADLINE] or math.inf

    @property
    def fenced(self) -> bool:
        """Whether the process has begun to end the program."""
        return bool(self._shared[fence.FENCED])

    @property
    def over(self) -> bool:
        """Whether the lease has run out; it stays so until the next one begins."""
        return self._unguarded or self.fenced or time.monotonic() >= self.deadline

    async def begin(self, deadline: float) -> None:
        """Put it in force: the process is there, has answered, and is at nothing else. OSError if there can be none."""
        for _ in range(TRIES):
            if self.pid is None:
                self._fork()
            self._shared[fence.DEADLINE] = deadline
            if await self._answers():
                # Not before: it may have been in the middle of enforcing the last one.
                self._shared[fence.FENCED], self._unguarded = 0.0, False
                return
            self._drop()
        raise OSError(errno.ETIMEDOUT, "the lease watchdog does not answer")

    def renew(self, deadline: float) -> None:
        """The chief was heard of. A lease that is over is not renewed."""
        if not self.over and deadline > self.deadline:
            self._shared[fence.DEADLINE] = deadline

    def end(self) -> None:
        """Nothing runs any more, or nobody starts another round: there is nothing left to enforce."""
        self._shared[fence.DEADLINE], self._shared[fence.FENCED], self._unguarded = 0.0, 0.0, False

    def spare(self, pid: int | None) -> None:
        """The warm interpreter, which stays when the program is ended."""
        self._shared[fence.SPARED] = pid or 0

    def close(self) -> None:
        """End the process."""
        self.end()
        self._drop()

    def _fork(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that threads run: they copy output, and the fork needs none of them
                self.pid = fence.fork(self._shared, theirs.fileno())
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        self._socket = ours
        self._reaper.watch(self.pid, self._died)

    async def _answers(self) -> bool:
        loop, asked = asyncio.get_running_loop(), self._socket
        assert asked is not None
        self._asking = True
        try:
            await loop.sock_sendall(asked, b"?")
            return bool(await asyncio.wait_for(loop.sock_recv(asked, 1), ANSWER_SECONDS))
        except (OSError, asyncio.TimeoutError):
            return False
        finally:
            self._asking = False

    def _died(self, _: int) -> None:
        """Somebody has killed it: another one takes its place at once, if it has one to take."""
        self.pid = None
        if self._asking:
            return  # who asks finds out
        self._forget()
        if self.deadline != math.inf:
            try:
                self._fork()
            except OSError:
                self._unguarded = True

    def _drop(self) -> None:
        """It is not wanted any more, or does not answer."""
        if self.pid is not None:
            self._reaper.watch(self.pid, lambda _: None)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self._forget()

    def _forget(self) -> None:
        self.pid = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
