"""The program's lease, in the launcher: until when it may run, and the watchdog that enforces it (lease_watchdog.py).

It must never let a program run without the watchdog. The launcher's loop may hang (SIGSTOP, a read from dead storage)
when the lease runs out, and the chief's launcher then starts the next round.
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

from tftraining.launch.process import lease_watchdog
from tftraining.launch.process.reaper import Reaper
from tftraining.launch.wait_for import wait_for

ANSWER_SECONDS = 5.0  # for the watchdog to answer
TRIES = 2


class Lease:
    """The lease of one program, in force from `begin` to `end`. All times are monotonic seconds."""

    def __init__(self, reaper: Reaper) -> None:
        self.watchdog_pid: int | None = None
        self._reaper = reaper
        self._shared = lease_watchdog.shared_table()
        self._socket: socket.socket | None = None
        self._unguarded = False
        self._asking = False

    @property
    def deadline(self) -> float:
        """When the program must be dead; infinite if no lease is in force."""
        return self._shared[lease_watchdog.DEADLINE] or math.inf

    @property
    def is_fenced(self) -> bool:
        """Whether the watchdog has begun to kill the program."""
        return bool(self._shared[lease_watchdog.FENCED])

    @property
    def is_over(self) -> bool:
        """Whether the lease has run out or lost its watchdog; true until `end` or the next `begin`."""
        return self._unguarded or self.is_fenced or time.monotonic() >= self.deadline

    async def begin(self, deadline: float) -> None:
        """Put the lease in force, with a watchdog that answers and is idle. OSError if none can be started."""
        for _ in range(TRIES):
            if self.watchdog_pid is None:
                self._fork()
            self._shared[lease_watchdog.DEADLINE] = deadline
            if await self._watchdog_answers():
                # Only after the answer: before it, the watchdog may still be enforcing the previous lease.
                self._shared[lease_watchdog.FENCED], self._unguarded = 0.0, False
                return
            self._kill_watchdog()
        raise OSError(errno.ETIMEDOUT, "the lease watchdog does not answer")

    def renew(self, deadline: float) -> None:
        """Extend the lease, because the chief has answered. An expired lease stays expired."""
        if not self.is_over and deadline > self.deadline:
            self._shared[lease_watchdog.DEADLINE] = deadline

    def end(self) -> None:
        """End the lease: the program has ended, or no other round will start."""
        self._shared[lease_watchdog.DEADLINE], self._shared[lease_watchdog.FENCED], self._unguarded = 0.0, 0.0, False

    def spare(self, pid: int | None) -> None:
        """Exempt the warm interpreter from the watchdog's kills."""
        self._shared[lease_watchdog.SPARED] = pid or 0

    def close(self) -> None:
        """End the lease and kill the watchdog."""
        self.end()
        self._kill_watchdog()

    def _fork(self) -> None:
        launcher_socket, watchdog_socket = socket.socketpair()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a fork with threads: they copy output, the watchdog needs none
                self.watchdog_pid = lease_watchdog.fork(self._shared, watchdog_socket.fileno())
        except OSError:
            launcher_socket.close()
            raise
        finally:
            watchdog_socket.close()
        launcher_socket.setblocking(False)
        self._socket = launcher_socket
        self._reaper.spared.add(self.watchdog_pid)
        self._reaper.watch(self.watchdog_pid, self._handle_watchdog_exit)

    async def _watchdog_answers(self) -> bool:
        loop, connection = asyncio.get_running_loop(), self._socket
        assert connection is not None
        self._asking = True
        try:
            await loop.sock_sendall(connection, b"?")
            return bool(await wait_for(loop.sock_recv(connection, 1), ANSWER_SECONDS))
        except (OSError, asyncio.TimeoutError):
            return False
        finally:
            self._asking = False

    def _handle_watchdog_exit(self, _: int) -> None:
        """Replace a watchdog that was killed, if a lease is in force."""
        self.watchdog_pid = None
        if self._asking:
            return  # `begin` notices and tries again
        self._close_socket()
        if self.deadline != math.inf:
            try:
                self._fork()
            except OSError:
                self._unguarded = True

    def _kill_watchdog(self) -> None:
        """Kill the watchdog without replacing it."""
        if self.watchdog_pid is not None:
            self._reaper.watch(self.watchdog_pid, lambda _: None)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.watchdog_pid, signal.SIGKILL)
        self._close_socket()

    def _close_socket(self) -> None:
        self.watchdog_pid = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
