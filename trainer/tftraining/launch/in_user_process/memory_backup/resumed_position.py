"""Converts the place at which a copy was made for a gang of another size. Pure.

A gang of the same size resumes where the copy was made. One of another size makes steps of more or fewer examples, so
the place is converted by the examples in a step. Where these are unknown, or an epoch has another number of examples,
only the begin of an epoch has a place in both gangs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Place:
    """`batch` of `epoch` comes next; `drawn` batches of the iterator number `made` are read."""

    epoch: int
    batch: int
    drawn: int
    made: int


@dataclass(frozen=True)
class Split:
    """How a gang trains: its workers, steps in an epoch (0: unknown), and examples in a step (None: unknown)."""

    workers: int
    steps: int
    examples: int | None


def from_head(head: Mapping[str, Any]) -> tuple[Place, Split]:
    """What the head of a copy says. KeyError, ValueError or TypeError if it does not."""
    place = Place(*(int(head[name]) for name in ("epoch", "batch", "drawn", "made")))
    examples = head.get("globalBatch")
    gang = Split(int(head["workers"]), int(head["stepsPerEpoch"]), None if examples is None else int(examples))
    return place, gang


def resume_at(place: Place, then: Split, now: Split, *, anew: bool) -> Place | None:
    """Where the gang `now` resumes from a copy of the gang `then`; None if the place exists in `then` only.

    `anew`: each epoch has an iterator of its own.
    """
    if (then.workers, then.steps, then.examples) == (now.workers, now.steps, now.examples):
        return place
    if anew and place.batch == 0:
        return place
    if then.examples is None or now.examples is None:
        return place if (then.workers, then.steps) == (now.workers, now.steps) else None
    drawn = place.drawn * then.examples // now.examples
    if abs(then.steps * then.examples - now.steps * now.examples) < max(then.examples, now.examples):
        batch = min(place.batch * then.examples // now.examples, now.steps - 1)
        return replace(place, batch=batch, drawn=drawn)
    if then.steps == now.steps and not anew:  # the epochs are counted in steps, and the input goes on
        return replace(place, drawn=drawn)
    return replace(place, drawn=drawn) if place.batch == 0 else None
