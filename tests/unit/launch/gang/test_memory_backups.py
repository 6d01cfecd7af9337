"""Backups in memory: which copy a gang resumes from, what a kill at any moment leaves, how often copies are made."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.simulated_gang.simulation import exited, hello, make_coordinator
from tftraining.launch.gang import memory_backups
from tftraining.launch.in_user_process import backup_interval, memory_copy
from tftraining.launch.in_user_process.backup_interval import Measured
from tftraining.launch.in_user_process.memory_copy import HEAD, Slots, held

COPIES = st.frozensets(st.tuples(st.integers(1, 4), st.integers(1, 6)), max_size=4)
STATE = 128  # bytes


# Which copy.


@given(st.lists(COPIES, max_size=5))
def test_any_pattern_of_copies_restores_the_newest_that_all_hold_or_none(held_by: list[frozenset[Any]]) -> None:
    found = memory_backups.newest_common(held_by)
    common = [each for own in held_by for each in own if all(each in other for other in held_by)]
    assert (found is None) == (not common)
    assert found is None or (found in common and all(found >= each for each in common))


def starts(copies: dict[str, Any]) -> list[Any]:
    chief = make_coordinator(*copies)
    for name, told in copies.items():
        chief.handle_hello(hello(name, copies=told), 0.0)
    return [frame["memoryBackup"] for _, frame in chief.outbox.take_all() if frame["type"] == "start"]


@pytest.mark.parametrize(
    ("one", "other", "order"),
    [
        ([[1, 32], [1, 48]], [[1, 48], [1, 64]], {"restore": [1, 48]}),
        ([[1, 64], [2, 48]], [[1, 64], [2, 48]], {"restore": [2, 48]}),  # what was trained last
        ([[1, 32]], [[2, 32]], {"restore": None}),  # the same step of two trainings
        ([[1, 32]], [], {"restore": None}),
        ([[1, 32]], None, None),  # an older launcher, or one without memory
    ],
)
def test_all_members_are_told_the_same_copy(one: Any, other: Any, order: Any) -> None:
    assert starts({"worker-0": one, "worker-1": other}) == [order, order]


def test_parameter_servers_make_no_copies() -> None:
    assert starts({"chief-0": [], "worker-0": [], "ps-0": []}) == [None] * 3


def test_a_member_that_is_ready_again_tells_what_it_holds_now() -> None:
    chief = make_coordinator("worker-0", "worker-1")
    for name in ("worker-0", "worker-1"):
        chief.handle_hello(hello(name, copies=[]), 0.0)
    chief.handle_frame("worker-1", exited(1, 1), 1.0)
    chief.outbox.take_all()
    for name in ("worker-0", "worker-1"):
        chief.handle_frame(name, {"type": "ready", "round": 1, "copies": [[1, 16]]}, 2.0)
    told = [frame["memoryBackup"] for _, frame in chief.outbox.take_all() if frame["type"] == "start"]
    assert told == [{"restore": [1, 16]}] * 2


@pytest.mark.parametrize("told", ["many", [1], [[1, "x"]], [[1, 2]] * 17])
def test_a_frame_of_something_else_is_refused(told: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        memory_backups.from_frame(told)


# What a kill leaves.


def write(slots: Slots, step: int, number: int = 1, value: int = 0) -> None:
    slots.begin()[HEAD : HEAD + STATE] = bytes([value or step]) * STATE
    slots.commit(number, step, {"step": step, "exponent": 4})


def copies(*directories: Path) -> list[list[tuple[int, int]]]:
    return [held(str(each)) for each in directories]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_kill_at_any_moment_costs_one_copy_at_most(data: st.DataObject) -> None:
    """Members copy in lockstep: none begins copy n + 1 before all have completed copy n."""
    members, whole = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 5))
    progress = data.draw(st.lists(st.sampled_from(["before", "begun", "done"]), min_size=members, max_size=members))
    with TemporaryDirectory() as place:
        directories = [Path(place, str(index)) for index in range(members)]
        for directory, last in zip(directories, progress, strict=True):
            directory.mkdir()
            slots = Slots(str(directory), STATE, None)
            slots.reserve()
            for step in range(1, whole + 1):
                write(slots, step)
            if last == "begun":
                slots.begin()[HEAD] = 0
            elif last == "done":
                write(slots, whole + 1)
        common = memory_backups.newest_common(copies(*directories))
        everywhere = whole + all(each == "done" for each in progress)
        assert common == ((1, everywhere) if everywhere else None)
        for directory in directories if common is not None else ():
            number, step = common or (0, 0)
            assert set(memory_copy.Copy(str(directory), number, step).state) == {everywhere}


def test_the_restored_copy_outlives_the_begin_of_the_next_one(tmp_path: Path) -> None:
    slots = Slots(str(tmp_path), STATE, None)
    slots.reserve()
    for step in (1, 2):
        write(slots, step)
    after = Slots(str(tmp_path), STATE, (1, 1))  # the newest is not held by all
    after.reserve()
    assert held(str(tmp_path)) == [(1, 1)]
    after.begin()
    assert held(str(tmp_path)) == [(1, 1)]
    write(after, 2, number=2)
    assert held(str(tmp_path)) == [(1, 1), (2, 2)]
    write(after, 3, number=2)
    assert held(str(tmp_path)) == [(2, 2), (2, 3)]
    after.discard()
    assert list(tmp_path.iterdir()) == []


def test_a_copy_comes_back_as_it_was(tmp_path: Path) -> None:
    slots = Slots(str(tmp_path), STATE, None)
    slots.reserve()
    write(slots, 7, value=9)
    copy = memory_copy.Copy(str(tmp_path), 1, 7)
    assert (copy.step, copy.exponent, bytes(copy.state)) == (7, 4, bytes([9]) * STATE)
    copy.close()


@pytest.mark.parametrize("text", [b"", b"x" * HEAD, memory_copy.MAGIC + b"\xff" * HEAD])
def test_a_file_that_is_no_copy_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "copy-1-1").write_bytes(text)
    with pytest.raises((OSError, ValueError)):
        memory_copy.Copy(str(tmp_path), 1, 1)


def test_memory_that_is_not_there_is_noticed_before_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"File too large|No space left|Cannot allocate|Invalid argument"):
        Slots(str(tmp_path), 1 << 62, None).reserve()


# How often.


@pytest.mark.parametrize(
    ("blocked", "step", "exponent"),
    [(0.001, 0.024, 3), (0.018, 0.024, 7), (0.17, 0.024, 10), (0.001, 10.0, 0), (1e9, 1e-9, 24)],
)
def test_the_interval_keeps_the_blocked_time_below_the_share(blocked: float, step: float, exponent: int) -> None:
    measured = Measured()
    measured.start(0.0, 0)
    measured.stop(100 * step, 100)
    measured.blocked(blocked)
    assert measured.exponent(4, 0.01) == exponent
    assert exponent == backup_interval.LARGEST or blocked <= 0.01 * step * 2**exponent


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
    assert measured.exponent(4, 0.01) == 4


@given(st.integers(0, 1000), st.integers(1, 70), st.integers(0, 6))
def test_a_multiple_of_the_interval_is_never_missed(before: int, made: int, exponent: int) -> None:
    multiples = [step for step in range(before + 1, before + made + 1) if step % 2**exponent == 0]
    assert backup_interval.crosses(before, before + made, exponent) == bool(multiples)


def test_votes_become_rare_but_never_end() -> None:
    votes = [count for count in range(1, 200) if backup_interval.votes_after(count)]
    assert votes == [2, 4, 8, 16, 32, 64, 128, 192]
