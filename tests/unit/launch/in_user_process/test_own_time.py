"""What a member counts of its steps; tests/processes/launch/test_slow_member.py measures with TensorFlow."""

from __future__ import annotations

import sys
import time
from types import ModuleType

import pytest

from tftraining.launch.in_user_process import own_time
from tftraining.launch.in_user_process.own_time import ITERATOR, LOOK_SECONDS, REDUCTION, OwnTime


class Clock(OwnTime):
    """One whose counters of the graph are told: [wait, input, waits, inputs]."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.graph, self.now = [0.0] * 4, 100.0
        self._handle = "there"
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(own_time, "_is_deterministic", lambda: False)
        self.begin_fit(None)

    def _read(self) -> list[float]:
        return list(self.graph)

    def step(
        self, batch: int, wait: float = 0.1, of_input: float = 0.05, waits: int = 1, inputs: int = 1, last: int = 0
    ) -> tuple[int, float, float]:
        """A step of 0.3 s, and a callback of a second."""
        self.begin_step(batch)
        self.now += 0.3
        self.graph = [now + new for now, new in zip(self.graph, (wait, of_input, waits, inputs), strict=True)]
        self.end_step(last or batch)
        self.now += 1.0
        return self.totals


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_own_time_is_a_step_without_its_wait_and_without_callbacks(clock: Clock) -> None:
    assert clock.step(0) == (0, 0.0, 0.0), "the first step begins an iterator"
    assert clock.step(1) == pytest.approx((1, 0.2, 0.05))
    assert clock.step(2) == pytest.approx((2, 0.4, 0.1))


def test_steps_between_two_looks_are_added_up(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_time, "LOOK_SECONDS", 3.0)
    clock.step(0)
    assert [clock.step(each)[0] for each in range(1, 7)] == [0, 0, 3, 3, 3, 6]
    assert clock.totals == pytest.approx((6, 1.2, 0.3))
    assert LOOK_SECONDS < 3.0


def test_the_end_of_an_epoch_with_its_evaluation_is_left_out(clock: Clock) -> None:
    clock.step(0)
    clock.step(1)
    clock.graph = [now + 50.0 for now in clock.graph]
    clock.begin_epoch()
    assert clock.step(0) == pytest.approx((1, 0.2, 0.05))
    assert clock.step(1) == pytest.approx((2, 0.4, 0.1))


@pytest.mark.parametrize(
    "odd",
    [
        {"waits": 0, "wait": 0.0},  # an eager step, or one of XLA
        {"waits": 2},  # two optimizers, whose waits may overlap
        {"inputs": 0},  # another kind of iterator
        {"wait": 0.3},
        {"wait": 0.5},
        {"wait": -9.0},  # the clock of the machine was set back
    ],
)
def test_a_step_of_which_something_is_unknown_does_not_count(clock: Clock, odd: dict[str, float]) -> None:
    clock.step(0)
    assert clock.step(1, **odd) == (0, 0.0, 0.0)  # type: ignore[arg-type]
    assert clock.step(2) == pytest.approx((1, 0.2, 0.05))


def test_an_execution_of_several_steps_counts_them(clock: Clock) -> None:
    clock.step(0, waits=5, inputs=5, last=4)
    assert clock.step(5, waits=5, inputs=5, last=9) == pytest.approx((5, 0.2, 0.05))


def test_the_wait_for_input_is_a_part_of_the_own_time(clock: Clock) -> None:
    clock.step(0)
    assert clock.step(1, of_input=9.0) == pytest.approx((1, 0.2, 0.2))


def test_an_error_ends_the_measurement_and_nothing_else(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock.step(0)
    clock.step(1)

    def fail() -> list[float]:
        raise RuntimeError("the resource is gone")

    monkeypatch.setattr(clock, "_read", fail)
    for each in (2, 3, 4):
        assert clock.step(each)[0] == 1
    assert capsys.readouterr().err == "tftraining: no search for a slow member: RuntimeError: the resource is gone\n"


def test_nothing_is_read_before_something_was_measured(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    clock._handle = None
    monkeypatch.setattr(clock, "_read", lambda: pytest.fail("read"))
    assert clock.step(0) == (0, 0.0, 0.0)


def test_a_changed_tensorflow_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class CollectiveAllReduce:
        def batch_reduce_implementation(self, reduce_op: object, value_destination_pairs: object) -> None:
            """Takes no options any more."""

    class OwnedIterator:
        def get_next(self) -> None:
            """As it is known."""

        def get_next_as_optional(self) -> None:
            """As it is known."""

    before = dict(vars(OwnedIterator)), dict(vars(CollectiveAllReduce))
    for name, cls in ((REDUCTION, CollectiveAllReduce), (ITERATOR, OwnedIterator)):
        module = ModuleType(name)
        setattr(module, cls.__name__, cls)
        monkeypatch.setitem(sys.modules, name, module)
    own_time.install(OwnTime())
    assert (dict(vars(OwnedIterator)), dict(vars(CollectiveAllReduce))) == before
    assert "no search for a slow member: batch_reduce_implementation" in capsys.readouterr().err.replace(
        "CollectiveAllReduce.", ""
    )
