"""Keras callbacks that tell how a training is going, in lines that a person and a test can follow, and that save.

They must never change what is trained, nor print anything but whole lines. Keras here is tf_keras (see the examples).
"""

from __future__ import annotations

from collections.abc import Callable

import tf_keras as keras

from tftraining.journal import Journal


class Progress(keras.callbacks.Callback):  # type: ignore[misc]  # tf_keras has no types
    """Puts a training with `fit` into the journal, epoch by epoch. Put it behind BackupAndRestore."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self.journal = journal
        self._first_epoch: int | None = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """The first epoch that begins tells where the training goes on; `epoch` counts from 0."""
        if self._first_epoch is None:
            self._first_epoch = epoch
            self._tell_resumed(epoch)
        self.journal.begin()

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """What was measured, with the names that custom loops have."""
        values = {name.replace("val_", "test_"): value for name, value in (logs or {}).items()}
        self.journal.end(epoch + 1, values)

    def on_train_end(self, logs: dict[str, float] | None = None) -> None:
        """A training that was done already begins no epoch."""
        if self._first_epoch is None:
            self._tell_resumed(self.journal.epochs)

    def _tell_resumed(self, epoch: int) -> None:
        self.journal.resume(epoch, int(self.model.optimizer.iterations.numpy()))


class SaveEvery(keras.callbacks.Callback):  # type: ignore[misc]
    """Call `save` after every `epochs`-th epoch but the last of all, in every process of the job at the same point.

    It is told how many epochs are done.
    """

    def __init__(self, epochs: int, save: Callable[[int], None]) -> None:
        super().__init__()
        self.epochs = epochs
        self.save = save

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Save if it is time; `epoch` counts from 0."""
        if (epoch + 1) % self.epochs == 0 and epoch + 1 < self.params["epochs"]:
            self.save(epoch + 1)
