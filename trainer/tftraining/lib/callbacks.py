"""Keras callbacks that print the progress of a training, in lines for people and tests, and that save.

They must never change the training, and print only whole lines. Each is a part of a callback of the program's Keras,
which `callback` makes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tftraining.lib.training_log import TrainingLog


def callback(keras: Any, part: type, *arguments: Any) -> Any:
    """A callback of this Keras that is the part, too."""
    return type(part.__name__, (part, keras.callbacks.Callback), {})(*arguments)


class Part:
    """What Keras gives each callback."""

    model: Any
    params: dict[str, Any]

    def get_state(self) -> dict[str, Any]:
        """What a restart goes on with: nothing, for what a part keeps belongs to one start of the program."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take what `get_state` has returned."""


class LogEpochs(Part):
    """Records each epoch of a training with `fit` in the training log. List it after BackupAndRestore.

    `test` measures the test data at the end of each epoch, where `fit` does not.
    """

    def __init__(self, training_log: TrainingLog, test: Callable[[], dict[str, float]] = dict) -> None:
        super().__init__()
        self.training_log = training_log
        self._test = test
        self._first_epoch: int | None = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Begin an epoch (from 0). The first epoch that begins is where the training resumes."""
        if self._first_epoch is None:
            self._first_epoch = epoch
            self._log_resumption(epoch)
            self.training_log.weights = self.model.trainable_variables
        self.training_log.begin()

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Record the metrics of the epoch, with the names that custom loops use."""
        values = {name.replace("val_", "test_"): value for name, value in (logs or {}).items()}
        self.training_log.end(epoch + 1, values | self._test())

    def on_train_end(self, logs: dict[str, float] | None = None) -> None:
        """Report the resumption of a training that was complete before: no epoch begins."""
        if self._first_epoch is None:
            self._log_resumption(self.training_log.epochs)

    def _log_resumption(self, epoch: int) -> None:
        self.training_log.resume(epoch, int(self.model.optimizer.iterations.numpy()))


class ProfileSteps(Part):
    """Profiles the steps of --profile-steps. Only for a training with this option: it slows each step down."""

    def __init__(self, training_log: TrainingLog) -> None:
        super().__init__()
        self.training_log = training_log

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        """Begin or end the profile."""
        self.training_log.profile(int(self.model.optimizer.iterations.numpy()))


class SaveEvery(Part):
    """Call `save` after every `epochs`-th epoch except the last one, in every process of the job at the same point.

    `save` receives the number of completed epochs.
    """

    def __init__(self, epochs: int, save: Callable[[int], None]) -> None:
        super().__init__()
        self.epochs = epochs
        self.save = save

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Save if this epoch (from 0) is one to save after."""
        if (epoch + 1) % self.epochs == 0 and epoch + 1 < self.params["epochs"]:
            self.save(epoch + 1)
