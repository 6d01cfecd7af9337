"""Adapts BackupAndRestore of tf_keras and Keras 3 for finished_fit.py: its path, its writer, and the methods that save
and restore the final state of `fit`.

It must save and restore with Keras' own methods, and never import Keras or TensorFlow: the program has imported them.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .memory_backup import kept_variables, member_sums
from .memory_backup.kept_variables import KeptVariables
from .memory_backup.member_sums import Sums, members_of, sums_over, writes_under
from .memory_backup.model_variables import made_by_program
from .surface import Part, Surface

CLASS = "BackupAndRestore"
_LOST = "does not save the end of a fit"
_STATE = "{package}.distribute.worker_training_state"
LEGACY = Surface(
    _LOST,
    (
        Part("{package}.callbacks", CLASS, uses="_training_state backup_dir delete_checkpoint"),
        Part(_STATE, "WorkerTrainingState", uses="read_checkpoint_manager write_checkpoint_manager"),
        Part(
            _STATE,
            "WorkerTrainingState.maybe_load_initial_counters_from_ckpt",
            uses="_ckpt_saved_epoch _ckpt_saved_batch",
        ),
        Part("{package}.engine.training", "Model.fit", uses="_maybe_load_initial_counters_from_ckpt stop_training"),
        *member_sums.SURFACE.parts,
    ),
)
KERAS_3 = Surface(
    _LOST,
    (
        Part("keras.src.callbacks.backup_and_restore", CLASS, uses="_weights_path backup_dir delete_checkpoint"),
        Part("keras.src.backend.tensorflow.trainer", "TensorFlowTrainer.fit", uses="_initial_epoch stop_training"),
        Part("keras.src.trainers.trainer", "Trainer.metrics"),
        *kept_variables.PARTS,
        *member_sums.SURFACE.parts,
    ),
)


def find_backup(callbacks: Any) -> KerasBackup | None:
    """The backup of a CallbackList; None without BackupAndRestore, or with an unsupported one."""
    found = [each for each in callbacks.callbacks if any(cls.__name__ == CLASS for cls in type(each).__mro__)]
    if len(found) != 1 or not hasattr(found[0], "delete_checkpoint") or not _is_of_tensorflow(found[0]):
        return None
    modules = [cls.__module__ for cls in type(found[0]).__mro__]
    kind = Keras3Backup if any(each.endswith(".backup_and_restore") for each in modules) else LegacyBackup
    backup = kind(found[0])
    return backup if found[0].model.built and backup.supported else None


def _is_of_tensorflow(callback: Any) -> bool:
    """Whether its Keras runs TensorFlow: Keras 3 may run another library."""
    return hasattr(callback.model, "distribute_strategy")


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.abspath(path)


class KerasBackup:
    """The common base class; `path` is the directory that Keras deletes."""

    path: str
    surface = Surface(_LOST, ())
    supported = True

    def __init__(self, callback: Any) -> None:
        self._callback = callback
        self._model = callback.model
        self._strategy = callback.model.distribute_strategy
        self.workers, self.writes = members_of(self._strategy), writes_under(self._strategy)
        self._sums: Sums | None = None
        self.deletes = bool(callback.delete_checkpoint)
        self.saves_each_epoch = getattr(callback, "save_freq", "epoch") == "epoch"

    def is_known(self) -> bool:
        """Whether this version of Keras is as it must be to restore the end of a `fit`."""
        modules = [each.__module__ for each in type(self._callback).__mro__ if each.__name__ == CLASS]
        return self.surface.holds(package="".join(modules[-1:]).partition(".callbacks")[0])

    @property
    def is_local(self) -> bool:
        """Whether the backup is in files, not in a bucket, which only TensorFlow can open."""
        return "://" not in self.path

    def shapes(self) -> list[list[int]]:
        """The shapes of the model's weights, because another model cannot restore the state."""
        return [[int(size) for size in weight.shape] for weight in self._model.weights]

    def variables(self) -> list[Any]:
        """The model's variables that neither an optimizer nor a metric makes."""
        return made_by_program(self._model)

    def trainable(self) -> list[int]:
        """The identities of the model's trainable variables."""
        return [id(each) for each in self._model.trainable_variables]

    def has_stopped(self) -> bool:
        """Whether a callback has stopped the training."""
        return bool(getattr(self._model, "stop_training", False))

    def sums(self, *numbers: int) -> list[int]:
        """The sums of numbers, up to 2^24, over all members: a collective that all of them must call."""
        if self._sums is None:
            self._sums = sums_over(self._strategy, self.workers)
        return [round(each) for each in self._sums([float(number) for number in numbers])[: len(numbers)]]

    @contextmanager
    def without_deletion(self) -> Iterator[None]:
        """Keep Keras from deleting the backup at the end of `fit`."""
        self._callback.delete_checkpoint = False
        try:
            yield
        finally:
            self._callback.delete_checkpoint = self.deletes

    def after_begin(self) -> None:
        """Call after the callback's own on_train_begin."""

    def restore(self, state: str, epochs: int) -> None:
        """Restore the state, and make `fit` treat all `epochs` as done."""
        raise NotImplementedError

    def save(self, state: str) -> None:
        """Save the state to this path; "" on members that do not write."""
        raise NotImplementedError

    def after_end(self, stopped: bool) -> None:
        """Clean up after a `fit` that has trained nothing; `stopped`: whether a callback had stopped the training."""
        self._model.stop_training = stopped


