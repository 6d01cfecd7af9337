"""The fence of the leader election: this process sends no write to the API server unless it leads.

A process leads until a deadline, which each renewal of its lease moves on. Past the deadline the fence is closed for
good: writes in flight are cancelled, and later ones are never sent. They wait until the process, which ends then,
cancels them: an error would count as a refusal by the API server.

The leader election extends and closes the fence from a thread of its own; writes pass it in the operator's event loop.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tftraining_api.kube.api import Api, Query
from tftraining_api.kube.server_clock import boot_clock
from tftraining_api.model.spec import Manifest

# An event loop that has not moved for so long hangs: another process must take over.
STALL_SECONDS = 5.0
BEAT_SECONDS = 0.5


class Fence:
    """Admits writes until the deadline. Before the first `extend` it is closed, but not for good. It belongs to the
    event loop in which it is made; `open`, `extend`, `close` and `stands_still` may be used in any thread."""

    def __init__(self, clock: Callable[[], float] = boot_clock) -> None:
        self.clock = clock
        self._loop = asyncio.get_running_loop()
        self._moved_at = math.inf
        self.deadline = -math.inf
        self._opened = asyncio.Event()
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._writes: set[asyncio.Timeout] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def open(self) -> bool:
        """Whether a write may be sent now. The clock counts, not the timer: a process that was stopped runs what it
        had to do before its timers."""
        if self.was_opened and not self._closed and self.clock() >= self.deadline:
            self.close()
        return self.was_opened and not self._closed

    @property
    def was_opened(self) -> bool:
        """Whether this process has led."""
        return self.deadline > -math.inf

    @property
    def stands_still(self) -> bool:
        """Whether the event loop of the writes has not moved for STALL_SECONDS, although `keep_moving` runs."""
        return self.clock() - self._moved_at > STALL_SECONDS

    async def keep_moving(self) -> None:
        """Show, until cancelled, that the event loop moves."""
        while True:
            self._moved_at = self.clock()
            await asyncio.sleep(BEAT_SECONDS)

    async def opened(self) -> None:
        """Wait until the fence is open for the first time."""
        await self._opened.wait()

    def extend(self, deadline: float) -> None:
        """Admit writes until this time of the clock, unless the fence is closed for good."""
        if self._closed or (self.was_opened and not self.open):
            return
        self.deadline = max(self.deadline, deadline)
        self._in_loop(self._set_timer)

    def _set_timer(self) -> None:
        self._opened.set()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(0.0, self.deadline - self.clock()), self._check)

    def _check(self) -> None:
        """At the deadline; a little later if the timer's clock is ahead."""
        if self.open:
            self._set_timer()

    def close(self) -> None:
        """Close for good, and cancel the writes in flight."""
        self._closed = True
        self._in_loop(self._cancel_writes)

    def _in_loop(self, call: Callable[[], None]) -> None:
        """Call it in the event loop of the writes: now if this is its thread."""
        if asyncio._get_running_loop() is self._loop:
            call()
        else:
            self._loop.call_soon_threadsafe(call)

    def _cancel_writes(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for each in self._writes:
            if not each.expired():
                each.reschedule(self._loop.time())

    async def drain(self, seconds: float) -> bool:
        """Admit no more writes, and let those in flight end. Whether all of them have ended before the deadline."""
        was_open = self.open
        self._closed = True
        try:
            async with asyncio.timeout(max(0.0, min(seconds, self.deadline - self.clock()))):
                await self._idle.wait()
        except TimeoutError:
            self.close()
            return False
        return was_open and self.clock() < self.deadline

    @asynccontextmanager
    async def write(self) -> AsyncIterator[None]:
        """Hold one write: wait until the fence is open; wait for ever if it is closed for good, or closes meanwhile."""
        await self._opened.wait()
        if not self.open:
            await _for_ever()
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._writes.add(limit)
                self._idle.clear()
                try:
                    yield
                finally:
                    self._writes.discard(limit)
                    if not self._writes:
                        self._idle.set()
        except TimeoutError:
            if not limit.expired():
                raise
            await _for_ever()


class FencedApi(Api):
    """A connection to the API server whose writes pass the fence; it shares the connections and counters of `api`."""

    def __init__(self, api: Api, fence: Fence) -> None:
        super().__init__(api._transport, api.inside, api._refused)
        self.requests, self.clock, self.warnings = api.requests, api.clock, api.warnings
        self._unfenced = api
        self._fence = fence

    async def close(self) -> None:
        """Close the connections, those of `api` included."""
        self._cancelled |= self._unfenced._cancelled
        await super().close()

    async def request(self, method: str, path: str, body: Any = None, query: Query | None = None) -> Manifest:
        """As Api.request; any other method than GET only while this process leads."""
        if method == "GET":
            return await super().request(method, path, body, query)
        async with self._fence.write():
            return await super().request(method, path, body, query)

    async def _before_resend(self, method: str) -> None:
        """Send no write of a process that was suspended in the pause: the fence's timer may be late, its clock not."""
        if method != "GET" and not self._fence.open:
            await _for_ever()


async def _for_ever() -> None:
    """Wait until cancelled."""
    await asyncio.get_running_loop().create_future()
