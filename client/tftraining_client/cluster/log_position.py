"""Where the reader of a log stands, so that a log that is opened again continues with the next line. Pure.

A log is opened again at a whole second, so lines come twice: those before the last line are known by their time, those
of the same time by their number.
"""

import re
from datetime import UTC, datetime

_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")
SECOND = 1_000_000_000


def parse_line(line: bytes) -> tuple[int | None, str]:
    """The time of a line in nanoseconds since 1970, and its text; None if the line begins with no time."""
    stamp, _, text = line.decode(errors="replace").partition(" ")
    found = _STAMP.fullmatch(stamp)
    if found is None:
        return None, line.decode(errors="replace")
    seconds = datetime.fromisoformat(found[1] + found[3]).timestamp()
    return int(seconds) * SECOND + int((found[2] or "0").ljust(9, "0")), text


class LogPosition:
    """The position after the last line that was read."""

    def __init__(self) -> None:
        self.last: int | None = None
        self._count = 0
        self._skip = 0
        self._until: int | None = None

    @property
    def since(self) -> str | None:
        """The parameter `sinceTime` for the next reading; None before the first line."""
        if self.last is None:
            return None
        return datetime.fromtimestamp(self.last // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def reopen(self) -> None:
        """The log is about to be read again from `since`."""
        self._until, self._skip = self.last, self._count

    def admit(self, time: int | None) -> bool:
        """Whether the line of that time is new. A line without a time is a message of the API server or the kubelet."""
        if time is None:
            return False
        if self._until is not None:
            if time < self._until:
                return False
            if time == self._until and self._skip:
                self._skip -= 1
                return False
            if time > self._until:
                self._until = None
        self._count = self._count + 1 if time == self.last else 1
        self.last = time
        return True

    @property
    def missed(self) -> bool:
        """Whether lines may be missing: a new line came, but not the last known one before it, as after a rotation."""
        return self._skip > 0 and self._until is None
