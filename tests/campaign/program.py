"""The training program of a campaign: an example that also notes each of its steps, for the oracle.

    python program.py multi_worker_mnist OPTION…

Each start of the program has a file of its own in $CAMPAIGN_RECORDS, a line of JSON for the start and for each step.
"""

import importlib
import json
import os
import socket
import sys
import time
import traceback
import uuid
from pathlib import Path
from typing import Any

import tensorflow as tf
import tf_keras

from tftraining.lib.training_log import TrainingLog

FIT, REACH = tf_keras.Model.fit, TrainingLog.reach


class Notes:
    """The file of this process. Each line is written at once: a kill takes at most the line under way."""

    def __init__(self) -> None:
        name = f"{socket.gethostname()}.{uuid.uuid4().hex}.jsonl"
        self._file = os.open(Path(os.environ["CAMPAIGN_RECORDS"], name), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._write(
            pod=socket.gethostname(),
            attempt=int(os.environ["TFTRAINING_ATTEMPT"]),
            round=int(os.environ["TFTRAINING_ROUND"]),
        )

    def step(self, step: int) -> None:
        """Note that this step is made."""
        self._write(step=step)

    def error(self, text: str) -> None:
        """Note the traceback that ends this process: its pod, and with it the log, may be gone at the judgement."""
        self._write(error=text)

    def _write(self, **fields: Any) -> None:
        os.write(self._file, (json.dumps({"at": time.monotonic(), **fields}) + "\n").encode())


NOTES = Notes()


class Steps(tf_keras.callbacks.Callback):  # type: ignore[misc]
    """Notes the steps of `fit`."""

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        self._before = epoch * self.params["steps"]

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        NOTES.step(self._before + batch + 1)


def fit(self: Any, *arguments: Any, callbacks: Any = (), **options: Any) -> Any:
    """`fit` of Keras with one callback more."""
    return FIT(self, *arguments, callbacks=[Steps(), *callbacks], **options)


def reach(self: TrainingLog, step: int) -> None:
    """The end of a step of a custom loop, or of several."""
    if step != self._step:
        NOTES.step(step)
    REACH(self, step)


if __name__ == "__main__":
    tf.debugging.disable_traceback_filtering()  # for the error that ends it
    tf_keras.Model.fit = fit
    TrainingLog.reach = reach  # type: ignore[method-assign]
    example = importlib.import_module(f"tftraining.examples.{sys.argv.pop(1)}")
    try:
        sys.exit(example.main())
    except Exception:
        NOTES.error(traceback.format_exc())
        raise
