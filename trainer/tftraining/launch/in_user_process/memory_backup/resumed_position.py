"""Decides where in its epochs and its input a training resumes that has restored a copy in memory. Pure.

A gang of the same size resumes where the copy was made. One of another size makes steps of more or fewer examples, so
the position is converted by the examples in a step. If these are unknown, or if it takes longer to skip the input than
to repeat the steps, the epoch is resumed from its begin. The state is that of the copy in any case.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

ENOUGH = 1000  # skipped batches, to tell their cost from what else makes a first batch slow
PATIENCE = 10.0  # seconds that skipping may take at any rate: the price of reading the examples that come next
# While no restart has measured it: the part of a step that a skipped batch is assumed to take, and the patience.
UNKNOWN_PART, UNKNOWN_PATIENCE = 0.1, 60.0


@dataclass(frozen=True)
class Place:
    """`batch` of `epoch` comes next; `drawn` batches of the iterator number `made` are read."""

    epoch: int
    batch: int
    drawn: int
    made: int


@dataclass(frozen=True)
class Pace:
    """How a gang trains: its workers, steps in an epoch, and examples in a step (None: unknown)."""

    workers: int
    steps: int
    examples: int | None


@dataclass(frozen=True)
class Cost:
    """Seconds to skip a batch of input and to make a step, as the copy's program has measured them; None: unknown."""

    skip: float | None = None
    step: float | None = None


def from_head(head: Mapping[str, Any]) -> tuple[Place, Pace, Cost]:
    """What the head of a copy says."""
    place = Place(*(int(head[name]) for name in ("epoch", "batch", "drawn", "made")))
    examples = head.get("globalBatch")
    pace = Pace(int(head["workers"]), int(head["stepsPerEpoch"]), None if examples is None else int(examples))
    return place, pace, Cost(head.get("skipSeconds"), head.get("stepSeconds"))


def resume_at(place: Place, then: Pace, now: Pace, cost: Cost, *, anew: bool) -> tuple[Place, str]:
    """Where to resume, and why that is the begin of the epoch ("" if it is not).

    `then`, `now`: the gang that made the copy, and this one. `anew`: each epoch has an iterator of its own.
    """
    converted, why = _converted(place, then, now, anew=anew)
    # The training reads a batch of input for each step, so to skip one does not take longer than a step.
    guess = 0.0 if cost.step is None else cost.step * UNKNOWN_PART
    skipping = converted.drawn * min(guess if cost.skip is None else cost.skip, cost.step or math.inf)
    repeating = converted.batch * (cost.step or math.inf) if converted.batch else 0.0
    if skipping <= max(repeating, PATIENCE if cost.skip is not None else UNKNOWN_PATIENCE):
        return converted, why
    read, made = f"to skip {converted.drawn} batches of input takes {skipping:.0f} s", f"{converted.batch} steps"
    return replace(converted, batch=0, drawn=0), f"{read}, and to repeat {made} {repeating:.0f} s"


def _converted(place: Place, then: Pace, now: Pace, *, anew: bool) -> tuple[Place, str]:
    if then.examples is None or now.examples is None:
        if (then.workers, then.steps) == (now.workers, now.steps):
            return place, ""
        begin = 0 if anew else place.epoch * now.steps
        why = f"the copy is of {then.workers} workers, and the number of examples in a step is unknown"
        return replace(place, batch=0, drawn=begin), why
    drawn = place.drawn * then.examples // now.examples
    if abs(then.steps * then.examples - now.steps * now.examples) < max(then.examples, now.examples):
        batch = min(place.batch * then.examples // now.examples, now.steps - 1)
        return replace(place, batch=batch, drawn=drawn), ""
    if then.steps == now.steps and not anew:  # the epochs are counted in steps, and the input goes on
        return replace(place, drawn=drawn), ""
    begin = 0 if anew else (place.drawn - place.batch) * then.examples // now.examples
    sizes = f"an epoch had {then.steps * then.examples} examples, and has {now.steps * now.examples}"
    return replace(place, batch=0, drawn=max(begin, 0)), sizes


class SkipCost:
    """Learns what skipping costs: a first batch behind skipped input takes longer than one without."""

    def __init__(self, head: Mapping[str, Any] | None) -> None:
        self._first: float | None = (head or {}).get("firstSeconds")  # without skipping
        self._skip: float | None = (head or {}).get("skipSeconds")  # a batch
        self._begun: tuple[float, int] | None = None

    def begin(self, now: float, drawn: int) -> None:
        """The input is about to be read, behind so many batches."""
        self._begun = now, drawn

    def first_batch(self, now: float) -> None:
        """The first batch has been trained."""
        if self._begun is None:
            return
        (begun, drawn), self._begun = self._begun, None
        if not drawn:
            self._first = now - begun
        elif self._first is not None and drawn >= ENOUGH:
            self._skip = max(0.0, now - begun - self._first) / drawn

    def for_head(self) -> dict[str, float]:
        """What the next process needs to know."""
        told = {"firstSeconds": self._first, "skipSeconds": self._skip}
        return {name: round(seconds, 6) for name, seconds in told.items() if seconds is not None}
