"""The API server's time, estimated from the Date header of its answers: the clock to compare stored times with.

The clock of this machine may be wrong, and may be set at any moment: it counts only until the first answer. Between two
answers the seconds since the machine's start count, which nobody sets.
"""

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def boot_clock() -> float:
    """Seconds since the machine's start. They go on while the machine is suspended, unlike time.monotonic() on Linux:
    a leader that was suspended must find its lease expired."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class ServerClock:
    """The estimate. Its parts are seconds: the server's time since 1970 less `seconds()` lies between two bounds."""

    def __init__(self, seconds: Callable[[], float] = boot_clock) -> None:
        self.seconds = seconds
        self._least, self._most = -math.inf, math.inf

    def note(self, date: str, sent: float) -> None:
        """Take in the Date header of an answer that has just come to a request of that time of `seconds()`.

        The header leaves out the fraction of the second. An answer that contradicts the estimate, as of another API
        server, moves the estimate no further than it must.
        """
        try:
            stated = parsedate_to_datetime(date).timestamp()
        except (ValueError, OverflowError):
            return
        least, most = stated - self.seconds(), stated + 1 - sent
        self._least = min(max(self._least, least), most)
        self._most = max(min(self._most, most), least)

    def now(self) -> datetime:
        """The server's time, less a second at most: an object that is created now is not older. Before the first answer
        the time of this machine."""
        if math.isinf(self._least):
            return datetime.now(UTC)
        return datetime.fromtimestamp(self._least + self.seconds(), UTC)
