"""The side-car evaluator: measures each new checkpoint of a training, up to the checkpoint of the last epoch.

The evaluator is a separate process that no collective of the training waits for. A slow evaluator skips all checkpoints
but the latest. The evaluator must never write where the training writes. It keeps its records in
`<directory>/evaluation.json`, and resumes from them after a restart.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from tftraining.lib.checkpoints import checkpoints_of, step_of
from tftraining.lib.options import write_atomically
from tftraining.lib.train_step import evaluate
from tftraining.lib.training_log import Record, read_history, say, summary_writer, write_summaries

LOOK_EVERY = 0.5  # seconds

Measure = Callable[[str], Record]


class Evaluator:
    """Evaluates a training of `epochs` epochs in `directory`; `measure` maps a checkpoint's path to its metrics."""

    def __init__(self, directory: str, epochs: int, measure: Measure, logdir: str | None = None) -> None:
        self.directory = directory
        self.epochs = epochs
        self.measure = measure
        self.history = read_history(self._file)
        self._logs = summary_writer(str(Path(logdir) / "evaluation")) if logdir else None

    @property
    def _file(self) -> Path:
        return Path(self.directory) / "evaluation.json"

    def follow(self, sleep: Callable[[float], None] = time.sleep) -> Record:
        """Measure until the last epoch is measured; the record of that epoch."""
        seen = ""
        while not self.history or self.history[-1]["epoch"] < self.epochs:
            latest = tf.train.latest_checkpoint(checkpoints_of(self.directory)) or ""
            if latest in (seen, "") or not self._try(latest):
                sleep(LOOK_EVERY)
            else:
                seen = latest
        return self.history[-1]

    def _try(self, path: str) -> bool:
        """Measure a checkpoint; False if the training has deleted it, as it deletes all old checkpoints."""
        began = time.monotonic()
        try:
            record = self.measure(path)
        except (tf.errors.NotFoundError, tf.errors.DataLossError):
            return False
        self._note(record, time.monotonic() - began)
        return True

    def _note(self, record: Record, seconds: float) -> None:
        # A training that started over, or lost an epoch, repeats an epoch.
        self.history = [*(each for each in self.history if each["step"] < record["step"]), record]
        write_atomically(self._file, json.dumps(self.history) + "\n")
        values = " ".join(f"{name} {value:.4f}" for name, value in record.items() if name.startswith("test_"))
        say(f"evaluated epoch {record['epoch']}/{self.epochs} (step {record['step']}) {values} ({seconds:.1f} s)")
        if self._logs is not None:
            write_summaries(self._logs, int(record["epoch"]), record)


def measure_with(model: Any, batches: tf.data.Dataset) -> Measure:
    """Measure checkpoints of State with `model`, built without a strategy, on all batches."""
    epoch = tf.Variable(0, trainable=False, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(model=model, epoch=epoch)

    def measure(path: str) -> Record:
        checkpoint.read(path).expect_partial().assert_existing_objects_matched()
        return {"epoch": int(epoch.numpy()), "step": step_of(path), **evaluate(model, batches)}

    return measure
