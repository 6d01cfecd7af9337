"""Report the progress of a custom training loop to the launcher; Keras' `fit` needs no such call.

    import tftraining
    tftraining.begin(step=step, epochs=10, steps_per_epoch=100)
    tftraining.report(step=step, epoch=3, metrics={"loss": loss})
    tftraining.report(checkpoint=step)

Without a launcher, these functions do nothing. They must never raise because of the launcher, and take a few
microseconds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any


def begin(*, step: int, epochs: int | None = None, steps_per_epoch: int | None = None) -> None:
    """Report that the training begins or resumes, after `step` completed iterations.

    Optional: without this call, the first report counts as the first step of this process.
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
    """Report progress: `step` completed iterations of the whole training, in the `epoch`-th (from 1) of `epochs`.

    `metrics` are numbers, or tensors of one number; reading a tensor waits for the device, so pass tensors only now and
    then. `checkpoint` is the step from which a restart would resume; report it once its checkpoint is complete. A newer
    checkpoint resets the restart budget.
    """
    tracker = _tracker()
    if tracker is None:
        return
    if any(value is not None for value in (step, epoch, epochs, metrics)):
        tracker.report(step, epoch, epochs, metrics)
    _saved(tracker, checkpoint)


def resumed(step: int) -> None:
    """Report that the loop has restored a newer state than that of `begin`: MemoryBackup does."""
    tracker = _tracker()
    if tracker is not None:
        tracker.resume(step)


def _saved(tracker: Any, step: int | None) -> None:
    if step is not None:
        tracker.saved(step)


_own: Any = None


def _tracker() -> Any:
    """The tracker that the launcher has put into this process; a new one where it could not (`python -I`)."""
    hooks = sys.modules.get("_tftraining.hooks")
    if hooks is not None:
        return hooks.tracker()
    global _own  # noqa: PLW0603  # one process, one tracker
    if _own is None and os.environ.get("TFTRAINING_PROGRESS"):
        from tftraining.launch.in_user_process.tracker import Tracker  # noqa: PLC0415

        _own = Tracker(os.environ["TFTRAINING_PROGRESS"])
    return _own
