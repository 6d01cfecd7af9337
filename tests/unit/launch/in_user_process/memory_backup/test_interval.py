"""The interval of the copies, from what a copy and a step have taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tftraining.launch.in_user_process.memory_backup import interval
from tftraining.launch.in_user_process.memory_backup.interval import FIRST, GROWTH, LARGEST, Measured


def voted(blocked: float, step: float, share: float = 0.01, present: int = FIRST) -> int:
    """The steps between two copies that a member votes for."""
    measured = Measured()
    measured.start(0.0, 0)
    measured.stop(10 * step, 10)
    measured.blocked(blocked)
    return int(2 ** measured.exponent(present, share))


@pytest.mark.parametrize(
    ("blocked", "step", "steps"),
    [
        (0.013, 0.172, 16),  # 76 MB: 13 ms in 2.75 s are 0.5 %, and in half of that 0.9 %, more than four fifths of 1 %
        (0.099, 1.108, 16),
        (0.0015, 0.041, 8),  # 4 MB: four steps would keep below 1 %, but cost 0.9 % to save 0.08 s a failure
        (0.0002, 0.5, 1),
        (1.0, 0.01, 64),  # no more than four times as many as before in one vote
    ],
)
def test_it_keeps_below_the_share_and_balances_cheap_copies_with_the_work_that_failures_lose(
    blocked: float, step: float, steps: int
) -> None:
    assert voted(blocked, step) == steps
    assert blocked <= 0.01 * step * steps or steps == 2 ** (FIRST + GROWTH)
    assert voted(1e9, 1e-9, present=LARGEST) == 2**LARGEST


def test_a_larger_share_makes_it_shorter() -> None:
    assert [voted(0.0015, 0.041, percent / 100) for percent in (1, 2, 10, 100)] == [8, 4, 1, 1]


@pytest.mark.parametrize("blocked", [0.0001, 0.0005, 0.0015, 0.005])
def test_half_or_twice_the_interval_loses_more_with_a_failure_a_minute(blocked: float) -> None:
    step = 0.0001  # so short that rounding to steps does not count

    def lost(steps: float) -> float:
        return blocked / (steps * step) + steps * step / (2 * 60.0)

    steps = voted(blocked, step, present=LARGEST - GROWTH)
    assert lost(steps) <= 1.001 * min(lost(steps / 2), lost(steps * 2))


def test_what_is_not_measured_changes_nothing() -> None:
    measured = Measured()
    measured.blocked(1.0)
    assert measured.exponent(4, 0.01) == 4


def test_one_slow_copy_does_not_count() -> None:
    measured = Measured()
    measured.start(0.0, 0)
    measured.stop(1.0, 100)
    for seconds in (0.001, 5.0, 0.001):
        measured.blocked(seconds)
    assert measured.exponent(4, 0.01) == 5


@given(st.integers(0, 1000), st.integers(1, 70), st.integers(0, 6))
def test_a_multiple_of_the_interval_is_never_missed(before: int, made: int, exponent: int) -> None:
    multiples = [step for step in range(before + 1, before + made + 1) if step % 2**exponent == 0]
    assert interval.crosses(before, before + made, exponent) == bool(multiples)


def test_votes_become_rare_but_never_end() -> None:
    votes = [count for count in range(1, 200) if interval.votes_after(count, interval.FIRST)]
    assert votes == [2, 4, 8, 16, 32, 64, 128, 192]
    assert [count for count in range(1, 50) if interval.votes_after(count, 6)] == [2, 4, 8, 16, 32, 48]
    assert all(interval.votes_after(count, interval.LARGEST) for count in range(2, 200))


def test_a_copy_waits_for_the_end_of_the_epoch_if_half_of_its_interval_is_left() -> None:
    schedule = interval.Schedule()
    schedule.exponent = 4
    assert [left for left in range(20) if schedule.leaves_to_epoch_end(left)] == list(range(9))
