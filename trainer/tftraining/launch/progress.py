"""A program's progress: its form in frames between launchers and in /status, whether the program trains,
and the steps that a restart has lost.

Pure. Monotonic clocks differ between machines, so frames carry times as ages. A program that reports nothing must never
count as stalled: it counts as training once it has run for a while.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

# Seconds until a program that reports nothing counts as training (its import of TensorFlow is over by then), and until
# that counts as progress.
QUIET_START = 30.0
QUIET_PROGRESS = 60.0

_COUNTS = (
    "epoch",
    "epochs",
    "step",
    "steps_per_epoch",
    "first_epoch",
    "first_step",
    "checkpoint",
    "fit_start",
    "first_fit_start",
    "fit",
    "made_before",
    "main_exit",
    "own_steps",
)
_METRICS_PLACE = ("metrics_step", "metrics_epoch")
_TIMES = ("first_step_time", "last_step_time")
_SECONDS = ("own_seconds", "input_seconds")
_CLOCK_FREE = (*_COUNTS, *_METRICS_PLACE, *_SECONDS, "steps_per_second", "updated", "metrics_time")
_NUMBERS = {**dict.fromkeys((*_CLOCK_FREE, *_TIMES), float), **dict.fromkeys((*_COUNTS, *_METRICS_PLACE), int)}


@dataclass(frozen=True)
class Snapshot:
    """The progress that a program has reported; None for each value it has not.

    `epoch` is the present epoch, counted from 1 as Keras prints it; `step` the steps of the program so far, which only
    rise. A `fit` counts its own from `fit_start` on, the steps of the program's earlier ones. `connecting`: the program
    waits for its peers, in a call of TensorFlow; `alone`: it trains without them. `first_epoch` and `first_step` are
    the epochs and steps finished before this round, in a `fit` that counts from `first_fit_start` on: the last one that
    resumed, after `made_before` steps of this round. `fit` is the number of the present one, from 1. `main_exit`: the
    main thread of the program has ended, other threads still run, and the program will have this exit code.
    `checkpoint` is the step of the last checkpoint that this round saved or resumed from. In `own_steps` measured ones
    the program spent `own_seconds` without a wait for the other members, and `input_seconds` of these on a wait for its
    input. The metrics are those of `metrics_step` and `metrics_epoch`, and were reported at `metrics_time`. Times are
    CLOCK_MONOTONIC in seconds, `updated` and `metrics_time` are CLOCK_REALTIME.
    """

    epoch: int | None = None
    epochs: int | None = None
    step: int | None = None
    steps_per_epoch: int | None = None
    steps_per_second: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    updated: float | None = None
    first_step_time: float | None = None
    last_step_time: float | None = None
    first_epoch: int | None = None
    first_step: int | None = None
    connecting: bool = False
    alone: bool = False
    checkpoint: int | None = None
    metrics_step: int | None = None
    metrics_epoch: int | None = None
    metrics_time: float | None = None
    fit_start: int = 0
    first_fit_start: int = 0
    fit: int | None = None
    made_before: int = 0
    main_exit: int | None = None
    own_steps: int | None = None
    own_seconds: float | None = None
    input_seconds: float | None = None


def to_frame(snapshot: Snapshot, now: float) -> dict[str, Any]:
    """The known fields, times as ages at `now` (monotonic seconds)."""
    frame: dict[str, Any] = {name: getattr(snapshot, name) for name in _CLOCK_FREE}
    for name in _TIMES:
        at = getattr(snapshot, name)
        frame[name] = None if at is None else max(0.0, now - at)
    frame["metrics"] = snapshot.metrics
    frame["connecting"], frame["alone"] = snapshot.connecting or None, snapshot.alone or None
    return {name: value for name, value in frame.items() if value not in (None, {})}


def from_frame(frame: dict[str, Any], now: float, first_step_time: float | None = None) -> Snapshot:
    """The snapshot on this machine's clock; TypeError or ValueError if a field is invalid.

    A known `first_step_time` stays: each heartbeat carries its age again, each time a little off.
    """
    known: dict[str, Any] = {name: kind(frame[name]) for name, kind in _NUMBERS.items() if name in frame}
    for name in _TIMES:
        if name in known:
            known[name] = now - known[name]
    if first_step_time is not None:
        known["first_step_time"] = first_step_time
    metrics = {str(name): float(value) for name, value in frame.get("metrics", {}).items()}
    flags = {name: bool(frame.get(name)) for name in ("connecting", "alone")}
    return Snapshot(**known, metrics=metrics, **flags)


def carry_over(earlier: Snapshot, reported: Snapshot) -> Snapshot:
    """The progress reported in a round; epoch and metrics come from the round before while they are unreported.

    A program that restores its state knows its step before it begins an epoch; metrics come at the end of an epoch, and
    are none of another `fit`.
    """
    if reported.epoch is None and earlier.epoch is not None:
        reported = replace(reported, epoch=earlier.epoch, epochs=reported.epochs or earlier.epochs)
    same_fit = reported.fit_start == earlier.fit_start
    return replace(reported, metrics=reported.metrics or (earlier.metrics if same_fit else {}))


def has_reports(snapshot: Snapshot) -> bool:
    """Whether the program has reported anything in this round."""
    return snapshot.updated is not None


def is_silent(snapshot: Snapshot) -> bool:
    """Whether the program neither reports nor connects to its peers in this round."""
    return not has_reports(snapshot) and not snapshot.connecting


def is_training(snapshot: Snapshot, started: float, now: float) -> bool:
    """Whether a program that runs since `started` has made a step in this round; a silent one counts after a while."""
    if not is_silent(snapshot):
        return snapshot.first_step_time is not None
    return now - started >= QUIET_START


def fit_step(snapshot: Snapshot) -> int | None:
    """The step as the present `fit` counts it."""
    return _since(snapshot.step, snapshot.fit_start)


def resumed_step(snapshot: Snapshot) -> int | None:
    """The step at which the round resumed, as the `fit` counts it that resumed there."""
    return _since(snapshot.first_step, snapshot.first_fit_start)


def lost_steps(step: int | None, fit_start: int, resumed: Snapshot) -> int | None:
    """The steps to be made again after a round that got to `step`, in a `fit` that counts from `fit_start` on. The
    launcher asks for a restart in the pods, the operator for one with new pods.

    A `fit` that resumes within is the one that was lost, though the program may have skipped those before it. Those
    that it has trained again count.
    """
    if step is None or resumed.first_step is None:
        return None
    own = resumed_step(resumed)
    if own and fit_start + own <= step:
        return step - fit_start - own + resumed.made_before
    return max(0, step - resumed.first_step) + resumed.made_before


def lost_seconds(steps: int | None, steps_per_second: float | None) -> float | None:
    """How long the lost steps had taken; None if unknown."""
    if not steps:
        return None if steps is None else 0.0
    return round(steps / steps_per_second, 2) if steps_per_second else None


def _since(step: int | None, start: int) -> int | None:
    """A step as it is counted from `start` on; None for one before."""
    return None if step is None or step < start else step - start


def to_status(snapshot: Snapshot) -> dict[str, Any] | None:
    """The form of /status; None if nothing was reported."""
    if snapshot.updated is None:
        return None
    return {
        "epoch": snapshot.epoch,
        "epochs": snapshot.epochs,
        "fit": snapshot.fit,
        "step": fit_step(snapshot),
        "totalSteps": snapshot.step,
        "stepsPerEpoch": snapshot.steps_per_epoch,
        "firstEpoch": snapshot.first_epoch,
        "firstStep": resumed_step(snapshot),
        "firstTotalSteps": snapshot.first_step,
        "madeBefore": snapshot.made_before,
        "checkpoint": snapshot.checkpoint,  # it only rises: a newer one is progress, in a later `fit`, too
        "stepsPerSecond": snapshot.steps_per_second,
        "metrics": _own_metrics(snapshot),
        "updatedTime": rfc3339(snapshot.updated),
    }


def _own_metrics(snapshot: Snapshot) -> dict[str, float]:
    """The metrics, unless they are those of an earlier `fit` of the program."""
    start, at = snapshot.fit_start, snapshot.metrics_step
    return {} if start and at is not None and at <= start else snapshot.metrics


def rfc3339(at: float) -> str:
    """Seconds since 1970 as `2026-01-31T12:00:00.123Z`; times out of range are clamped."""
    bounded = min(max(at, 0.0), 2.0**37)
    return datetime.fromtimestamp(bounded, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
