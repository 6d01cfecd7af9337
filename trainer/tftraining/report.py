"""Tell the launcher how a training loop of your own is going; `fit` of Keras needs no such call.

    import tftraining
    tftraining.begin(step=step, epochs=10, steps_per_epoch=100)
    tftraining.report(step=step, epoch=3, metrics={"loss": loss})
    tftraining.report(checkpoint=step)

Without a launcher they do nothing. They must never raise because of the launcher, and cost a few microseconds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any


def begin(*, step: int, epochs: int | None = None, steps_per_epoch: int | None = None) -> None:
    """The training begins, or goes on where it was interrupted: `step` iterations of it are done.

    Optional. Without it the first report is taken for the first step of this process.
    """
    tracker = _tracker()
    if tracker is not None:
        tracker.begin(step, epochs, steps_per_epoch)
        _saved(tracker, step or None)


def report(
    *,
    step: int | None = None,
    epoch: int | None = None,
    epochs: int | None = None,
    metrics: Mapping[str, object] | None = None,
    checkpoint: int | None = None,
) -> None:
    """What is done by now: `step` iterations in the whole training, in the `epoch`-th (from 1) of `epochs`.

    `metrics` are numbers, or tensors of one number: reading those waits for the device, so do it now and then.
    `checkpoint` is the step that a restart would go on from, told once its checkpoint is complete: a newer one makes
    the budget of restarts whole again.
    """
    tracker = _tracker()
    if tracker is None:
        return
    if any(value is not None for value in (step, epoch, epochs, metrics)):
        tracker.report(step, epoch, epochs, metrics)
    _saved(tracker, checkpoint)


def _saved(tracker: Any, step: int | None) -> None:
    if step is not None and hasattr(tracker, "saved"):  # an older launcher has no use for it
        tracker.saved(step)


_own: Any = None


def _tracker() -> Any:
    """The one that the launcher put into this process; one of our own where it could not (`python -I`)."""
    hooks = sys.modules.get("_tftraining.hooks")
    if hooks is not None:
        return hooks.tracker()
    earlier = sys.modules.get("_tftraining.keras_hook")  # of a launcher that is older than this package
    if earlier is not None:
        return earlier.current
    global _own  # noqa: PLW0603  # one process, one tracker
    if _own is None and os.environ.get("TFTRAINING_PROGRESS"):
        from tftraining.launch.tracker import Tracker  # noqa: PLC0415

        _own = Tracker(os.environ["TFTRAINING_PROGRESS"])
    return _own
