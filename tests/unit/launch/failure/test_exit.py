"""A program's exit: its kind, which only exits that repeat have; its code, and the bounds of its last lines."""

from __future__ import annotations

import pytest

from tftraining.launch.failure.exit import Exit, bounded, cut, exit_code, exit_of, kind_of
from tftraining.launch.in_user_process.keras3.files import LEGACY_BACKUP

TRACEBACK = ("Traceback (most recent call last):", '  File "train.py", line 1, in <module>')

# The real one is seen in tests/processes/launch/test_tensorflow.py.
PER_REPLICA = "}) with an unsupported type (<class 'tensorflow.python.distribute.values.PerReplica'>) to a Tensor."


@pytest.mark.parametrize(
    ("code", "lines", "kind"),
    [
        (0, ("ImportError: not the end",), ""),
        (1, (*TRACEBACK, "ModuleNotFoundError: No module named 'x'"), "ImportError"),
        (1, (*TRACEBACK, "ImportError: cannot import name 'x' from 'y'", "goodbye"), "ImportError"),
        (1, ('  File "train.py", line 3', "    x y", "      ^", "SyntaxError: invalid syntax"), "SyntaxError"),
        (1, ("IndentationError: expected an indented block",), "SyntaxError"),
        (1, ("ImportError: an earlier one, caught", *TRACEBACK, "ValueError: bad"), ""),
        (1, (*TRACEBACK, "ValueError: bad"), ""),
        (1, (), ""),
        (2, ("/usr/bin/python3: can't open file '/a/train.py': [Errno 2] No such file or directory",), "NotFound"),
        (1, ("/opt/venv/bin/python: No module named nothing",), "NotFound"),
        (
            1,
            (*TRACEBACK, '  File "/x/keras/src/utils/traceback_utils.py", line 1', "ValueError: (", PER_REPLICA),
            "Keras3Fit",
        ),
        (1, ("array([[1., 1.],", PER_REPLICA), "Keras3Fit"),
        (1, (*TRACEBACK, "ValueError: Attempt to convert a value (PerReplica:{", PER_REPLICA), ""),
        (1, (*TRACEBACK, f"RuntimeError: {LEGACY_BACKUP.format('/data/backup')}"), "Keras3Fit"),
        (127, ("sh: 1: train: not found",), "NotFound"),
        (2, ("usage: train [-h]",), ""),
        (137, (*TRACEBACK, "ImportError: x"), ""),
    ],
)
def test_the_kind_of_an_exit_from_its_code_and_lines(code: int, lines: tuple[str, ...], kind: str) -> None:
    assert kind_of(code, lines) == kind


def test_the_exit_of_a_waitpid_status() -> None:
    assert (exit_of(3 << 8, ()).code, exit_of(3 << 8, ()).signal) == (3, None)
    assert (exit_of(9, ()).code, exit_of(9, ()).signal) == (None, 9)
    assert (exit_of(11 | 0x80, ()).code, exit_of(11 | 0x80, ()).signal) == (None, 11)  # with a core dump
    assert exit_of(0, ()).success
    assert not exit_of(9, ()).success


def test_the_exit_code_of_a_shell() -> None:
    assert [exit_code(each) for each in (None, Exit(0, None), Exit(3, None), Exit(None, 9))] == [1, 1, 3, 137]


@pytest.mark.parametrize("limit", [-1, 0, 1])
def test_without_room_no_line_is_kept(limit: int) -> None:
    assert bounded(("a", ""), limit) == []


@pytest.mark.parametrize(("limit", "kept"), [(13, 10), (12, 10), (11, 9), (2, 0)])
def test_cut_keeps_as_much_as_fits(limit: int, kept: int) -> None:
    """Ten characters are twelve bytes of JSON."""
    assert cut("m" * 10, limit) == "m" * kept
