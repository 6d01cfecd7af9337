"""Whole lines out of a stream of bytes, such that the lines of several processes can be told apart. Pure."""

LONGEST = 1 << 16


class Lines:
    """Of what is drawn over with a carriage return only the last stays; a line without end is cut at LONGEST bytes."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """The lines that are complete now."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        while len(self._rest) > LONGEST:
            whole.append(self._rest[:LONGEST])
            self._rest = self._rest[LONGEST:]
        return [_text(line) for line in whole]

    def close(self) -> list[str]:
        """The last line, if it had no end."""
        rest, self._rest = self._rest, b""
        return [_text(rest)] if rest else []


def _text(line: bytes) -> str:
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace")
