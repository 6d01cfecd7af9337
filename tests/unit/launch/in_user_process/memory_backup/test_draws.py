"""How many random numbers each member has drawn: whose account a member takes from a copy or a backup."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tftraining.launch.in_user_process.memory_backup.keras_state import FitState
from tftraining.launch.in_user_process.memory_backup.random_numbers import SAMPLES, RandomNumbers

SENDERS = [["first", 3 * SAMPLES], ["second", 6 * SAMPLES], ["seed-0-0", 5]]
OWN = [["first", 2 * SAMPLES], ["second", 4 * SAMPLES], ["seed-0-0", 5]]


class Recorder(RandomNumbers):
    """Notes where the numbers go on."""

    def resume(self, offsets: list[list[Any]], *, within: bool = True) -> None:
        self.resumed = offsets


@pytest.mark.parametrize(
    ("draws", "own", "offsets", "is_told"),
    [
        ([[3, 6], [3, 6], [2, 4]], False, OWN, False),
        ([[3, 6], [3, 6], [2, 4]], True, SENDERS, False),
        (None, False, SENDERS, False),  # they do not depend on the batch
        ([], False, SENDERS, True),  # a member could not gather them
        ([[3, 6], [2, 4]], False, SENDERS, True),  # of another number of members
        ([], True, SENDERS, False),
    ],
)
def test_a_member_goes_on_where_it_was_or_says_that_it_does_not(
    draws: Any, own: bool, offsets: list[Any], is_told: bool
) -> None:
    state = FitState.__new__(FitState)
    random = state._random = Recorder()
    state._apart = SimpleNamespace(members=3, member=2)  # type: ignore[assignment]
    state.resume_random({"random": SENDERS, **({} if draws is None else {"draws": draws})}, own)
    assert random.resumed == offsets
    assert bool(random.begins_anew) == is_told
