"""Forwards the program's output as it arrives, and keeps its last lines; traceback_folding.py omits some tracebacks.

`bounded` of failure/exit.py cuts the last lines to what the status may have.

The pipes live as long as the launcher; every round's program writes into the same two. A reader of the launcher's own
output that stops reading slows the program down, as it would without a launcher, but must never block the event loop:
one thread a stream does all writing.
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

from tftraining.launch.failure.cause import is_noise
from tftraining.launch.failure.exception import FAR, LastException
from tftraining.launch.failure.traceback_folding import Folding

LINES = 40
LINE_BYTES = 4096  # kept of a line's beginning, which tells most; a line may be an array, or never end
BACKLOG_BYTES = 1 << 20  # buffered for a reader that is slow or gone
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")


class OutputTail:
    """The last lines of the present round, from both streams in the order of their arrival, for people: without those
    of TensorFlow's own log that say nothing about a failure."""

    def __init__(self, limit: int = LINES) -> None:
        self._lines: deque[str] = deque(maxlen=limit)
        self._begun: dict[int, bytes] = {}
        self._exceptions = {1: LastException(), 2: LastException()}
        self._lock = threading.Lock()

    def feed(self, stream: int, data: bytes) -> None:
        """Add data from `stream` (1 or 2)."""
        with self._lock:
            *lines, begun = (self._begun.get(stream, b"") + data).split(b"\n")
            texts = [readable(line) for line in lines[-2 * FAR :]]
            self._lines.extend(text for text in texts if not is_noise(text))
            for text in texts:
                self._exceptions[stream].see(text)
            self._begun[stream] = _last_print(begun)

    def clear(self) -> None:
        """Forget all lines, for a new round."""
        with self._lock:
            self._lines.clear()
            self._begun.clear()
            self._exceptions = {1: LastException(), 2: LastException()}

    def exception(self) -> str:
        """The line of the last printed exception, "" if there is none; stderr first, where Python prints them."""
        with self._lock:
            return self._exceptions[2].line or self._exceptions[1].line

    def lines(self) -> tuple[str, ...]:
        """The last lines, unfinished ones included."""
        with self._lock:
            begun = [readable(line) for line in self._begun.values() if line.strip()]
            return tuple([*self._lines, *begun][-LINES:])


def readable(line: bytes) -> str:
    """A line as a terminal finally shows it: the text after the last carriage return, without escape sequences."""
    return _ESCAPES.sub("", _last_print(line).rstrip(b"\r").decode("utf-8", "replace"))


def _last_print(line: bytes) -> bytes:
    """What a progress bar has printed last over its line, with a carriage return at its end."""
    text = line.rstrip(b"\r")
    return text.rpartition(b"\r")[2][:LINE_BYTES] + (b"\r" if len(text) < len(line) else b"")


def write_all(fd: int, data: bytes) -> None:
    """Write all data; OSError as from write(2). Waits for the reader, even if another process that shares `fd` has
    made it non-blocking."""
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()


def _bytes_in_pipe(fd: int) -> int:
    """The number of bytes that a pipe holds."""
    count = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, count)
    return count[0]


