"""Runs the leader election in a thread with an event loop of its own: the lease is renewed while the operator's event
loop is busy with a large job. The fence and the writes that it holds stay in the operator's event loop.

The thread does not renew for a process that hangs: see Fence.stands_still.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tftraining_api.kube.api import Api
from tftraining_operator.cluster.leader_election import LeaderElector

Answer = TypeVar("Answer")


class Election:
    """The thread of `elector`, with a connection to the API server that nobody else uses."""

    def __init__(self, elector: LeaderElector, api: Api) -> None:
        self.elector = elector
        self._api = api
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="leader-election", daemon=True)
        self._thread.start()

    def count(self, requests: Counter[str], answered: Callable[[str, int, float], None]) -> None:
        """Count the requests of the election with those of the operator."""
        self._api.requests, self._api.answered = requests, answered

    async def run(self) -> str:
        """As LeaderElector.run."""
        return await self._in_thread(self.elector.run())

    async def resign(self, drain_seconds: float) -> None:
        """Send no more writes, wait until those in flight have ended, and let another candidate lead at once. To be
        called after the task of `run` has ended.

        The API server may carry out a write whose answer nobody awaits any more: then the lease has to expire.
        """
        if await self.elector.fence.drain(drain_seconds):
            await self._in_thread(self.elector.release())
        self.elector.fence.close()

    async def close(self) -> None:
        """End the thread."""
        await self._in_thread(self._api.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()

    async def _in_thread(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))
