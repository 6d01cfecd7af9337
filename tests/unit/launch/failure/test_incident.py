"""The description of an exit, and the bounds of its last lines in JSON."""

from __future__ import annotations

import pytest

from tftraining.launch.failure import incident
from tftraining.launch.failure.exit import Exit


def test_the_description_of_an_exit() -> None:
    assert incident.describe("worker-1", Exit(None, 9)) == "worker-1 was killed (SIGKILL)"
    told = incident.describe("worker-0", Exit(3, None, ("a", "b ", "")))
    assert told == "worker-0 failed with exit code 3: b"
    assert "tf_keras" in incident.describe("worker-0", Exit(1, None, ("ValueError: PerReplica",), "Keras3Fit"))
    assert [incident.exit_code(each) for each in (None, Exit(0, None), Exit(3, None), Exit(None, 9))] == [1, 1, 3, 137]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("NotFound", "the command was not found"),
        ("SyntaxError", "the program has a syntax error"),
        ("ImportError", "the program cannot import a module"),
    ],
)
def test_fatal_kinds_are_explained_in_the_description(kind: str, words: str) -> None:
    assert words in incident.describe("worker-1", Exit(1, None, ("the last line",), kind))


@pytest.mark.parametrize("limit", [-1, 0, 1])
def test_without_room_no_line_is_kept(limit: int) -> None:
    assert incident.bounded(("a", ""), limit) == []


@pytest.mark.parametrize(("limit", "kept"), [(13, 10), (12, 10), (11, 9), (2, 0)])
def test_cut_keeps_as_much_as_fits(limit: int, kept: int) -> None:
    """Ten characters are twelve bytes of JSON."""
    assert incident.cut("m" * 10, limit) == "m" * kept
