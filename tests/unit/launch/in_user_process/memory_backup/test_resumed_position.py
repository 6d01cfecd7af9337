"""Where a training resumes within its epochs and its input."""

from __future__ import annotations

import pytest

from tftraining.launch.in_user_process.memory_backup.resumed_position import (
    Cost,
    Pace,
    Place,
    SkipCost,
    from_head,
    resume_at,
)

UNKNOWN = Cost()


@pytest.mark.parametrize(
    ("place", "then", "now", "anew", "resumed"),
    [
        # The same gang, whether or not the examples are known.
        (Place(3, 7, 307, 1), Pace(2, 100, None), Pace(2, 100, None), False, Place(3, 7, 307, 1)),
        (Place(3, 7, 7, 5), Pace(2, 100, 64), Pace(2, 100, 64), True, Place(3, 7, 7, 5)),
        # Another gang that makes steps of as many examples.
        (Place(3, 7, 307, 1), Pace(3, 100, 64), Pace(2, 100, 64), False, Place(3, 7, 307, 1)),
        # Steps of fewer examples, and more of them: an epoch is a pass over the data.
        (Place(3, 50, 50, 5), Pace(4, 100, 64), Pace(2, 200, 32), True, Place(3, 100, 100, 5)),
        (Place(3, 50, 350, 1), Pace(4, 100, 64), Pace(2, 200, 32), False, Place(3, 100, 700, 1)),
        # An epoch of 1,000 examples does not divide by either: the last batch is smaller.
        (Place(0, 8, 8, 1), Pace(3, 11, 96), Pace(2, 16, 64), True, Place(0, 12, 12, 1)),
        (Place(0, 15, 15, 1), Pace(2, 16, 64), Pace(3, 11, 96), True, Place(0, 10, 10, 1)),
        # The epochs have so many steps, and the input goes on.
        (Place(3, 50, 350, 1), Pace(4, 100, 64), Pace(2, 100, 32), False, Place(3, 50, 700, 1)),
        # A copy at the begin of an epoch.
        (Place(3, 0, 0, 5), Pace(4, 100, 64), Pace(2, 200, 32), True, Place(3, 0, 0, 5)),
    ],
)
def test_the_position_is_kept_in_examples(place: Place, then: Pace, now: Pace, anew: bool, resumed: Place) -> None:
    assert resume_at(place, then, now, UNKNOWN, anew=anew) == (resumed, "")


@pytest.mark.parametrize(
    ("then", "now", "anew", "resumed", "why"),
    [
        (Pace(3, 100, None), Pace(2, 100, 64), True, Place(3, 0, 0, 1), "the copy is of 3 workers, and the number of"),
        (Pace(3, 100, 96), Pace(2, 100, None), False, Place(3, 0, 300, 1), "the copy is of 3 workers, and the number"),
        (Pace(4, 100, 64), Pace(2, 150, 32), False, Place(3, 0, 600, 1), "an epoch had 6400 examples, and has 4800"),
        (Pace(4, 100, 64), Pace(2, 100, 32), True, Place(3, 0, 0, 1), "an epoch had 6400 examples, and has 3200"),
    ],
)
def test_otherwise_the_epoch_is_resumed_from_its_begin(
    then: Pace, now: Pace, anew: bool, resumed: Place, why: str
) -> None:
    drawn = 50 if anew else 350
    place, told = resume_at(Place(3, 50, drawn, 1), then, now, UNKNOWN, anew=anew)
    assert place == resumed
    assert told.startswith(why)


@pytest.mark.parametrize(
    ("batch", "cost", "skips"),
    [
        (50, Cost(0.001, 0.02), True),  # 5 s: short
        (50, Cost(0.01, 1.1), True),  # 50 s, less than 55 s
        (50, Cost(0.01, 0.9), False),
        (0, Cost(0.01, 1.1), False),  # nothing to repeat
        (0, Cost(0.01, 0.001), True),  # measured while something else was slow: the training reads the input faster
        (50, Cost(0.01, None), True),
        (50, Cost(None, 0.09), True),  # 45 s, if a batch takes a tenth of a step
        (50, Cost(None, None), True),
    ],
)
def test_the_input_is_skipped_unless_that_takes_longer_than_the_steps(batch: int, cost: Cost, skips: bool) -> None:
    pace, place = Pace(2, 100, None), Place(50, batch, 5000, 1)
    resumed, why = resume_at(place, pace, pace, cost, anew=False)
    if skips:
        assert (resumed, why) == (place, "")
    else:
        assert resumed == Place(50, 0, 0, 1)
        assert why.startswith(f"to skip 5000 batches of input takes 50 s, and to repeat {batch} steps ")


def test_a_cost_that_is_not_known_yet_is_guessed() -> None:
    """Or the first restart after a night would read the input of the whole night before its first step."""
    pace, place = Pace(2, 100, None), Place(50, 50, 5000, 1)
    resumed, why = resume_at(place, pace, pace, Cost(None, 0.9), anew=False)
    assert resumed == Place(50, 0, 0, 1)
    assert why == "to skip 5000 batches of input takes 450 s, and to repeat 50 steps 45 s"


def test_the_cost_of_skipping_is_the_longer_first_batch() -> None:
    fresh = SkipCost(None)
    fresh.first_batch(1.0)  # nothing has begun
    fresh.begin(10.0, 0)
    fresh.first_batch(12.0)
    fresh.first_batch(50.0)
    assert fresh.for_head() == {"firstSeconds": 2.0}
    resumed = SkipCost(fresh.for_head())
    resumed.begin(10.0, 1000)
    resumed.first_batch(17.0)
    assert resumed.for_head() == {"firstSeconds": 2.0, "skipSeconds": 0.005}
    quick = SkipCost(resumed.for_head())
    quick.begin(10.0, 2000)
    quick.first_batch(11.0)
    assert quick.for_head() == {"firstSeconds": 2.0, "skipSeconds": 0.0}


def test_a_few_skipped_batches_tell_nothing_about_their_cost() -> None:
    cost = SkipCost({"firstSeconds": 2.0, "skipSeconds": 0.005})
    cost.begin(10.0, 999)
    cost.first_batch(17.0)
    assert cost.for_head() == {"firstSeconds": 2.0, "skipSeconds": 0.005}


def test_of_what_no_fresh_process_has_measured_nothing_is_learned() -> None:
    cost = SkipCost({})
    cost.begin(0.0, 5)
    cost.first_batch(1.0)
    assert cost.for_head() == {}


def test_a_head_without_measurements_is_read() -> None:
    head = {"epoch": 1, "batch": 2, "drawn": 3, "made": 4, "workers": 5, "stepsPerEpoch": 6, "globalBatch": None}
    assert from_head(head) == (Place(1, 2, 3, 4), Pace(5, 6, None), Cost(None, None))
    assert from_head({**head, "globalBatch": 7, "skipSeconds": 8, "stepSeconds": 9})[1:] == (Pace(5, 6, 7), Cost(8, 9))
