"""A resumed training that is not where its copy says is noticed, and no legitimate one is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tftraining.launch.in_user_process.memory_backup.self_check import Checks


def resumed(epoch: int = 2, batch: int = 7, step: int = 47, steps: int = 20) -> Checks:
    """Resumed in a training of 5 epochs."""
    return Checks(epoch, batch, step, steps, 5)


def train(checks: Checks, increment: int = 1) -> str:
    """All that Keras reports to the end of the training; what is wrong, "" if nothing is."""
    told, counted = [], checks.step
    for epoch in range(checks.epoch, checks.epochs):
        told.append(checks.begin_epoch(epoch))
        batch = checks.batch if epoch == checks.epoch else 0
        while batch < 20:
            batch, counted = batch + increment, counted + increment
            told.append(checks.end_batch(batch - 1, increment))
        told.append(checks.end_epoch(batch, False))
    return "".join([*told, checks.end(counted, False)])


@pytest.mark.parametrize(
    ("checks", "increment"),
    [
        (resumed(), 1),
        (resumed(batch=0, step=40), 4),
        (resumed(batch=10, step=50), 5),
        (resumed(epoch=5, batch=0, step=100), 1),
    ],
)
def test_an_undisturbed_training_has_no_violation(checks: Checks, increment: int) -> None:
    assert train(checks, increment) == ""


@pytest.mark.parametrize(
    ("call", "wrong"),
    [
        (lambda checks: checks.begin_epoch(0), "the training goes on in epoch 1 instead of 3"),
        (lambda checks: checks.end_batch(0, 1), "the training goes on at batch 1 instead of 8"),
        (lambda checks: checks.end_batch(11, 4), "the training goes on at batch 9 instead of 8"),
        (lambda checks: checks.end_epoch(13, False), "an epoch has 13 batches instead of 20"),
        (lambda checks: checks.end(93, False), "the training ends with 93 steps instead of 100"),
    ],
)
def test_a_place_that_differs_is_told(call: Callable[[Checks], str], wrong: str) -> None:
    assert call(resumed()) == wrong


def test_only_the_first_epoch_and_batch_are_where_the_copy_was() -> None:
    checks = resumed()
    assert checks.begin_epoch(2) == checks.end_batch(7, 1) == ""
    assert checks.begin_epoch(3) == checks.end_batch(0, 1) == ""


@pytest.mark.parametrize(("steps", "stopped"), [(20, True), (0, False)])
def test_a_training_that_is_stopped_or_of_unknown_size_may_end_anywhere(steps: int, stopped: bool) -> None:
    checks = resumed(steps=steps)
    assert checks.end_epoch(13, stopped) == checks.end(60, stopped) == ""
