"""Which exception has ended a program, by what it printed: however long the message is, and whatever comes after it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tftraining.launch.failure.exception import LENGTH, exception_of
from tftraining.launch.failure.exit import exit_from_frame, exit_of, exit_to_frame
from tftraining.launch.failure_and_restart_messages import describe
from tftraining.launch.process.output import LINES, OutputTail

HEAD = "Traceback (most recent call last):"
FRAME = ('  File "/train.py", line 3, in <module>', "    fit()", "    ~~~^^")
GRAPH = "tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error:"
TOLD = "InvalidArgumentError: Graph execution error:"  # no cause follows
MESSAGE = ("", "Detected at node add defined at (most recent call last):", '  File "/train.py", line 9, in <module>')


@pytest.mark.parametrize(
    ("lines", "exception"),
    [
        ((HEAD, *FRAME, "ValueError: boom"), "ValueError: boom"),
        ((HEAD, *FRAME, "ValueError"), "ValueError (train.py, line 3: fit())"),
        ((HEAD, *FRAME, "KeyError: 'label'"), "KeyError: 'label' (train.py, line 3: fit())"),
        (
            (HEAD, *FRAME, '  File "/usr/lib/python3.11/x.py", line 9, in pop', "    raise e", "AssertionError"),
            "AssertionError (train.py, line 3: fit(), in pop)",
        ),
        ((HEAD, FRAME[0], "AssertionError"), "AssertionError (train.py, line 3)"),
        ((HEAD, *FRAME, "train.<locals>.Broken: no"), "train.<locals>.Broken: no"),
        ((HEAD, *FRAME, "socket.gaierror: [Errno -2]"), "socket.gaierror: [Errno -2]"),
        ((HEAD, *FRAME, "ValueError: one", "two", "three: four"), "ValueError: one"),
        ((HEAD, *FRAME, GRAPH, *MESSAGE * 4, "\t [[{{node add}}]]"), TOLD),
        # A line of another stream in between, a log line after it.
        ((HEAD, *FRAME[:1], "loss: 0.3", "ValueError: boom", "bye: x"), "ValueError: boom"),
        # Chained: the last one has ended the program.
        (
            (
                HEAD,
                *FRAME,
                "KeyError: 1",
                "",
                "During handling of the above exception:",
                "",
                HEAD,
                *FRAME,
                "ValueError: 2",
            ),
            "ValueError: 2",
        ),
        # What the interpreter tells of at its end has ended nothing.
        (
            (
                HEAD,
                *FRAME,
                "ValueError: boom",
                "Exception ignored in: <function f at 0x7f>",
                HEAD,
                *FRAME,
                "TypeError: x",
            ),
            "ValueError: boom",
        ),
        (
            (HEAD, *FRAME, "ValueError: boom", "Exception in thread Thread-1 (f):", HEAD, *FRAME, "TypeError: x"),
            "ValueError: boom",
        ),
        # A traceback whose beginning has been driven out of the tail.
        ((*FRAME, GRAPH, *MESSAGE), TOLD),
        (("sources: 3", "an error: no", "the Error: x"), ""),
        (("a line", "another"), ""),
        ((HEAD, *FRAME), ""),
        ((), ""),
    ],
)
def test_the_line_that_names_the_exception(lines: tuple[str, ...], exception: str) -> None:
    assert exception_of(lines) == exception


@pytest.mark.parametrize(
    ("program", "exception"),
    [
        ("raise ValueError('boom')", "ValueError: boom"),
        ("raise ValueError('boom\\nand more\\n  of it')", "ValueError: boom"),
        ("class Broken(Exception): pass\nraise Broken('no')", "Broken: no"),
        ("def f(): f()\nf()", "RecursionError: maximum recursion depth exceeded"),
        ("try:\n 1/0\nexcept Exception:\n open('/not/there')", "FileNotFoundError: [Errno 2] No such file"),
        ("exec('x y')", "SyntaxError: invalid syntax"),
        ("x y", ""),  # the interpreter prints no traceback, and `kind_of` knows it
        ("assert False", "AssertionError"),
        ("raise ExceptionGroup('many', [ValueError('a'), TypeError('b')])", "TypeError: b"),
        (
            "try:\n 1/0\nexcept Exception as e:\n raise ExceptionGroup('many', [e])",
            "ZeroDivisionError: division by zero",
        ),
        ("class A:\n def __del__(self): 1/0\na = A()\nraise ValueError('boom')", "ValueError: boom"),
        ("import atexit\natexit.register(lambda: 1/0)\nraise ValueError('boom')", "ValueError: boom"),
        ("import sys\nsys.exit('ValueError, says the program')", ""),
        ("import logging\ntry:\n 1/0\nexcept Exception:\n logging.exception('x')\nprint('a\\n' * 500)", ""),
    ],
)
def test_what_the_interpreter_prints(program: str, exception: str) -> None:
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    tail = OutputTail()
    tail.feed(2, ended.stderr)
    tail.feed(2, ended.stdout)
    assert tail.exception().startswith(exception)
    assert bool(tail.exception()) == bool(exception)


def test_it_is_known_when_the_message_is_longer_than_the_tail() -> None:
    tail = OutputTail()
    for line in (HEAD, *FRAME, GRAPH, *MESSAGE * LINES):
        tail.feed(2, f"{line}\n".encode())
    assert GRAPH not in tail.lines()
    assert tail.exception() == TOLD
    tail.clear()
    assert tail.exception() == ""


@pytest.mark.parametrize(("lines", "exception"), [(200, "ValueError: boom"), (201, "")])
def test_one_that_was_caught_long_ago_has_not_ended_the_program(lines: int, exception: str) -> None:
    tail = OutputTail()
    tail.feed(2, "\n".join((HEAD, *FRAME, "ValueError: boom", *["a line"] * lines, "")).encode())
    assert tail.exception() == exception


@pytest.mark.parametrize("head", [(HEAD,), ()], ids=["a whole traceback", "its end"])
def test_of_a_long_message_300_characters_are_kept(head: tuple[str, ...]) -> None:
    line = f"ValueError: {'x' * 400}"
    assert exception_of([*head, *FRAME, line]) == line[:300]


def test_lines_of_stdout_between_those_of_a_traceback_do_no_harm() -> None:
    tail = OutputTail()
    tail.feed(2, f"{HEAD}\n".encode())
    tail.feed(1, b"Epoch: 3\n")
    tail.feed(2, b"ValueError: boom\n")
    assert tail.exception() == "ValueError: boom"


def test_only_a_program_that_failed_by_itself_was_ended_by_it() -> None:
    assert exit_of(1 << 8, (), exception="ValueError: boom").exception == "ValueError: boom"
    for status in (0, 9, 3 << 8, 137 << 8):
        assert exit_of(status, (), exception="ValueError: boom").exception == ""


def test_it_travels_to_the_chief() -> None:
    frame = exit_to_frame(exit_of(1 << 8, ("a",), exception="ValueError: boom"))
    assert exit_from_frame(frame).exception == "ValueError: boom"


def test_it_is_what_people_are_told() -> None:
    ended = exit_of(1 << 8, (HEAD, *FRAME, GRAPH, *MESSAGE), exception=GRAPH)
    assert describe("worker-1", ended) == f"worker-1: {GRAPH}"


@given(st.lists(st.text(max_size=400), max_size=60))
def test_whatever_is_printed_there_is_a_short_answer(lines: list[str]) -> None:
    assert len(exception_of([HEAD, *lines])) <= LENGTH
