"""What the programs of benchmarks.lost_work write about their steps, and figures from it. Pure, apart from `read`."""

import json
import statistics
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

# Number of the step, begin and end of its batch (CLOCK_MONOTONIC), and the seconds between the last call of the
# recording callback in the batch before and the first one in this batch.
STEP = struct.Struct("<qddd")
BATCH = 64  # examples of a step, in all members together
PARTS = 1000  # of the data, each counted on its own

Interval = tuple[float, float]


@dataclass(frozen=True)
class Step:
    """One step of one program: its number, the begin and the end of its batch, and the time blocked before it."""

    number: int
    begin: float
    end: float
    blocked: float


def read(directory: Path, task: int) -> dict[int, list[Step]]:
    """The steps of each process of a task, by process ID, the first process first; without those that made none."""
    found = {}
    for path in directory.glob(f"steps-{task}-*"):
        data = path.read_bytes()
        whole = len(data) // STEP.size * STEP.size
        if whole:
            found[int(path.name.rpartition("-")[2])] = [Step(*each) for each in STEP.iter_unpack(data[:whole])]
    return dict(sorted(found.items(), key=lambda each: each[1][0].begin))


def lost_steps(rounds: Sequence[Sequence[Step]], at: float) -> int | None:
    """The steps made before `at` that were made again after it; None if none was made after it."""
    before = [step.number for steps in rounds for step in steps if step.end <= at]
    after = [step for steps in rounds for step in steps if step.begin > at]
    if not after:
        return None
    return max(0, _last(rounds, at) - (min(after, key=lambda step: step.begin).number - 1)) if before else 0


def _last(rounds: Sequence[Sequence[Step]], at: float) -> int:
    """The step that the training has reached at a time."""
    ended = [step for steps in rounds for step in steps if step.end <= at]
    return max(ended, key=lambda step: step.end).number


def kept_steps(rounds: Sequence[Sequence[Step]], begin: float, end: float) -> int:
    """How many steps further the training is at `end` than at `begin`; steps that were made again count once."""
    return _last(rounds, end) - _last(rounds, begin)


def repeated_steps(rounds: Sequence[Sequence[Step]]) -> int:
    """How many steps were made again, in all rounds together: what all stops of the training have lost."""
    made = [step.number for steps in rounds for step in steps]
    return len(made) - len(set(made))


def longest_pause(rounds: Sequence[Sequence[Step]], since: float) -> float:
    """The longest time between the ends of two steps, of which the second ended after `since`."""
    ends = sorted(step.end for steps in rounds for step in steps)
    return max(other - one for one, other in pairwise(ends) if other > since)


def step_seconds(steps: Sequence[Step]) -> float:
    """The median time from the end of a step to the end of the next one."""
    return statistics.median(other.end - one.end for one, other in pairwise(steps))


def blocked_share(steps: Sequence[Step], span: Interval) -> float:
    """The share of the time that lies between the last callback of a batch and the first one of the next batch.

    Keras does nothing there but return from one list of callbacks and call another: the launcher's hooks do the rest.
    """
    inside = [step for step in steps if span[0] <= step.begin and step.end <= span[1]]
    return sum(step.blocked for step in inside[1:]) / (inside[-1].end - inside[0].end)


def speed(steps: Sequence[Step], span: Interval) -> float:
    """Steps per second in this span, from the first end of a step to the last."""
    inside = [step for step in steps if span[0] <= step.end <= span[1]]
    if len(inside) < 2:
        raise ValueError("fewer than two steps in a segment: ask for longer segments")
    return (len(inside) - 1) / (inside[-1].end - inside[0].end)


def counted(directory: Path, tasks: int) -> tuple[int, list[int]]:
    """A step that all tasks have counted at, and the examples of each part that they were trained on until then."""
    told = [dict(json.loads((directory / f"seen-{task}").read_text())) for task in range(tasks)]
    step = max(set.intersection(*(set(each) for each in told)))
    return step, [sum(parts) for parts in zip(*(each[step] for each in told), strict=True)]


def due(step: int, steps_per_epoch: int) -> list[int]:
    """The examples of each part that an undisturbed training has been trained on after so many steps."""
    count, done = steps_per_epoch * BATCH, step * BATCH
    bounds = [-(-part * count // PARTS) for part in range(PARTS + 1)]
    passes, rest = divmod(done, count)
    return [passes * (end - begin) + max(0, min(end, rest) - begin) for begin, end in pairwise(bounds)]


def unlike(seen: Sequence[int], expected: Sequence[int], tolerance: float) -> float:
    """The share of the parts that were seen more or less often than expected, beyond this tolerance."""
    pairs = list(zip(seen, expected, strict=True))
    return sum(abs(one - other) > tolerance * max(other, 1) for one, other in pairs) / len(pairs)
