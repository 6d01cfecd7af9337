"""When to ask a launcher next, and which jobs may have a long poll.

No I/O and no clock: callers pass durations. A pod chooses its answers and their timing, so no answer may lead to more
than one request in FIRST_PAUSE seconds for long.
"""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

FIRST_PAUSE, LONGEST_PAUSE = 2.0, 15.0
# A restart brings several changes within a second, and the operator wants each at once.
QUICK_PAUSE = 0.1
# A long poll that lasted so long, in seconds, shows that changes are rare, or that the launcher delays its clients.
CALM_SECONDS = 2.0
K = TypeVar("K", bound=Hashable)


class PollSchedule:
    """The pauses between the requests to one launcher. `pause` is the next one, in seconds."""

    def __init__(self) -> None:
        self.pause = FIRST_PAUSE
        self._slow, self._quick = FIRST_PAUSE, QUICK_PAUSE

    def reset(self) -> None:
        """Reset the slow pause after a change of the pod."""
        self._slow = FIRST_PAUSE

    def note_unanswered(self) -> None:
        """Note a request without an answer."""
        self._take_slow()

    def note_poll(self, news: bool) -> None:
        """Note an answer of a launcher that does not hold long polls: it is old, or has too many clients."""
        if news:
            self._slow = FIRST_PAUSE
        self._take_slow()

    def note_change(self, after: float) -> None:
        """Note an answer to a long poll after so many seconds."""
        self._slow = FIRST_PAUSE
        if after >= CALM_SECONDS:
            self._quick = QUICK_PAUSE
        self.pause, self._quick = self._quick, min(FIRST_PAUSE, self._quick * 2)

    def _take_slow(self) -> None:
        self.pause, self._slow = self._slow, min(LONGEST_PAUSE, self._slow * 2)


class LongPollTurns(Generic[K]):
    """Shares a limited number of long polls among jobs, in turn, so that no job is limited to plain polls for ever.
    Calls `call` with the key whose turn it is."""

    def __init__(self, most: int, call: Callable[[K], None]) -> None:
        self._most = most
        self._call = call
        self._taken: set[K] = set()
        self._queue: dict[K, None] = {}

    def acquire(self, key: K) -> bool:
        """Take a turn for the key; if False, `call` is called with the key when a turn is free."""
        self._queue.setdefault(key)
        ahead = 0 if next(iter(self._queue)) == key else len(self._queue) - 1
        if len(self._taken) + ahead >= self._most:
            return False
        del self._queue[key]
        self._taken.add(key)
        self._call_next()
        return True

    def release(self, key: K) -> None:
        """Give up the key's turn, or its place in the queue."""
        self._queue.pop(key, None)
        self._taken.discard(key)
        self._call_next()

    def _call_next(self) -> None:
        if self._queue and len(self._taken) < self._most:
            self._call(next(iter(self._queue)))
