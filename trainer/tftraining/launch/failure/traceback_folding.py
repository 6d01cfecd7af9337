"""Folds tracebacks that another member's failure caused: each becomes one line of the log.

The member that failed first prints the traceback that matters. The others' tracebacks, such as "Socket closed", come at
the same moment, are longer, and bury it. Pure: output bytes and times (seconds) come in, bytes to print come out. In
doubt all output passes unchanged and in order. A traceback is folded only if it is cut off or ends in an error that a
lost peer causes, and another member is known to have failed. Until then it is held back with the output after it, for
at most HOLD_SECONDS; no other output ever waits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

VARIABLE = "TFTRAINING_FULL_TRACEBACKS"
HOLD_SECONDS = 2.0
HOLD_BYTES = 1 << 16
REASON_LENGTH = 200

_HEADER = b"Traceback (most recent call last):\n"
# The line that ends a traceback: the name of an exception, often with a message.
_EXCEPTION = re.compile(rb"^[A-Za-z_][\w.]*(: .*)?$")
_OF_A_LOST_PEER = re.compile(
    rb"^[\w.]*\b(Unavailable|Aborted|Cancelled|DeadlineExceeded|FailedPrecondition|Internal|Unknown|BrokenPipe"
    rb"|Connection\w*)Error\b"
)
_CHAINS = (b"During handling of the above exception, another", b"The above exception was the direct cause of the")
# A warning or error of TensorFlow's C++ code, in the format of absl or the older one.
_LOG = re.compile(rb"^([WEF]\d{4} \d\d:\d\d:\d+\.\d+ |\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [WEF] )")
# Unindented lines that continue an exception's message, and the marks of its last line.
_TEXT = re.compile(
    rb"^(Detected at node|Collective ops is aborted by|The error could be from|Additional GRPC error|:?\{\"|\(\d+\) "
    rb"|\d+ (root error|successful op|derived error)|Original stack trace|Function call stack)"
)
_TEXT_END = re.compile(rb"\[Op:|\[\[\{\{node")
_NODE = re.compile(rb"^\{\{function_node [^}]*\}\} *")  # noise to a reader
_TELLING = re.compile(rb"socket closed|connection (re|closed|timed)|heartbeat|broken pipe|no route", re.I)


def wanted(environment: Mapping[str, str]) -> bool:
    """Whether to fold tracebacks: yes, unless the container's environment asks for full ones."""
    return environment.get(VARIABLE, "") in ("", "0")


def of_a_lost_peer(exception: str) -> bool:
    """Whether a lost peer can cause this exception, given as its line (`UnavailableError: Socket closed`)."""
    return bool(_OF_A_LOST_PEER.match(exception.encode("utf-8", "replace")))


class Folding:
    """Folds one output stream of a program, over all rounds."""

    def __init__(self) -> None:
        self._block: _Block | None = None
        self._since = 0.0
        self._cause = ""
        self._line_begins = True

    @property
    def until(self) -> float | None:
        """When to call `tick`; None if nothing is held back."""
        return self._since + HOLD_SECONDS if self._block is not None else None

    def feed(self, data: bytes, now: float) -> bytes:
        """Take in the program's output `data`; return the bytes to print now."""
        passed = b""
        while data:
            if self._block is None:
                begin = self._begin_of_traceback(data)
                passed += self._pass(data[:begin])
                data = data[begin:]
                self._block, self._since = (_Block(), now) if data else (None, now)
            else:
                data = self._block.feed(data)
                if not self._block.doubtful:
                    passed += self._release()
        return passed

    def tick(self, now: float) -> bytes:
        """The bytes to print at `now`, because they were held back long enough."""
        return self.resolve() if self._block is not None and now >= self._since + HOLD_SECONDS else b""

    def blame(self, member: str) -> bytes:
        """Another member has ended the round; "" if the program itself did, or if unknown. The bytes to print now."""
        self._cause = member
        return b"" if member else self._release()

    def resolve(self) -> bytes:
        """Fold or release the held output, because the program is dead or HOLD_SECONDS are over."""
        if self._block is None or not self._cause:
            return self._release()
        block, self._block = self._block, None
        return self._pass(block.folded(self._cause))

    def _release(self) -> bytes:
        block, self._block = self._block, None
        return self._pass(block.text()) if block is not None else b""

    def _begin_of_traceback(self, data: bytes) -> int:
        if self._line_begins and data.startswith(_HEADER):
            return 0
        found = data.find(b"\n" + _HEADER)
        return found + 1 if found >= 0 else len(data)

    def _pass(self, data: bytes) -> bytes:
        self._line_begins = data.endswith(b"\n") if data else self._line_begins
        return data


