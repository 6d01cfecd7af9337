"""BackupAndRestore of tf_keras and of Keras 3 as finished_fit.py needs it: where its backup is, who writes it, how the
state at the end of `fit` is saved and restored.

It must use Keras' own ways to save and to restore, and never import Keras or TensorFlow: whoever trains has done that.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CLASS = "BackupAndRestore"


def backup_of(callbacks: Any) -> Backup | None:
    """The backup of a list of callbacks; None without one, or with one that cannot be followed."""
    found = [each for each in callbacks.callbacks if any(cls.__name__ == CLASS for cls in type(each).__mro__)]
    if len(found) != 1 or not hasattr(found[0], "delete_checkpoint") or "://" in str(found[0].backup_dir):
        return None
    kind = Keras3 if hasattr(found[0], "_weights_path") else Legacy
    backup = kind(found[0])
    return backup if found[0].model.built and backup.supported else None


class Backup:
    """What both have in common; `path` is the directory that Keras deletes."""

    path: str
    supported = True
    workers = 1
    writes = True

    def __init__(self, callback: Any) -> None:
        self._callback = callback
        self._model = callback.model
        self.deletes = bool(callback.delete_checkpoint)

    def shapes(self) -> list[list[int]]:
        """Of the model's weights: another model cannot take up the state."""
        return [[int(size) for size in weight.shape] for weight in self._model.weights]

    def stopped(self) -> bool:
        """Whether a callback has stopped the training."""
        return bool(getattr(self._model, "stop_training", False))

    def total(self, number: int) -> int:
        """The sum of what the members say."""
        return number

    @contextmanager
    def undeleted(self) -> Iterator[None]:
        """Let Keras end `fit` without deleting the backup."""
        self._callback.delete_checkpoint = False
        try:
            yield
        finally:
            self._callback.delete_checkpoint = self.deletes

    def begun(self) -> None:
        """The callback's own on_train_begin has run."""

    def restore(self, state: str, epochs: int) -> None:
        """Restore the state, and have `fit` take all `epochs` for done."""
        raise NotImplementedError

    def save(self, state: str) -> None:
        """Save the state; who does not write says ""."""
        raise NotImplementedError

    def ended(self, stopped: bool) -> None:
        """A `fit` that has trained nothing is over."""
        self._model.stop_training = stopped


class Legacy(Backup):
    """Of tf_keras, and of Keras before 3: a checkpoint in `<backup_dir>/chief`."""

    def __init__(self, callback: Any) -> None:
        super().__init__(callback)
        self.path = os.path.join(os.path.abspath(callback.backup_dir), "chief")
        self._strategy = self._model.distribute_strategy
        self._state: Any = None
        extended = self._strategy.extended
        with_coordinator = getattr(self._strategy, "_should_use_with_coordinator", False)
        if not with_coordinator and extended._in_multi_worker_mode():
            self.workers = int(extended._num_workers)
            self.writes = bool(extended.should_checkpoint)
        self.supported = not getattr(callback, "save_before_preemption", False)

    def total(self, number: int) -> int:
        """A collective where there are several members: all of them have to come here."""
        if self.workers == 1:
            return number
        constant = sys.modules["tensorflow"].constant
        values = self._strategy.experimental_distribute_values_from_function(lambda _: constant(float(number)))
        replicas = int(self._strategy.num_replicas_in_sync) // self.workers
        return round(float(self._strategy.reduce("SUM", values, axis=None)) / replicas)

    def begun(self) -> None:
        """It gives this up at the end of `fit`, before the state is final."""
        self._state = self._callback._training_state

    def restore(self, state: str, epochs: int) -> None:
        """Into the same objects as the backup."""
        self._state.read_checkpoint_manager.checkpoint.read(state).expect_partial()  # it has no count of saves
        self._state._ckpt_saved_epoch.assign(epochs)
        self._state._ckpt_saved_batch.assign(0)

    def save(self, state: str) -> None:
        """All members have to: some variables are read by a collective."""
        aside = os.path.join(self._state.write_checkpoint_manager.directory, "final")
        self._state.read_checkpoint_manager.checkpoint.write(state or aside)
        self._remove_aside()

    def ended(self, stopped: bool) -> None:
        """Keras has made the directory at the beginning, and removes it with each save only."""
        super().ended(stopped)
        self._remove_aside()

    def _remove_aside(self) -> None:
        if not self.writes:
            shutil.rmtree(self._state.write_checkpoint_manager.directory, ignore_errors=True)


class Keras3(Backup):
    """Of Keras 3 with TensorFlow, in one process: weights in `<backup_dir>` itself."""

    def __init__(self, callback: Any) -> None:
        super().__init__(callback)
        self.path = os.path.abspath(callback.backup_dir)
        strategy = getattr(self._model, "distribute_strategy", None)
        alone = strategy is None or not strategy.extended._in_multi_worker_mode()
        self.supported = alone and sys.modules["keras"].backend.backend() == "tensorflow"
        self._initial_epoch = getattr(self._model, "_initial_epoch", None)

    def restore(self, state: str, epochs: int) -> None:
        """As the callback's own _load_model does."""
        optimizer = self._model.optimizer
        if optimizer is not None and not optimizer.built:
            optimizer.build(self._model.trainable_variables)
        self._model.load_weights(f"{state}.weights.h5")
        self._model._initial_epoch = epochs

    def save(self, state: str) -> None:
        """As the callback's own _save_model does."""
        self._model.save_weights(f"{state}.weights.h5", overwrite=True)

    def ended(self, stopped: bool) -> None:
        """Keras leaves the epoch in the model, and the next `fit` would begin there."""
        super().ended(stopped)
        self._model._initial_epoch = self._initial_epoch
