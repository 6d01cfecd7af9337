"""A training by `fit` with a state of a given size, that writes down every step: the program of benchmarks.lost_work.

    state_worker.py DIRECTORY MEGABYTES STEPS-PER-EPOCH [--count] [--no-storage] [--pauses] [--finite] [--unordered]

A dense model with Adam, in a MultiWorkerMirroredStrategy, with BackupAndRestore. Into DIRECTORY go, for each task:
`steps-<task>-<pid>`, a record (training_records.STEP) for every step; `begin-<task>-<pid>`, the seconds of
BackupAndRestore's own begin, a restore included; `memory-<task>`, the path of the copies in memory; and with --count
`seen-<task>`, how often each part of the data was trained on. The counts are variables of the model, so a restore
brings back those of the restored step. With --no-storage BackupAndRestore never writes a backup, however short the
epochs are; with --pauses the members may be stopped (SIGSTOP) for as long as one likes. With --finite the input is one
epoch, which `fit` begins anew for each epoch; otherwise it repeats that by itself. With --unordered its order is not
known to be the same after a restart, so a restart resumes at the begin of an epoch.
"""

import functools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras
from tensorflow.python.eager import context

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.training_records import BATCH, PARTS, STEP

INPUTS, OUTPUTS = 64, 10
BYTES_PER_WEIGHT = 12  # the weight, and Adam's two moments
EVERY = 100  # steps between two writes of the counts
NEVER = 10**9  # steps between two backups in the storage
HOUR_MS = 3_600_000


def width(megabytes: float) -> int:
    """The width of the two hidden layers with which the state has this size: width² + 76 width weights."""
    weights = megabytes * 1e6 / BYTES_PER_WEIGHT
    return max(8, int((weights + 38**2) ** 0.5) - 38)


def seen_by(model: Any) -> Any:
    """The variable of the counts; None without --count. (Keras tracks no variable that is an attribute of a class.)"""
    return getattr(model, "seen", None)


class Counting(keras.Sequential):  # type: ignore[misc]  # tf_keras has no types
    """Counts, for each part of the data, the examples that this replica was trained on."""

    def train_step(self, data: Any) -> Any:
        """Train on a batch."""
        x, y, part = data
        if (seen := seen_by(self)) is not None:
            seen.assign_add(tf.math.bincount(part, minlength=PARTS, maxlength=PARTS, dtype=tf.int64))
        return super().train_step((x, y))


def examples(steps: int, finite: bool) -> tf.data.Dataset:
    """One epoch of data, unless `finite` endlessly repeated; all examples differ, and belong to one of PARTS parts."""
    count = steps * BATCH
    frequencies = tf.constant(np.linspace(0.1, 3.0, INPUTS), tf.float32)

    def batch(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        x = tf.sin(tf.cast(index, tf.float32)[:, None] * frequencies)
        return x, index % OUTPUTS, tf.cast(index * PARTS // count, tf.int32)

    epoch = tf.data.Dataset.range(count).batch(BATCH, drop_remainder=True).map(batch)
    return (epoch if finite else epoch.repeat()).prefetch(2)


class Records(keras.callbacks.Callback):  # type: ignore[misc]
    """Writes the records of this task. List it behind BackupAndRestore, whose begin `before` has seen."""

    def __init__(self, directory: Path, task: int, before: "Before") -> None:
        super().__init__()
        self._supports_tf_logs = True  # or Keras would make arrays of each batch's logs, for this callback alone
        self._steps = os.open(directory / f"steps-{task}-{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        if told := os.environ.get("TFTRAINING_MEMORY_BACKUP"):
            (directory / f"memory-{task}").write_text(json.loads(told)["directory"])
        self._begin = directory / f"begin-{task}-{os.getpid()}"
        self._seen = directory / f"seen-{task}"
        self._before = before
        self._step = -1
        self._began = self._blocked = 0.0
        self._left = time.monotonic()
        self._kept: list[Any] = []

    def on_train_begin(self, logs: Any = None) -> None:
        """Write down how long the callback before this one has taken."""
        self._begin.write_text(str(time.monotonic() - self._before.at))

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Note the time."""
        self._began = time.monotonic()
        self._blocked = self._began - self._left

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Write the record of a step."""
        ended = time.monotonic()
        self._step = int(self.model.optimizer.iterations.numpy()) if self._step < 0 else self._step + 1
        os.write(self._steps, STEP.pack(self._step, self._began, ended, self._blocked))
        if self._step % EVERY == 0 and (seen := seen_by(self.model)) is not None:
            self._write_counts(seen)
        self._left = time.monotonic()

    def _write_counts(self, seen: Any) -> None:
        """Write the newest two counts: the tasks need not be at the same step when they are killed."""
        values = self.model.distribute_strategy.experimental_local_results(seen)
        self._kept = [*self._kept[-1:], [self._step, sum(each.numpy() for each in values).tolist()]]
        new = self._seen.with_suffix(".new")
        new.write_text(json.dumps(self._kept))
        new.rename(self._seen)


class Before(keras.callbacks.Callback):  # type: ignore[misc]
    """Notes when the callback behind it begins."""

    at = 0.0

    def on_train_begin(self, logs: Any = None) -> None:
        """Note the time."""
        self.at = time.monotonic()


def allow_pauses() -> None:
    """Let TensorFlow wait for an hour, not for 10 s, until it takes a member without heartbeats for lost."""
    eager = context.context()
    eager.configure_coordination_service = functools.partial(
        eager.configure_coordination_service, heartbeat_timeout_in_ms=HOUR_MS
    )


def main() -> None:
    """Train until killed."""
    directory, megabytes, steps = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    directory.mkdir(parents=True, exist_ok=True)
    task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    if "--pauses" in sys.argv:
        allow_pauses()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    keras.utils.set_random_seed(1)
    with strategy.scope():
        layers, size = keras.layers, width(megabytes)
        model = Counting(
            [layers.Input((INPUTS,)), layers.Dense(size, "relu"), layers.Dense(size, "relu"), layers.Dense(OUTPUTS)]
        )
        if "--count" in sys.argv:
            local = tf.VariableSynchronization.ON_READ  # so that counting needs no collective
            model.seen = tf.Variable(
                tf.zeros([PARTS], tf.int64),
                trainable=False,
                synchronization=local,
                aggregation=tf.VariableAggregation.SUM,
            )
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    before = Before()
    often = NEVER if "--no-storage" in sys.argv else "epoch"
    backup = keras.callbacks.BackupAndRestore(str(directory / "backup"), save_freq=often)
    callbacks = [before, backup, Records(directory, task, before)]
    data = examples(steps, "--finite" in sys.argv)
    if "--unordered" in sys.argv:
        options = tf.data.Options()
        options.deterministic = False
        data = data.with_options(options)
    model.fit(data, epochs=100_000, steps_per_epoch=steps, callbacks=callbacks, verbose=0)


if __name__ == "__main__":
    main()
