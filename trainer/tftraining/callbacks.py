"""Keras callbacks that tell how a training is going, in lines that a person and a test can follow, and that save.

They must never change what is trained, nor print anything but whole lines. Keras here is tf_keras (see the examples).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import tf_keras as keras


def say(text: str) -> None:
    """Print a line at once and in one piece, so that TensorFlow's own log lines do not end up inside it."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Progress(keras.callbacks.Callback):  # type: ignore[misc]  # tf_keras has no types
    """One line an epoch, and one when the training goes on where an earlier process was stopped.

    Put it behind BackupAndRestore. `resumed_from` is the number of epochs that were done before, 0 for a new training.
    """

    def __init__(self, epochs: int) -> None:
        super().__init__()
        self.epochs = epochs
        self.resumed_from = 0
        self._first_epoch: int | None = None
        self._began = 0.0

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Note the time; say so if the first epoch is not the first one of the training."""
        self._began = time.monotonic()
        if self._first_epoch is None:
            self._first_epoch = epoch
            self._tell_resumed(epoch)

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """`epoch 3/10 loss 0.4100 accuracy 0.8800 (1.2 s)`."""
        metrics = " ".join(f"{name} {value:.4f}" for name, value in (logs or {}).items())
        say(f"epoch {epoch + 1}/{self.epochs} {metrics} ({time.monotonic() - self._began:.1f} s)")

    def on_train_end(self, logs: dict[str, float] | None = None) -> None:
        """A training that was done already begins no epoch."""
        if self._first_epoch is None:
            self._tell_resumed(self.epochs)

    def _tell_resumed(self, epoch: int) -> None:
        done = int(self.model.optimizer.iterations.numpy())
        if not done:
            return
        self.resumed_from = epoch
        rest = ", nothing left to train" if epoch == self.epochs else ""
        say(f"resumed from epoch {epoch} (step {done} of the training){rest}")


class SaveEvery(keras.callbacks.Callback):  # type: ignore[misc]
    """Call `save` after every `epochs`-th epoch but the last of all, in every process of the job at the same point."""

    def __init__(self, epochs: int, save: Callable[[], None]) -> None:
        super().__init__()
        self.epochs = epochs
        self.save = save

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Save if it is time; `epoch` counts from 0."""
        if (epoch + 1) % self.epochs == 0 and epoch + 1 < self.params["epochs"]:
            self.save()
