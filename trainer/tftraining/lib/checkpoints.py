"""Saves and restores a custom loop by tf.train.Checkpoint, and loads the model of a checkpoint without a strategy.

A partly restored model must never pass for a whole one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

import tftraining
from tftraining.cluster import Task
from tftraining.lib.options import UsageError
from tftraining.lib.train_step import TrainStep
from tftraining.paths import write_filepath

KEPT = 3


class State:
    """Model, optimizer and progress, saved in `<directory>/checkpoints`; `resume` restores the latest checkpoint.

    `task` is this process's task in the job. All tasks must write, but only the chief's checkpoints count: the others
    write into directories of their own, and delete their files at once.
    """

    def __init__(self, train_step: TrainStep, directory: str, task: Task | None = None, *, resume: bool = True) -> None:
        self._task = task or Task()
        self._epoch, self._place = (tf.Variable(0, trainable=False, dtype=tf.int64) for _ in range(2))
        self._tallies = tf.Variable(tf.zeros(3), trainable=False)
        self._optimizer = train_step.optimizer
        # `told` is the name of the tallies in checkpoints that exist.
        checkpoint = tf.train.Checkpoint(
            model=train_step.model,
            optimizer=train_step.optimizer,
            epoch=self._epoch,
            place=self._place,
            told=self._tallies,
        )
        self._path = write_filepath(checkpoints_of(directory), self._task)
        self._manager = tf.train.CheckpointManager(checkpoint, self._path, KEPT)
        self._memory: tftraining.MemoryBackup | None = None
        if resume:
            restore(checkpoint, tf.train.latest_checkpoint(checkpoints_of(directory)))
            self._memory = tftraining.MemoryBackup(checkpoint)
            self._memory.restore(self.step)

    @property
    def in_memory(self) -> bool:
        """Whether `reach` copies the state into memory now and then."""
        return self._memory is not None and self._memory.enabled

    @property
    def epoch(self) -> int:
        """The number of completed epochs."""
        return int(self._epoch.numpy())

    @property
    def place(self) -> int:
        """The number of completed steps of the next epoch."""
        return int(self._place.numpy())

    @property
    def tallies(self) -> tf.Tensor:
        """The sum of the tallies of these steps (see loop.tally)."""
        return tf.convert_to_tensor(self._tallies)

    @property
    def step(self) -> int:
        """The number of completed steps of the training."""
        return int(self._optimizer.iterations.numpy())

    @property
    def latest(self) -> str:
        """The path of the latest checkpoint."""
        return str(self._manager.latest_checkpoint)

    def reach(self, epoch: int, place: int = 0, tallies: tf.Tensor | None = None) -> None:
        """Note that `epoch` epochs and `place` steps of the next are complete; `tallies` sums these steps' tallies.

        The state is copied into memory if it is time to. All tasks must call this at the same steps.
        """
        self._epoch.assign(epoch)
        self._place.assign(place)
        self._tallies.assign(tf.zeros(3) if tallies is None else tallies)
        if self._memory is not None:
            self._memory.step(self.step)

    def save(self, epoch: int, place: int = 0, tallies: tf.Tensor | None = None) -> None:
        """Save the state that `reach` notes as a checkpoint."""
        self.reach(epoch, place, tallies)
        self._manager.save(checkpoint_number=self.step)
        tftraining.report(checkpoint=self.step)
        if not self._task.is_chief:
            shutil.rmtree(self._path)

    def done(self) -> None:
        """The training is complete: free the memory of the copies."""
        if self._memory is not None:
            self._memory.done()


def restore(checkpoint: tf.train.Checkpoint, path: str | None) -> None:
    """Restore all of `checkpoint` from `path`, unless that is None. UsageError if either lacks a part of the other."""
    if path is not None:
        _load_all(lambda: checkpoint.restore(path), "assert_consumed", path)


def _load_all(load: Callable[[], Any], whole: str, path: str) -> None:
    """Load the checkpoint, and assert that `whole` (a method of TensorFlow's load status) holds.

    Without the assertion, TensorFlow keeps fresh weights silently where the checkpoint does not match.
    """
    status = None
    try:
        status = load()
        getattr(status, whole)()
    except (AssertionError, ValueError, tf.errors.InvalidArgumentError) as error:
        if status is not None:
            status.expect_partial()  # or TensorFlow repeats the error in a dozen lines
        reason = " ".join(str(error).split())[:300]
        raise UsageError(
            f"the checkpoint {path} does not match this model ({reason}): choose another --directory or --weights"
        ) from error


def step_of(path: str) -> int:
    """The step after which a checkpoint of State was saved."""
    return int(path.rpartition("-")[2])


def checkpoints_of(directory: str) -> str:
    """The directory of a job's checkpoints."""
    return str(Path(directory) / "checkpoints")


def restored(model: Any, path: str) -> Any:
    """`model`, built without a strategy, with the weights of a checkpoint that any strategy has written.

    UsageError if the checkpoint lacks some of the weights.
    """
    checkpoint = tf.train.Checkpoint(model=model)
    _load_all(lambda: checkpoint.read(path).expect_partial(), "assert_existing_objects_matched", path)
    return model
