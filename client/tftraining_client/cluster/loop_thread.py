"""An event loop in a thread of its own: the one owner of both, and of the generators that run there.

Its end closes the generators one after the other, the outermost first, and then what they used. It must come before the
end of Python, at which a daemon thread stands still and whoever waits for it waits forever.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from typing import Any, TypeVar

from tftraining_client.errors import UserError

T = TypeVar("T")
CLOSED = "the client is closed: make a new one"


class LoopThread:
    """Runs coroutines for other threads. `last` is awaited at the end."""

    def __init__(self, last: Callable[[], Awaitable[None]]) -> None:
        self._last = last
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()  # between a call and the end
        self._closed = False
        self._calls: set[asyncio.Task[Any]] = set()
        self._generators: list[AsyncGenerator[Any, None]] = []
        self._thread = threading.Thread(target=self._run, name="tftraining-client", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the coroutine; UserError after the end."""
        answer: Future[T] = Future()
        tasks: list[asyncio.Task[T]] = []

        def start() -> None:
            tasks.append(self._loop.create_task(work))
            self._calls.add(tasks[0])
            tasks[0].add_done_callback(self._calls.discard)
            tasks[0].add_done_callback(lambda task: _hand_over(task, answer))

        def stop() -> None:
            if tasks:
                tasks[0].cancel()
            else:  # Ctrl-C came before `start`
                work.close()
                answer.set_exception(CancelledError())

        try:
            with self._lock:
                if self._closed:
                    work.close()
                    answer.set_exception(UserError(CLOSED))
                else:
                    self._loop.call_soon_threadsafe(start)
            return answer.result()
        except BaseException:
            # After Ctrl-C the request must not go on alone, and its generator can be closed only once it has ended.
            if not answer.done():
                self._loop.call_soon_threadsafe(stop)
                wait([answer])
            raise

    def open(self, items: AsyncGenerator[Any, None]) -> None:
        """Note a generator that is to be closed."""
        self._generators.append(items)

    def close_generator(self, items: AsyncGenerator[Any, None]) -> None:
        """Close a generator, unless the end has done that."""
        if not self._closed:
            self._generators.remove(items)
            self.call(items.aclose())

    def close(self) -> None:
        """Close everything, and end the thread."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self._end()))
        # The garbage collector may run in the thread itself.
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    async def _end(self) -> None:
        try:
            calls = tuple(self._calls)
            for task in calls:
                task.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            for items in reversed(self._generators):
                with suppress(Exception):
                    await items.aclose()
            await self._loop.shutdown_asyncgens()
            await self._last()
        finally:
            self._loop.stop()


def _hand_over(task: asyncio.Task[T], answer: Future[T]) -> None:
    """Give the result of the task to the thread that waits for the answer."""
    if task.cancelled():
        answer.set_exception(CancelledError())
    elif (error := task.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(task.result())
