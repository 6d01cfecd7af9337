"""What a custom loop saves and takes up again, by tf.train.Checkpoint, and the model of it without any strategy.

It must never restore a part of a model and call it the whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from tftraining.cluster import Task
from tftraining.loop import Replica
from tftraining.paths import write_filepath

KEPT = 3


class State:
    """Model, optimizer and number of epochs done, in `<directory>/checkpoints`; the latest one is restored at once.

    `task` is this process's part in a job: only the chief's checkpoints count, the others write into directories of
    their own, because all must write.
    """

    def __init__(self, replica: Replica, directory: str, task: Task | None = None) -> None:
        self._epoch = tf.Variable(0, trainable=False, dtype=tf.int64)
        self._optimizer = replica.optimizer
        checkpoint = tf.train.Checkpoint(model=replica.model, optimizer=replica.optimizer, epoch=self._epoch)
        common = str(Path(directory) / "checkpoints")
        self._manager = tf.train.CheckpointManager(checkpoint, write_filepath(common, task or Task()), KEPT)
        checkpoint.restore(tf.train.latest_checkpoint(common))

    @property
    def epoch(self) -> int:
        """The number of epochs that are done."""
        return int(self._epoch.numpy())

    @property
    def step(self) -> int:
        """The number of steps that are done."""
        return int(self._optimizer.iterations.numpy())

    @property
    def latest(self) -> str:
        """The path of the latest checkpoint."""
        return str(self._manager.latest_checkpoint)

    def save(self, epoch: int) -> None:
        """Save the state after so many epochs."""
        self._epoch.assign(epoch)
        self._manager.save(checkpoint_number=epoch)


def restored(model: Any, path: str) -> Any:
    """`model`, which is under no strategy, with the weights of a checkpoint, whatever that was trained under."""
    tf.train.Checkpoint(model=model).read(path).expect_partial().assert_existing_objects_matched()
    return model
