"""Passes the program's output on as it comes, and keeps its last lines; see folding.py for what is left out.

The pipes live as long as the launcher; every round's program writes into the same two. A reader of the launcher's own
output who stops reading slows the program down, as it would without a launcher, but must never block the event loop:
all writing is done by one thread a stream.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import re
import select
import termios
import threading
import time
from collections import deque
from collections.abc import Callable

from tftraining.launch.exception import FAR, LastException
from tftraining.launch.folding import Folding

LINES = 40
LINE_BYTES = 4096  # of a line that has no end yet: a progress bar may never have one
BACKLOG_BYTES = 1 << 20  # read ahead of a reader who is slow or gone
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")


class Tail:
    """The last lines of the present round, of both streams in the order of their arrival, for a person to read."""

    def __init__(self, limit: int = LINES) -> None:
        self._lines: deque[str] = deque(maxlen=limit)
        self._begun: dict[int, bytes] = {}
        self._exceptions = {1: LastException(), 2: LastException()}
        self._lock = threading.Lock()

    def feed(self, stream: int, data: bytes) -> None:
        """Take in what came from `stream` (1 or 2)."""
        with self._lock:
            *lines, begun = (self._begun.get(stream, b"") + data).split(b"\n")
            texts = [readable(line) for line in lines[-2 * FAR :]]
            self._lines.extend(texts[-LINES:])
            for text in texts:
                self._exceptions[stream].see(text)
            self._begun[stream] = begun[-LINE_BYTES:]

    def clear(self) -> None:
        """A new round begins."""
        with self._lock:
            self._lines.clear()
            self._begun.clear()
            self._exceptions = {1: LastException(), 2: LastException()}

    def exception(self) -> str:
        """The line of the last exception that was printed, "" if none was. Python prints them to stderr."""
        with self._lock:
            return self._exceptions[2].line or self._exceptions[1].line

    def lines(self) -> tuple[str, ...]:
        """The last lines, those without an end included."""
        with self._lock:
            begun = [readable(line) for line in self._begun.values() if line.strip()]
            return tuple([*self._lines, *begun][-LINES:])


def readable(line: bytes) -> str:
    """A line as a terminal would show it at the end: the last of what carriage returns wrote over, no escapes."""
    text = line[-LINE_BYTES:].decode("utf-8", "replace").rstrip("\r")
    return _ESCAPES.sub("", text.rpartition("\r")[2])


def write_all(fd: int, data: bytes) -> None:
    """Write everything. Another process may have made `fd` non-blocking for all who have it: then its reader is waited
    for here. OSError as of write(2)."""
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()


def _waiting(fd: int) -> int:
    """Bytes that can be read from a pipe at once."""
    count = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, count)
    return count[0]


class Pump:
    """One stream: `end` is what the program gets; whatever is written there goes to `feed`, and to `sink` as folded."""

    def __init__(self, sink: int, feed: Callable[[bytes], None], folding: Folding | None = None) -> None:
        self._source, self.end = os.pipe()
        self._wakes, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._sink = sink
        self._feed = feed
        self._folding = folding
        self._lock = threading.Lock()
        self._backlog: deque[bytes] = deque()
        self._held = 0
        self._newline = True
        self._thread = threading.Thread(target=self._run, name=f"output-{sink}", daemon=True)
        self._thread.start()

    def take(self) -> None:
        """Read what is there now, so that the tail is complete; never blocks, and what was read is still passed on."""
        with self._lock:
            while self._held < BACKLOG_BYTES:
                count = _waiting(self._source)
                if not count:
                    break
                self._feed(data := os.read(self._source, min(count, 1 << 16)))
                self._keep(data if self._folding is None else self._folding.feed(data, time.monotonic()))

    def make_blocking(self) -> None:
        """Undo what an earlier program has set on its end, which all rounds share: a program that does not know that
        its output is non-blocking loses whatever does not fit into the pipe."""
        os.set_blocking(self.end, True)

    def fold(self, decide: Callable[[Folding], bytes]) -> None:
        """Pass on what becomes of the tracebacks by a decision; never blocks."""
        if self._folding is not None:
            self.take()
            with self._lock:
                self._keep(decide(self._folding))
            self.wake()

    def say(self, line: str) -> None:
        """Put a whole line of our own into the stream; never blocks."""
        with self._lock:
            self._keep(f"{line}\n".encode(), own=True)
        self.wake()

    def wake(self) -> None:
        """Have the thread write what `take` has read."""
        with contextlib.suppress(BlockingIOError):  # full of calls already
            os.write(self._wake, b".")

    def close(self, timeout: float) -> None:
        """Pass on what is left and end; a sink that is stuck is left alone after `timeout` seconds."""
        os.close(self.end)
        self._thread.join(timeout)
        if not self._thread.is_alive():
            for fd in (self._source, self._wake, self._wakes):
                os.close(fd)

    def _keep(self, data: bytes, own: bool = False) -> None:
        if not data:
            return
        if own and not self._newline:
            data = b"\n" + data
        self._newline = data.endswith(b"\n")
        self._backlog.append(data)
        self._held += len(data)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        poll.register(self._wakes, select.POLLIN)
        ended = False
        while not ended:
            events = dict(poll.poll(self._patience()))
            if self._wakes in events:
                os.read(self._wakes, 4096)
            self.take()
            ended = bool(events.get(self._source, 0) & select.POLLHUP) and not _waiting(self._source)
            self._let_go(ended)
            self._write_backlog()

    def _patience(self) -> float | None:
        """Milliseconds until what is held back has to be passed on."""
        with self._lock:
            until = self._folding.until if self._folding is not None else None
        return None if until is None else max(0.0, until - time.monotonic()) * 1000 + 1

    def _let_go(self, ended: bool) -> None:
        if self._folding is not None:
            with self._lock:
                self._keep(self._folding.resolve() if ended else self._folding.tick(time.monotonic()))

    def _write_backlog(self) -> None:
        while True:
            with self._lock:
                if not self._backlog:
                    return
                data = self._backlog.popleft()
            # A sink that is closed or full for good must not end the program: its output is dropped.
            with contextlib.suppress(OSError):
                write_all(self._sink, data)
            with self._lock:
                self._held = sum(map(len, self._backlog))


class Output:
    """Both streams of the program and their tail. Make it once in a launcher's life. `folds`: see folding.py."""

    def __init__(self, stdout: int = 1, stderr: int = 2, folds: bool = True) -> None:
        self._tail = Tail()
        self._out = Pump(stdout, lambda data: self._tail.feed(1, data))
        self._err = Pump(stderr, lambda data: self._tail.feed(2, data), Folding() if folds else None)

    @property
    def ends(self) -> tuple[int, int]:
        """The descriptors that become the program's stdout and stderr."""
        return self._out.end, self._err.end

    def begin(self) -> None:
        """A new round: what was printed before is passed on, but is not its tail."""
        for pump in (self._out, self._err):
            pump.make_blocking()
        self._take()
        self._err.fold(lambda folding: folding.resolve() + folding.blame(""))
        self._tail.clear()

    def blame(self, member: str) -> None:
        """The round is over because of this other member, "": not because of another one that is known."""
        self._err.fold(lambda folding: folding.blame(member))

    def settle(self) -> None:
        """The program is dead: hold nothing of it back."""
        self._err.fold(Folding.resolve)

    def lines(self) -> tuple[str, ...]:
        """The last lines of this round, up to what the program has written at this moment."""
        self._take()
        return self._tail.lines()

    def exception(self) -> str:
        """The last exception of this round, up to what the program has written at this moment."""
        self._take()
        return self._tail.exception()

    def say(self, line: str) -> None:
        """A line of the launcher's own, to stderr; never blocks."""
        self._err.say(line)

    def close(self, timeout: float = 1.0) -> None:
        """Pass on what is left; a reader that is stuck is given `timeout` seconds a stream."""
        self._out.close(timeout)
        self._err.close(timeout)

    def _take(self) -> None:
        for pump in (self._out, self._err):
            pump.take()
            pump.wake()