class StreamForwarder:
    """One stream. The program writes to `end`; the data goes to `feed`, and after folding to `sink`."""

    def __init__(self, sink: int, feed: Callable[[bytes], None], folding: Folding | None = None) -> None:
        self._source, self.write_fd = os.pipe()
        self._wakes, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._sink = sink
        self._feed = feed
        self._folding = folding
        self._lock = threading.Lock()
        self._backlog: deque[bytes] = deque()
        self._buffered = 0
        self._newline = True
        self._thread = threading.Thread(target=self._run, name=f"output-{sink}", daemon=True)
        self._thread.start()

    def read_available(self) -> None:
        """Read all data in the pipe, so that the tail is complete; never blocks. The data is still forwarded."""
        with self._lock:
            while self._buffered < BACKLOG_BYTES:
                count = _bytes_in_pipe(self._source)
                if not count:
                    break
                self._feed(data := os.read(self._source, min(count, 1 << 16)))
                self._enqueue(data if self._folding is None else self._folding.feed(data, time.monotonic()))

    def make_blocking(self) -> None:
        """Make `end` blocking again, which all rounds share and an earlier program may have made non-blocking: a
        program unaware of that would lose output that does not fit into the pipe."""
        os.set_blocking(self.write_fd, True)

    def resolve_folding(self, decide: Callable[[Folding], bytes]) -> None:
        """Apply a decision about the held tracebacks and forward the result; never blocks."""
        if self._folding is not None:
            self.read_available()
            with self._lock:
                self._enqueue(decide(self._folding))
            self.wake_writer()

    def log(self, line: str) -> None:
        """Write a line of the launcher's own to the stream; never blocks."""
        with self._lock:
            self._enqueue(f"{line}\n".encode(), own=True)
        self.wake_writer()

    def wake_writer(self) -> None:
        """Make the thread write the data that `read_available` has read."""
        with contextlib.suppress(BlockingIOError):  # the pipe is full of wake-ups already
            os.write(self._wake, b".")

    def close(self, timeout: float) -> None:
        """Forward the remaining data and end; give up on a stuck sink after `timeout` seconds."""
        os.close(self.write_fd)
        self._thread.join(timeout)
        if not self._thread.is_alive():
            for fd in (self._source, self._wake, self._wakes):
                os.close(fd)

    def _enqueue(self, data: bytes, own: bool = False) -> None:
        if not data:
            return
        if own and not self._newline:
            data = b"\n" + data
        self._newline = data.endswith(b"\n")
        self._backlog.append(data)
        self._buffered += len(data)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        poll.register(self._wakes, select.POLLIN)
        ended = False
        while not ended:
            events = dict(poll.poll(self._poll_timeout()))
            if self._wakes in events:
                os.read(self._wakes, 4096)
            self.read_available()
            ended = bool(events.get(self._source, 0) & select.POLLHUP) and not _bytes_in_pipe(self._source)
            self._release_held(ended)
            self._write_backlog()

    def _poll_timeout(self) -> float | None:
        """Milliseconds until held data must be forwarded; None if there is none."""
        with self._lock:
            until = self._folding.until if self._folding is not None else None
        return None if until is None else max(0.0, until - time.monotonic()) * 1000 + 1

    def _release_held(self, ended: bool) -> None:
        if self._folding is not None:
            with self._lock:
                self._enqueue(self._folding.resolve() if ended else self._folding.tick(time.monotonic()))

    def _write_backlog(self) -> None:
        while True:
            with self._lock:
                if not self._backlog:
                    return
                data = self._backlog.popleft()
            # A sink that is closed, or full for good, must not end the program: drop its output.
            with contextlib.suppress(OSError):
                write_all(self._sink, data)
            with self._lock:
                self._buffered = sum(map(len, self._backlog))


class Output:
    """Both streams of the program and their tail. Create it once in a launcher. `folds`: see traceback_folding.py."""

    def __init__(self, stdout: int = 1, stderr: int = 2, folds: bool = True) -> None:
        self._tail = OutputTail()
        self._out = StreamForwarder(stdout, lambda data: self._tail.feed(1, data))
        self._err = StreamForwarder(stderr, lambda data: self._tail.feed(2, data), Folding() if folds else None)

    @property
    def write_fds(self) -> tuple[int, int]:
        """The descriptors that become the program's stdout and stderr."""
        return self._out.write_fd, self._err.write_fd

    def begin_round(self) -> None:
        """Begin a new round: forward earlier output, and clear the tail."""
        for pump in (self._out, self._err):
            pump.make_blocking()
        self._read_available()
        self._err.resolve_folding(lambda folding: folding.resolve() + folding.blame(""))
        self._tail.clear()

    def note_failed_member(self, member: str) -> None:
        """Note which other member ended the round; "": no other known member did."""
        self._err.resolve_folding(lambda folding: folding.blame(member))

    def release_held(self) -> None:
        """Forward all held output; the program is dead."""
        self._err.resolve_folding(Folding.resolve)

    def lines(self) -> tuple[str, ...]:
        """The last lines of this round, including all that the program has written by now."""
        self._read_available()
        return self._tail.lines()

    def exception(self) -> str:
        """The last exception of this round, including all that the program has written by now."""
        self._read_available()
        return self._tail.exception()

    def log(self, line: str) -> None:
        """Write a line of the launcher's own to stderr; never blocks."""
        self._err.log(line)

    def close(self, timeout: float = 1.0) -> None:
        """Forward the remaining output; a stuck reader gets `timeout` seconds a stream."""
        self._out.close(timeout)
        self._err.close(timeout)

    def _read_available(self) -> None:
        for pump in (self._out, self._err):
            pump.read_available()
            pump.wake_writer()