class _Block:
    """Held output: a traceback from its first line, and all output after it."""

    def __init__(self) -> None:
        #: Whether this may still be a traceback that a lost peer has caused.
        self.doubtful = True
        self._lines: list[bytes] = []
        self._begun = b""
        self._size = 0
        self._in_frames = True
        self._mixed = False  # with another process's traceback
        self._lost_peer = False
        self._error: int | None = None  # the line that names the last exception

    def feed(self, data: bytes) -> bytes:
        """Take in more output; return the rest of it if this turns out not to be a lost peer's traceback."""
        *lines, self._begun = (self._begun + data).split(b"\n")
        for number, line in enumerate(lines):
            fits = self._fits(line)
            if fits:
                self._lines.append(line)
                self._size += len(line) + 1
            if not self.doubtful:
                rest, self._begun = [*lines[number + fits :], self._begun], b""
                return b"\n".join(rest)
        self.doubtful = self._size + len(self._begun) <= HOLD_BYTES
        return b""

    def text(self) -> bytes:
        """All held output, unchanged."""
        return b"".join(line + b"\n" for line in self._lines) + self._begun

    def folded(self, member: str) -> bytes:
        """One line in place of the traceback, and the output after it."""
        lines = [*self._lines, *([self._begun] if self._begun else [])]
        own = len(lines) if self._error is None else self._error + 1 + _length_of_text(lines[self._error + 1 :])
        end = b"" if self._begun and own < len(lines) else b"\n"
        told = f"omitting its traceback of {own} lines: {self._reason(lines[:own])} (set {VARIABLE}=1 to see it)"
        first = f"tftraining: this program failed because of {member}; {told}\n".encode()
        return first + (b"\n".join(lines[own:]) + end if own < len(lines) else b"")

    def _fits(self, line: bytes) -> bool:
        """Whether the line belongs to the block; updates `doubtful`."""
        header = line + b"\n" == _HEADER
        if not self._in_frames:
            self._in_frames = header and self._is_chained()
            return True
        if header or line[:1].isspace():
            self._mixed = self._mixed or (header and bool(self._lines))
            return True
        if not _EXCEPTION.match(line):
            self.doubtful = False
            return False
        self._in_frames, self._error = False, len(self._lines)
        # An exception raised while handling a peer's loss results from that loss.
        self._lost_peer = self._lost_peer or bool(_OF_A_LOST_PEER.match(line))
        self.doubtful = self._lost_peer and not self._mixed
        return True

    def _is_chained(self) -> bool:
        before = [line for line in self._lines[-2:] if line]
        return bool(before) and before[-1].startswith(_CHAINS)

    def _reason(self, lines: list[bytes]) -> str:
        """The exception, with the most informative line of its message."""
        if self._error is None:
            return "killed while printing it"
        name, _, first = lines[self._error].partition(b": ")
        text = [first, *lines[self._error + 1 :]]
        telling = _readable(_NODE.sub(b"", next(filter(_TELLING.search, text), first)))[:REASON_LENGTH]
        return _readable(name).rpartition(".")[2] + (f": {telling}" if telling else "")


def _length_of_text(lines: list[bytes]) -> int:
    """The number of lines after an exception's name that belong to its message, or are TensorFlow's logs about it."""
    alien = (n for n, line in enumerate(lines) if line + b"\n" == _HEADER or _LOG.match(line))
    ends = [n for n, line in enumerate(lines[: next(alien, len(lines))]) if _TEXT_END.search(line)]
    length = ends[-1] + 1 if ends else 0
    while length < len(lines) and _goes_on(lines[length]):
        length += 1
    return length


def _goes_on(line: bytes) -> bool:
    return not line or line[:1].isspace() or bool(_TEXT.match(line) or _LOG.match(line))


def _readable(text: bytes) -> str:
    return text.decode("utf-8", "replace").strip()
