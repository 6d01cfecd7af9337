"""The figures that benchmarks.lost_work takes from the records of its programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import training_records
from benchmarks.training_records import BATCH, PARTS, STEP, Step


def steps(first: int, last: int, at: float, seconds: float = 1.0, blocked: float = 0.0) -> list[Step]:
    """Steps one after the other, from `at` on."""
    begins = [at + place * seconds for place in range(last - first + 1)]
    return [
        Step(number, begin + blocked, begin + seconds, blocked)
        for number, begin in zip(range(first, last + 1), begins, strict=True)
    ]


def test_the_processes_of_a_task_come_in_the_order_of_their_first_step(tmp_path: Path) -> None:
    for name, begin in (("steps-0-900", 50.0), ("steps-0-1000", 10.0), ("steps-1-5", 0.0)):
        (tmp_path / name).write_bytes(STEP.pack(3, begin, begin + 1, 0.5) + b"a torn record")
    (tmp_path / "steps-0-7").write_bytes(b"")
    assert training_records.read(tmp_path, 0) == {1000: [Step(3, 10.0, 11.0, 0.5)], 900: [Step(3, 50.0, 51.0, 0.5)]}


@pytest.mark.parametrize(("resumed", "lost"), [(16, 5), (21, 0), (0, 21)])
def test_what_a_kill_loses_is_what_is_trained_again(resumed: int, lost: int) -> None:
    killed = steps(1, 21, at=0.0)
    assert training_records.lost_steps([killed, steps(resumed + 1, resumed + 3, at=30.0)], at=21.5) == lost


def test_a_second_kill_counts_from_where_the_training_was_then() -> None:
    rounds = [steps(1, 21, at=0.0), steps(17, 18, at=30.0), steps(17, 20, at=40.0)]
    assert training_records.lost_steps(rounds, at=32.5) == 2


def test_nothing_is_known_before_the_next_round() -> None:
    assert training_records.lost_steps([steps(1, 21, at=0.0)], at=21.5) is None


def test_steps_that_are_made_again_count_once() -> None:
    rounds = [steps(1, 21, at=0.0), steps(17, 30, at=30.0)]
    assert training_records.kept_steps(rounds, begin=1.0, end=40.0) == 26 - 1


def test_a_stop_has_lost_the_steps_that_were_made_twice() -> None:
    rounds = [steps(1, 21, at=0.0), steps(19, 30, at=40.0), steps(31, 33, at=60.0)]
    assert training_records.repeated_steps(rounds) == 3
    assert training_records.longest_pause(rounds, since=21.0) == pytest.approx(20.0)
    assert training_records.longest_pause(rounds, since=45.0) == pytest.approx(9.0)


def test_the_share_of_the_time_between_batches() -> None:
    made = steps(1, 11, at=0.0, seconds=1.0, blocked=0.25)
    assert training_records.blocked_share(made, (0.0, 20.0)) == pytest.approx(0.25)
    assert training_records.speed(made, (0.0, 20.0)) == pytest.approx(1.0)
    assert training_records.step_seconds(made) == pytest.approx(1.0)


@pytest.mark.parametrize("step", [0, 1, 37, 100, 137, 200])
def test_each_part_is_due_as_often_as_an_undisturbed_training_reads_it(step: int) -> None:
    epoch = 100
    read = [0] * PARTS
    for example in range(step * BATCH):
        read[example % (epoch * BATCH) * PARTS // (epoch * BATCH)] += 1
    assert training_records.due(step, epoch) == read


def test_the_counts_of_all_tasks_at_the_same_step(tmp_path: Path) -> None:
    (tmp_path / "seen-0").write_text(json.dumps([[100, [1, 2]], [200, [3, 4]]]))
    (tmp_path / "seen-1").write_text(json.dumps([[200, [5, 6]], [300, [7, 8]]]))
    assert training_records.counted(tmp_path, 2) == (200, [8, 10])


def test_parts_beyond_the_tolerance() -> None:
    assert training_records.unlike([100, 105, 106, 94], [100] * 4, 0.05) == 0.5
    assert training_records.unlike([0, 1], [0, 0], 0.05) == 0.5
