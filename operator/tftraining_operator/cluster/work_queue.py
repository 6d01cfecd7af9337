"""The work queue: one worker at a time works on a key; several additions of a key lead to one pass."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from enum import IntEnum

from tftraining_api.kube.api import ApiError
from tftraining_api.model.names import Key

logger = logging.getLogger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0
# Of so many keys that are taken while a lane and a later one have keys, one is of the later lane: a stream of new jobs
# must not hold up the others.
OTHER_TURNS = 4


class Lane(IntEnum):
    """Which keys come first: those of new jobs, for which somebody waits; then the others; then those whose last pass
    has given way to others."""

    NEW = 0
    OTHER = 1
    INTERRUPTED = 2


class _Lanes:
    """Keys in order of arrival in each lane; each lane comes before the later ones, but for one turn in OTHER_TURNS."""

    def __init__(self) -> None:
        self._lanes: tuple[deque[Key], ...] = tuple(deque() for _ in Lane)
        self._added = asyncio.Semaphore(0)
        self._turns = [0 for _ in Lane]

    def put(self, key: Key, lane: Lane) -> None:
        """Add a key."""
        self._lanes[lane].append(key)
        self._added.release()

    async def take(self) -> Key:
        """Wait for a key, and remove it."""
        await self._added.acquire()
        *earlier, last = (lane for lane in Lane if self._lanes[lane])
        for lane in earlier:
            self._turns[lane] = (self._turns[lane] + 1) % OTHER_TURNS
            if self._turns[lane]:
                return self._lanes[lane].popleft()
        return self._lanes[last].popleft()


class WorkQueue:
    """A queue of keys. Times are in seconds. The attribute `waited` is called with the seconds that a key has waited
    for its worker; `failed` after each failing pass, with the key, the error and the number of failures in a row.
    `lane` says which keys come first."""

    def __init__(self) -> None:
        self.waited: Callable[[float], None] = lambda seconds: None
        self.failed: Callable[[Key, Exception, int], Awaitable[None]] | None = None
        self.lane: Callable[[Key], Lane] = lambda key: Lane.OTHER
        self._ready = _Lanes()
        # The keys in `_ready`, and since when.
        self._waiting: dict[Key, float] = {}
        self._working: set[Key] = set()
        self._again: set[Key] = set()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}
        self._paused = False
        self._workers = 0

    @property
    def crowded(self) -> bool:
        """Whether keys wait because all workers work."""
        return bool(self._waiting) and len(self._working) >= self._workers

    @property
    def depth(self) -> int:
        """The number of keys that wait for a worker."""
        return len(self._waiting)

    @property
    def failing(self) -> int:
        """The number of keys whose last pass failed."""
        return len(self._failures)

    def pause(self) -> None:
        """Drop added keys until `resume`: a queue without workers would collect the keys of all jobs that ever were."""
        self._paused = True

    def resume(self, keys: Iterable[Key]) -> None:
        """Take in keys again, beginning with these."""
        self._paused = False
        for key in keys:
            self.add(key)

    def add(self, key: Key) -> None:
        """Work on the key as soon as a worker is free; if a worker has the key, once more after that."""
        if self._paused:
            return
        if key in self._working:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting[key] = time.monotonic()
            self._ready.put(key, self.lane(key))

    def add_within(self, key: Key, seconds: float) -> None:
        """Work on the key within `seconds`: its timer suffices if it fires by then, otherwise as `add`."""
        timer = self._timers.get(key)
        if timer is None or timer.when() > asyncio.get_running_loop().time() + seconds:
            self.add(key)

    def add_after(self, key: Key, seconds: float) -> None:
        """Work on the key after `seconds`. A key has one timer: the earliest time wins, and a pass clears it."""
        loop = asyncio.get_running_loop()
        due = loop.time() + max(0.0, seconds)
        if (timer := self._timers.get(key)) is not None:
            if timer.when() <= due:
                return
            timer.cancel()
        self._timers[key] = loop.call_at(due, self._timer_fired, key)

    def _timer_fired(self, key: Key) -> None:
        self._timers.pop(key, None)
        self.add(key)

    async def run(self, work: Callable[[Key], Awaitable[None]]) -> None:
        """Run one worker until cancelled. A failing pass is logged and retried later; it never stops other passes."""
        self._workers += 1
        while True:
            key = await self._ready.take()
            self.waited(time.monotonic() - self._waiting.pop(key))
            self._working.add(key)
            if (timer := self._timers.pop(key, None)) is not None:
                timer.cancel()
            try:
                await work(key)
                self._failures.pop(key, None)
            except Exception as error:
                self._retry(key, error)
                await self._report(key, error)
            finally:
                self._working.discard(key)
                if key in self._again:
                    self._again.discard(key)
                    self.add(key)
            # Let other tasks run between two passes: freeing a large job's objects takes time, and so does the start
            # of the next pass.
            await asyncio.sleep(0)

    def _retry(self, key: Key, error: Exception) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures - 1, 10))
        if isinstance(error, ApiError):
            pause = max(pause, error.retry_after)
        # An error of the API server needs no traceback: it is not a fault of this program.
        trace = None if isinstance(error, ApiError) else error
        logger.error("%s: reconcile failed: %s; retrying in %.1f s", key, error, pause, exc_info=trace)
        self.add_after(key, pause)

    async def _report(self, key: Key, error: Exception) -> None:
        if self.failed is None:
            return
        try:
            await self.failed(key, error, self._failures[key])
        except Exception as second:
            # The report is for people; the worker has to go on.
            trace = None if isinstance(second, ApiError) else second
            logger.warning("%s: cannot report the failing pass: %s", key, second, exc_info=trace)

    def close(self) -> None:
        """Cancel the timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
