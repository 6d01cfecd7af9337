"""When a launcher is asked next, and which jobs may have a question that hangs until something has changed.

Pure but for the loop's clock that others read: no I/O. A pod decides what it answers and when, so nothing that it says
may make it be asked more often than once in FIRST_PAUSE seconds for long.
"""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

FIRST_PAUSE, LONGEST_PAUSE = 2.0, 15.0
# A restart is several changes within a second: each is to be known at once.
QUICK_PAUSE = 0.1
# A question that hung for so long came to a launcher where all is calm, or that makes its clients wait.
CALM = 2.0
K = TypeVar("K", bound=Hashable)


class Pace:
    """The pauses between the questions to one launcher. `pause` is the next one."""

    def __init__(self) -> None:
        self.pause = FIRST_PAUSE
        self._slow, self._quick = FIRST_PAUSE, QUICK_PAUSE

    def begin_again(self) -> None:
        """Something is new about the pod."""
        self._slow = FIRST_PAUSE

    def note_silence(self) -> None:
        """It did not answer."""
        self._take_slow()

    def note_poll(self, news: bool) -> None:
        """It answered at once, and cannot be waited for: an old one, or one that has too many clients."""
        if news:
            self._slow = FIRST_PAUSE
        self._take_slow()

    def note_change(self, after: float) -> None:
        """It can be waited for, and answered after so many seconds."""
        self._slow = FIRST_PAUSE
        if after >= CALM:
            self._quick = QUICK_PAUSE
        self.pause, self._quick = self._quick, min(FIRST_PAUSE, self._quick * 2)

    def _take_slow(self) -> None:
        self.pause, self._slow = self._slow, min(LONGEST_PAUSE, self._slow * 2)


class Turns(Generic[K]):
    """Who may have a question that hangs, when not all may: one after the other, so that nobody is left to be polled
    for ever. `call` is told whose turn it is."""

    def __init__(self, most: int, call: Callable[[K], None]) -> None:
        self._most = most
        self._call = call
        self._taken: set[K] = set()
        self._queue: dict[K, None] = {}

    def take(self, key: K) -> bool:
        """Whether it is the turn of this one; if not, it is called when it is."""
        self._queue.setdefault(key)
        ahead = 0 if next(iter(self._queue)) == key else len(self._queue) - 1
        if len(self._taken) + ahead >= self._most:
            return False
        del self._queue[key]
        self._taken.add(key)
        self._call_next()
        return True

    def give(self, key: K) -> None:
        """Its question is over, or it has none that would hang: it neither has a turn nor waits for one."""
        self._queue.pop(key, None)
        self._taken.discard(key)
        self._call_next()

    def _call_next(self) -> None:
        if self._queue and len(self._taken) < self._most:
            self._call(next(iter(self._queue)))
