"""The output of a program passes unchanged, its last lines are kept, and a stopped reader blocks nothing."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest

from tftraining.launch.process.output import LINES, Output, OutputTail, readable


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"plain", "plain"),
        (b"one\rtwo", "two"),
        (b"windows\r", "windows"),
        (b"\x1b[31mred\x1b[0m", "red"),
        (b" 1/70 [..]\x08\x08\x08\x08\r 2/70 [=.]", " 2/70 [=.]"),
        (b"\xff\xfe", "��"),
        (b"tab\there", "tab\there"),
        (b"x" * 10_000, "x" * 4096),
    ],
)
def test_lines_are_kept_as_a_terminal_shows_them(raw: bytes, text: str) -> None:
    assert readable(raw) == text


def test_the_tail_joins_partial_lines() -> None:
    tail = OutputTail()
    for stream, data in [(1, b"a"), (2, b"x\ny"), (1, b"b\nc"), (2, b"z\n")]:
        tail.feed(stream, data)
    assert tail.lines() == ("x", "ab", "yz", "c")
    tail.clear()
    assert tail.lines() == ()


def test_the_tail_is_bounded() -> None:
    tail = OutputTail()
    for number in range(1000):
        tail.feed(1, b"%d\n" % number)
    tail.feed(2, b"unfinished" * 100_000)
    assert len(tail.lines()) == LINES
    assert tail.lines()[-2] == "999"


@pytest.fixture
def sink() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for fd in (reading, writing):
        os.close(fd)


def read_for(fd: int, wanted: int) -> bytes:
    data = b""
    while len(data) < wanted:
        data += os.read(fd, 65536)
    return data


def test_a_log_line_of_the_launcher_begins_a_new_line(sink: tuple[int, int]) -> None:
    output = Output(sink[1], sink[1])
    os.write(output.write_fds[1], b"unfinished")
    assert output.lines() == ("unfinished",)
    output.log("tftraining: hello")
    output.log("tftraining: again")
    output.close()
    wanted = b"unfinished\ntftraining: hello\ntftraining: again\n"
    assert read_for(sink[0], len(wanted)) == wanted


def test_a_reader_that_stops_blocks_nothing_and_loses_nothing(sink: tuple[int, int]) -> None:
    output = Output(sink[1], sink[1])
    os.set_blocking(output.write_fds[0], False)
    written = 0
    began = time.monotonic()
    while time.monotonic() - began < 0.3:  # until the sink, the pump and the pipe are full
        try:
            written += os.write(output.write_fds[0], b"0123456789abcde\n")
        except BlockingIOError:
            time.sleep(0.01)
    output.begin_round()
    os.write(output.write_fds[1], b"last words\n")
    began = time.monotonic()
    output.log("tftraining: still here")
    assert output.lines()[-1] == "last words"
    assert time.monotonic() - began < 5, "the reader reads nothing until now"
    assert read_for(sink[0], written).count(b"0123456789abcde\n") > written / 17
    output.close()


def test_a_closed_sink_does_not_stop_the_program() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    output = Output(writing, writing)
    for number in range(20_000):
        os.write(output.write_fds[0], b"line %d\n" % number)
    assert output.lines()[-1] == "line 19999"
    output.close()
    os.close(writing)


def test_a_non_blocking_sink_loses_nothing(sink: tuple[int, int]) -> None:
    os.set_blocking(sink[1], False)
    output = Output(sink[1], sink[1])
    wanted = b"".join(b"line %d\n" % number for number in range(20_000))
    written = threading.Thread(target=os.write, args=(output.write_fds[0], wanted))
    written.start()
    time.sleep(0.3)  # until the sink is full
    assert read_for(sink[0], len(wanted)) == wanted
    written.join()
    output.close()


def test_each_round_gets_blocking_output_pipes(sink: tuple[int, int]) -> None:
    output = Output(sink[1], sink[1])
    for end in output.write_fds:
        os.set_blocking(end, False)
    output.begin_round()
    assert [os.get_blocking(end) for end in output.write_fds] == [True, True]
    output.close()
