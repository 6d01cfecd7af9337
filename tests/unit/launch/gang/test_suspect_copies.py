"""A fault that is noticed late is followed back from copy to copy, to the storage at last; other failures are not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.simulated_gang.copies import fail, make_steps, report, restart, restored, start_gang_with_copies
from tests.support.simulated_gang.simulation import exited
from tftraining.launch.failure.exit import Exit
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.gang.suspect_copies import SOON_SECONDS, SuspectCopies, failure_of

INTERVAL = 16
STEPS_PER_SECOND = 20


# Lineage.


def test_what_is_born_of_a_suspect_copy_is_suspect() -> None:
    suspects = SuspectCopies()
    for number, copy in ((2, (1, 32)), (3, (2, 48)), (4, (1, 16)), (5, (3, 64))):
        suspects.note_restoration(number, copy)
    suspects.add((1, 32))
    for copy in ((1, 32), (1, 48), (2, 16), (2, 48), (3, 64), (5, 80)):
        assert copy in suspects
    for copy in ((1, 16), (1, 31), (4, 32), (6, 1)):
        assert copy not in suspects
    assert suspects.to_frame() == [(1, 32), (2, 0), (3, 0), (5, 0)]
    suspects.add((1, 16))
    assert suspects.to_frame()[0] == (1, 16) and (4, 32) in suspects


def test_equal_failures_differ_in_numbers_alone() -> None:
    def failure(exception: str, code: int = 1) -> str:
        return failure_of(Exit(code, None, (), "", exception))

    assert failure("ValueError: loss 1.5e-3 of step 900 at 0x7f3a") == failure("ValueError: loss nan of step 20 at 0x7")
    assert failure("ValueError: loss 1") != failure("ArithmeticError: loss 1")
    assert failure("ValueError: infinite") != failure("ValueError: nanite")
    assert failure("", 3) != failure("", 4)


# A loop with one NaN.


@dataclass
class Loop:
    """A training with copies, whose state gets a NaN in the first round. It looks at its loss every `every` steps, from
    the begin of the training or, if it is `relative`, of the process, and saves a good state in the storage."""

    nan_at: int
    every: int
    relative: bool = False
    saves: bool = True
    chief: Coordinator = field(default_factory=lambda: start_gang_with_copies(max_restarts=100))
    copies: dict[tuple[int, int], bool] = field(default_factory=dict)  # whether it has a NaN
    storage: int = 0
    now: float = 0.0
    order: list[int] | None = None
    sources: list[str] = field(default_factory=list)

    def train(self, stop_at: int = 0) -> bool:
        """One round up to its failure; whether the training is over. `stop_at`: it is killed there."""
        number, copy = self.chief.rounds.number, self._resume()
        step = begin = self.storage if copy is None else copy[1]
        is_bad, made = copy is not None and self.copies[copy], copy
        while step < 3000:
            step += 1
            is_bad = is_bad or (number == 1 and step == self.nan_at)
            is_look = (step - begin if self.relative else step) % self.every == 0
            if (is_look and is_bad) or step == stop_at:
                return self._end(begin, step, copy, made, killed=step == stop_at)
            if is_look and self.saves:
                self.storage = step
            if step % INTERVAL == 0:
                made = (number, step)
                self.copies[made] = is_bad
                self.copies = dict(sorted(self.copies.items())[-2:])
        return True

    def _resume(self) -> tuple[int, int] | None:
        copy = (self.order[0], self.order[1]) if self.order and self.order[1] > self.storage else None
        self.sources.append(f"copy {copy}" if copy else f"storage {self.storage}")
        self.copies = {each: bad for each, bad in self.copies.items() if copy is not None and each <= copy}
        return copy

    def _end(self, begin: int, step: int, copy: object, made: object, killed: bool) -> bool:
        resumed, newest = (int(each[1]) if isinstance(each, tuple) else None for each in (copy, made))
        seconds = (step - begin) / STEPS_PER_SECOND
        self.now += 100.0 + seconds
        told = {"checkpoint": self.storage} if self.storage else {}
        fields: dict[str, Any] = {"first_step": begin, "first_step_time": seconds, **told}
        make_steps(self.chief, self.now, step, report(newest if newest != resumed else None, resumed), **fields)
        member = f"worker-{self.chief.rounds.number % 2}"
        if killed:
            self.chief.handle_frame(member, exited(self.chief.rounds.number, None, 9, **fields), self.now)
        else:
            fail(self.chief, member, self.now, f"ArithmeticError: the loss of step {step} is not finite", **fields)
        self.order = restored(restart(self.chief, self.now + 61.0, *map(list, self.copies)))
        return False


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("late", [1, 20, 80, 300, 1000])
def test_a_nan_is_followed_back_to_the_state_before_it(late: int, relative: bool) -> None:
    every = max(100, late)
    loop = Loop(nan_at=3 * every - late, every=every, relative=relative)
    failures = 0
    while not loop.train():
        failures += 1
        assert failures <= 3, loop.sources


def test_each_next_failure_goes_one_source_back() -> None:
    loop = Loop(nan_at=820, every=100)
    while not loop.train():
        pass
    assert loop.sources == ["storage 0", "copy (1, 896)", "copy (1, 880)", "storage 800"]


@pytest.mark.parametrize("killed_at", [825, 850, 899])
def test_a_kill_between_the_nan_and_its_discovery_costs_no_more_than_a_failure(killed_at: int) -> None:
    loop = Loop(nan_at=820, every=100)
    loop.train(killed_at)
    failures = 0
    while not loop.train():
        failures += 1
        assert failures <= 4, loop.sources


def test_without_a_storage_the_training_begins_again_after_a_nan_alone() -> None:
    loop = Loop(nan_at=820, every=100, relative=True, saves=False)
    while not loop.train():
        assert len(loop.sources) < 6, loop.sources
    assert loop.sources[-1] == "storage 0"


# Failures that the copy has not caused.


@pytest.mark.parametrize(
    ("hours", "has_storage", "drops"), [(False, False, True), (True, False, False), (True, True, True)]
)
def test_a_failure_long_after_a_restore_drops_nothing_if_the_training_would_begin_again(
    hours: bool, has_storage: bool, drops: bool
) -> None:
    chief, copy = start_gang_with_copies(max_restarts=100), 0
    now, told = 0.0, {"checkpoint": 50} if has_storage else {}
    seconds = SOON_SECONDS + 1 if hours else SOON_SECONDS - 1
    for number in (1, 2):
        now, first, copy = now + seconds + 100.0, copy, copy + 1000
        fields = {"first_step": first, "first_step_time": seconds, **told}
        make_steps(chief, now, copy + 1, report(copy, resumed=first or None), **fields)
        fail(chief, "worker-0", now, f"ValueError: record {copy}", **fields)
        order = restored(restart(chief, now + 61.0, [number, copy]))
    assert order == (None if drops else [2, 2000])


def test_another_failure_than_the_one_before_drops_no_copy_once_there_is_a_newer_one() -> None:
    chief, copy = start_gang_with_copies(max_restarts=100), 0
    for number, exception in enumerate(("ValueError: a", "TypeError: b", "ValueError: a", "KeyError: c"), 1):
        make_steps(chief, 100.0 * number, copy + 101, report(copy + 100, resumed=copy or None), checkpoint=50)
        fail(chief, "worker-0", 100.0 * number, exception)
        copy += 100
        assert restored(restart(chief, 100.0 * number + 60, [number, copy])) == [number, copy]


def test_a_kill_between_two_equal_failures_does_not_hide_that_they_are_equal() -> None:
    chief, copy = start_gang_with_copies(max_restarts=100), 0
    for number, killed in enumerate((False, True, False), 1):
        now, first, copy = 100.0 * number, copy, copy + 100
        make_steps(chief, now, copy + 1, report(copy, resumed=first or None), first_step=first)
        if killed:
            chief.handle_frame("worker-0", exited(chief.rounds.number, number_of_signal=9), now)
        else:
            fail(chief, "worker-0", now)
        order = restored(restart(chief, now + 60.0, [number, copy]))
    assert order is None