class LegacyBackup(KerasBackup):
    """The backup of tf_keras and of Keras before 3: a checkpoint in `<backup_dir>/chief`."""

    surface = LEGACY

    def __init__(self, callback: Any) -> None:
        super().__init__(callback)
        self.path = os.path.join(_absolute(str(callback.backup_dir)), "chief")
        self._state: Any = None
        self.supported = not getattr(callback, "save_before_preemption", False)

    def after_begin(self) -> None:
        """Keep the callback's training state, which it drops at the end of `fit`, before the state is final."""
        self._state = self._callback._training_state

    def restore(self, state: str, epochs: int) -> None:
        """Restore into the same objects as the backup does."""
        self._state.read_checkpoint_manager.checkpoint.read(state).expect_partial()  # the state has no save counter
        self._state._ckpt_saved_epoch.assign(epochs)
        self._state._ckpt_saved_batch.assign(0)

    def save(self, state: str) -> None:
        """Save the state. All members must call it: reading some variables is a collective."""
        aside = os.path.join(self._state.write_checkpoint_manager.directory, "final")
        self._state.read_checkpoint_manager.checkpoint.write(state or aside)
        self._remove_aside()

    def after_end(self, stopped: bool) -> None:
        """Also remove the temporary directory that Keras creates at the start of `fit` and removes only with a save."""
        super().after_end(stopped)
        self._remove_aside()

    def _remove_aside(self) -> None:
        if not self.writes:
            shutil.rmtree(self._state.write_checkpoint_manager.directory, ignore_errors=True)


class Keras3Backup(KerasBackup):
    """The backup of Keras 3 with TensorFlow: weights in `<backup_dir>` itself."""

    surface = KERAS_3

    def __init__(self, callback: Any) -> None:
        super().__init__(callback)
        self.path = _absolute(str(callback.backup_dir))
        self._initial_epoch = getattr(self._model, "_initial_epoch", None)

    def restore(self, state: str, epochs: int) -> None:
        """Restore the variables, and let Keras begin behind the last epoch."""
        kept_variables.restore(self._model, f"{state}.npz")
        if lacking := kept_variables.lacking(self._model):
            sys.stderr.write(f"tftraining: the end of this fit lacks what no variable holds: {lacking}\n")
        self._model._initial_epoch = epochs

    def save(self, state: str) -> None:
        """Save all variables. All members must call it: sums are read by a collective."""
        kept = KeptVariables(self._model)
        if state:
            with open(f"{state}.npz", "wb") as file:
                kept.write(file)

    def after_end(self, stopped: bool) -> None:
        """Also reset the initial epoch, which Keras leaves in the model: the next `fit` would begin there."""
        super().after_end(stopped)
        self._model._initial_epoch = self._initial_epoch
