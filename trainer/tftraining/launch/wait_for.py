"""asyncio.wait_for as it is from Python 3.12 on: a cancellation is never lost.

Before 3.12, asyncio.wait_for returns the result, instead of raising CancelledError, where both come in the same moment.
The cancelled task then goes on: it may kill the processes of the next program.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

_T = TypeVar("_T")


async def wait_for(awaitable: Awaitable[_T], seconds: float) -> _T:
    """The result of `awaitable`; asyncio.TimeoutError, and its cancellation, after `seconds`."""
    future = asyncio.ensure_future(awaitable)
    try:
        await asyncio.wait({future}, timeout=seconds)
        if not future.done():
            future.cancel()
            await asyncio.wait({future})
    except asyncio.CancelledError:
        future.cancel()
        future.add_done_callback(_retrieve_exception)
        raise
    if future.cancelled():
        raise asyncio.TimeoutError
    return future.result()


async def in_thread(work: Callable[[], _T]) -> _T:
    """The result of `work`, run in a thread, for a file system may hang for ever."""
    return await asyncio.get_running_loop().run_in_executor(None, work)


def _retrieve_exception(future: asyncio.Future[_T]) -> None:
    """Nobody else will: without it, asyncio would log that nobody did."""
    if not future.cancelled():
        future.exception()
