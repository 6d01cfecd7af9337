"""The exit code of an incident, and the bounds of its last lines in JSON."""

from __future__ import annotations

import pytest

from tftraining.launch.failure import incident
from tftraining.launch.failure.exit import Exit


def test_the_exit_code_of_a_shell() -> None:
    assert [incident.exit_code(each) for each in (None, Exit(0, None), Exit(3, None), Exit(None, 9))] == [1, 1, 3, 137]


@pytest.mark.parametrize("limit", [-1, 0, 1])
def test_without_room_no_line_is_kept(limit: int) -> None:
    assert incident.bounded(("a", ""), limit) == []


@pytest.mark.parametrize(("limit", "kept"), [(13, 10), (12, 10), (11, 9), (2, 0)])
def test_cut_keeps_as_much_as_fits(limit: int, kept: int) -> None:
    """Ten characters are twelve bytes of JSON."""
    assert incident.cut("m" * 10, limit) == "m" * kept
