"""The progress of a program as it travels between launchers, and what it says: does it train, has it made progress?

Pure. Monotonic clocks differ between machines, so times travel as ages. A program that reports nothing must never be
taken for one that stands still: it trains when it has run for a while.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from tftraining.launch.snapshot import Snapshot

# Seconds of a program that reports nothing until it is taken to train (an import of TensorFlow is over by then), and
# until that counts as progress.
QUIET_START = 30.0
QUIET_PROGRESS = 60.0

_COUNTS = ("epoch", "epochs", "step", "steps_per_epoch", "first_epoch", "first_step", "checkpoint")
_TIMES = ("first_step_time", "last_step_time")
_NUMBERS = {**dict.fromkeys(_COUNTS, int), **dict.fromkeys(("steps_per_second", "updated", *_TIMES), float)}


def to_frame(snapshot: Snapshot, now: float) -> dict[str, Any]:
    """The fields that are known, times as ages at `now` (monotonic seconds)."""
    frame: dict[str, Any] = {name: getattr(snapshot, name) for name in (*_COUNTS, "steps_per_second", "updated")}
    for name in _TIMES:
        at = getattr(snapshot, name)
        frame[name] = None if at is None else max(0.0, now - at)
    frame["metrics"] = snapshot.metrics
    frame["connecting"] = snapshot.connecting or None
    return {name: value for name, value in frame.items() if value not in (None, {})}


def from_frame(frame: dict[str, Any], now: float, first_step_time: float | None = None) -> Snapshot:
    """The snapshot on this machine's clock; TypeError or ValueError if a field is not what it should be.

    A `first_step_time` that is known stays: its age comes again with each beat, each time a little off.
    """
    known: dict[str, Any] = {name: kind(frame[name]) for name, kind in _NUMBERS.items() if name in frame}
    for name in _TIMES:
        if name in known:
            known[name] = now - known[name]
    if first_step_time is not None:
        known["first_step_time"] = first_step_time
    metrics = {str(name): float(value) for name, value in frame.get("metrics", {}).items()}
    return Snapshot(**known, metrics=metrics, connecting=bool(frame.get("connecting")))


def after(earlier: Snapshot, told: Snapshot) -> Snapshot:
    """What is told in a round, with the epoch of the one before as long as none is told: a program that restores its
    last state knows its steps before it begins an epoch. So with the metrics, which come at the end of an epoch."""
    if told.epoch is None and earlier.epoch is not None:
        told = replace(told, epoch=earlier.epoch, epochs=told.epochs or earlier.epochs)
    return replace(told, metrics=told.metrics or earlier.metrics)


def reports(snapshot: Snapshot) -> bool:
    """Whether the program has told anything in this round."""
    return snapshot.updated is not None


def silent(snapshot: Snapshot) -> bool:
    """Whether nothing is known of what the program does in this round."""
    return not reports(snapshot) and not snapshot.connecting


def trains(snapshot: Snapshot, started: float, now: float) -> bool:
    """Whether a program that runs since `started` has made a step in this round, or never will tell."""
    if not silent(snapshot):
        return snapshot.first_step_time is not None
    return now - started >= QUIET_START


def to_status(snapshot: Snapshot) -> dict[str, Any] | None:
    """The form of /status; None if nothing was reported."""
    if snapshot.updated is None:
        return None
    return {
        "epoch": snapshot.epoch,
        "epochs": snapshot.epochs,
        "step": snapshot.step,
        "stepsPerEpoch": snapshot.steps_per_epoch,
        "firstEpoch": snapshot.first_epoch,
        "firstStep": snapshot.first_step,
        "checkpoint": snapshot.checkpoint,
        "stepsPerSecond": snapshot.steps_per_second,
        "metrics": snapshot.metrics,
        "updatedTime": rfc3339(snapshot.updated),
    }


def rfc3339(at: float) -> str:
    """Seconds since 1970 as `2026-01-31T12:00:00.123Z`; the nearest that can be written for an absurd clock."""
    bounded = min(max(at, 0.0), 2.0**37)
    return datetime.fromtimestamp(bounded, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
