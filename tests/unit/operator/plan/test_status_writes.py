"""When a changed status is written: news at once, progress within what all jobs together may write."""

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from tftraining_api.model.job import Job
from tftraining_api.model.names import Key
from tftraining_api.model.status import Progress, Restarts, Status
from tftraining_operator.plan.status_writes import ITEM, KERAS, PROGRESS_WRITES, dropped_fields, due

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
POLL = 15.0
TRAINS = Status(phase="Running", ready="2/2", progress=Progress(epoch=1, step=10))


def a_job(number: int = 0, status: Status = TRAINS) -> Job:
    return Job(key=Key("ns", f"job-{number}"), uid=f"uid-{number}", generation=1, status=status, spec=None)


def told(status: Status, step: int, epoch: int = 1) -> Status:
    return msgspec.structs.replace(status, progress=Progress(epoch=epoch, step=step))


def waits(new: Status, training: int, status: Status = TRAINS) -> float:
    return (due(a_job(status=status), new, START, training) - START).total_seconds()


class Fleet:
    """Jobs that train, each with its status and the time of its last write. `writes` holds the times of the writes."""

    def __init__(self, size: int, epoch_of: Callable[[float], int]) -> None:
        self.jobs = [a_job(number) for number in range(size)]
        self.written = [START] * size
        self.writes: list[tuple[float, int]] = []
        self.epoch_of = epoch_of

    def hear(self, number: int, second: float) -> None:
        """A poll: the operator does what is due by its clock."""
        job, now = self.jobs[number], START + timedelta(seconds=second)
        new = told(job.status, int(second * 100), self.epoch_of(second))
        if new != job.status and due(job, new, self.written[number], len(self.jobs)) <= now:
            self.jobs[number] = msgspec.structs.replace(job, status=new)
            self.written[number] = now
            self.writes.append((second, number))

    def run(self, seconds: float) -> None:
        """Polls of all jobs, each a little late, as those of real launchers are."""
        drawn = random.Random(1)
        polls = [(drawn.uniform(0, POLL) + POLL * each, n) for n in range(len(self.jobs)) for each in range(99)]
        for second, number in sorted(each for each in polls if each[0] < seconds):
            self.hear(number, second)


def a_long_epoch(second: float) -> int:
    return 1


def a_short_epoch(second: float) -> int:
    return int(second)


@pytest.mark.parametrize("epoch_of", [a_long_epoch, a_short_epoch])
def test_a_thousand_jobs_keep_to_their_budget_though_all_were_written_at_once(
    epoch_of: Callable[[float], int],
) -> None:
    fleet = Fleet(1000, epoch_of)
    fleet.run(600)
    assert len(fleet.writes) <= PROGRESS_WRITES * 600
    # The jobs' moments are spread by chance: some seconds have a few more.
    for start in range(0, 580, 5):
        busy = sum(1 for second, _ in fleet.writes if start <= second < start + 20)
        assert busy <= 1.25 * PROGRESS_WRITES * 20
    assert set(Counter(number for _, number in fleet.writes).values()) <= {8, 9, 10}, "one is like the other"


def test_one_job_is_written_at_most_every_ten_seconds() -> None:
    fleet = Fleet(1, a_long_epoch)
    for tenth in range(6000):
        fleet.hear(0, tenth / 10)
    assert len(fleet.writes) == 59
    gaps = [after[0] - before[0] for before, after in zip(fleet.writes, fleet.writes[1:], strict=False)]
    assert min(gaps) >= 10 and max(gaps) < 10.2


def test_a_new_epoch_of_few_jobs_does_not_wait_and_one_of_many_has_its_turn() -> None:
    assert waits(told(TRAINS, 1, epoch=2), training=1) == pytest.approx(1, abs=0.1)
    assert 1 <= waits(told(TRAINS, 1, epoch=2), training=15) <= 2
    assert 1 <= waits(told(TRAINS, 1, epoch=2), training=1000) <= 1000 / PROGRESS_WRITES
    first = msgspec.structs.replace(TRAINS, progress=None)
    assert waits(TRAINS, training=1, status=first) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(
    "news",
    [
        {"phase": "Restarting"},
        {"restarts": Restarts(in_place=1)},
        {"attempt": 2},
        {"observed_generation": 2},
    ],
)
def test_the_budget_holds_up_nothing_but_progress(news: dict[str, object]) -> None:
    new = msgspec.structs.replace(told(TRAINS, 20), **news)
    assert waits(new, training=100_000) == 0


def test_counts_wait_for_a_second_whatever_progress_comes_with_them() -> None:
    new = msgspec.structs.replace(told(TRAINS, 20), ready="1/2")
    assert waits(new, training=100_000) == 1


def test_fields_that_an_older_definition_drops_are_found_in_lists_too() -> None:
    sent = {"keras": "3", "attempt": 1, "nodes": [{"name": "a"}, {"name": "b", "usedBy": "worker-1"}]}
    kept = {"attempt": 1, "nodes": [{"name": "a"}, {"name": "b"}]}
    assert set(dropped_fields(sent, kept)) == {KERAS, ("nodes", ITEM, "usedBy")}
