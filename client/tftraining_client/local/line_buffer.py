"""Splits a stream of bytes into whole lines, so that the lines of several processes do not mix. Pure."""

LONGEST = 1 << 16


class LineBuffer:
    """A buffer for one stream. Text overwritten by a carriage return is dropped; lines are cut at LONGEST bytes."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """Add data; the lines that it completes."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        while len(self._rest) > LONGEST:
            whole.append(self._rest[:LONGEST])
            self._rest = self._rest[LONGEST:]
        return [_text(line) for line in whole]

    def close(self) -> list[str]:
        """The last line, if no newline ended it."""
        rest, self._rest = self._rest, b""
        return [_text(rest)] if rest else []


def _text(line: bytes) -> str:
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace")
