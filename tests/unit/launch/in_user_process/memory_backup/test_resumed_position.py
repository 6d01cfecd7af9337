"""Where a training resumes within its epochs and its input."""

from __future__ import annotations

import pytest

from tftraining.launch.in_user_process.memory_backup.resumed_position import (
    Place,
    Split,
    from_head,
    resume_at,
)


@pytest.mark.parametrize(
    ("place", "then", "now", "anew", "resumed"),
    [
        # The same gang, whether or not the examples are known.
        (
            Place(3, 7, 307, 1),
            Split(2, 100, None),
            Split(2, 100, None),
            False,
            Place(3, 7, 307, 1),
        ),
        (Place(3, 7, 7, 5), Split(2, 100, 64), Split(2, 100, 64), True, Place(3, 7, 7, 5)),
        # Another gang that makes steps of as many examples.
        (Place(3, 7, 307, 1), Split(3, 100, 64), Split(2, 100, 64), False, Place(3, 7, 307, 1)),
        # Steps of fewer examples, and more of them: an epoch is a pass over the data.
        (Place(3, 50, 50, 5), Split(4, 100, 64), Split(2, 200, 32), True, Place(3, 100, 100, 5)),
        (
            Place(3, 50, 350, 1),
            Split(4, 100, 64),
            Split(2, 200, 32),
            False,
            Place(3, 100, 700, 1),
        ),
        # An epoch of 1,000 examples does not divide by either: the last batch is smaller.
        (Place(0, 8, 8, 1), Split(3, 11, 96), Split(2, 16, 64), True, Place(0, 12, 12, 1)),
        (Place(0, 15, 15, 1), Split(2, 16, 64), Split(3, 11, 96), True, Place(0, 10, 10, 1)),
        # The epochs have so many steps, and the input goes on.
        (Place(3, 50, 350, 1), Split(4, 100, 64), Split(2, 100, 32), False, Place(3, 50, 700, 1)),
        # A copy at the begin of an epoch, whatever its examples.
        (Place(3, 0, 0, 5), Split(4, 100, None), Split(2, 200, 32), True, Place(3, 0, 0, 5)),
        (Place(3, 0, 300, 1), Split(4, 100, 64), Split(2, 150, 32), False, Place(3, 0, 600, 1)),
    ],
)
def test_the_position_is_kept_in_examples(place: Place, then: Split, now: Split, anew: bool, resumed: Place) -> None:
    assert resume_at(place, then, now, anew=anew) == resumed


@pytest.mark.parametrize(
    ("then", "now", "anew"),
    [
        (Split(3, 100, None), Split(2, 100, 64), True),
        (Split(3, 100, 96), Split(2, 100, None), False),
        (Split(4, 100, 64), Split(2, 150, 32), False),
        (Split(4, 100, 64), Split(2, 100, 32), True),
    ],
)
def test_otherwise_the_place_is_of_the_other_gang_only(then: Split, now: Split, anew: bool) -> None:
    assert resume_at(Place(3, 50, 50 if anew else 350, 1), then, now, anew=anew) is None


def test_a_head_tells_place_and_gang() -> None:
    head = {"epoch": 1, "batch": 2, "drawn": 3, "made": 4, "workers": 5, "stepsPerEpoch": 6, "globalBatch": None}
    assert from_head(head) == (Place(1, 2, 3, 4), Split(5, 6, None))
    assert from_head({**head, "globalBatch": 7})[1] == Split(5, 6, 7)
