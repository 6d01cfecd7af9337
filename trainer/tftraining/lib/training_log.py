"""The output of a training: a line per epoch, its curves, logs for TensorBoard, and the result.

One training log per process. `<directory>/history.json` keeps the curves, so that they are complete after an
interruption. The training log must never change the training, and prints only whole lines. It imports TensorFlow only
to write logs for TensorBoard.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tftraining
from tftraining.lib.options import write_atomically
from tftraining.lib.profiler import Profiler

Record = dict[str, float]
Batch = TypeVar("Batch")


def say(text: str) -> None:
    """Print a line at once and in one piece, so that TensorFlow's log lines do not split it."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def read_history(path: Path) -> list[Record]:
    """The epochs that earlier processes recorded; none if the file is missing or damaged."""
    try:
        history = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [dict(record) for record in history] if isinstance(history, list) else []


class TrainingLog:
    """The lines of a training of `epochs` epochs; with `options` also its files, which one process of a job writes.

    `resumed_from` is the number of epochs completed before, 0 for a new training. A custom loop calls `start`; then the
    log reports its progress to the launcher. The launcher follows `fit` by itself: there, `resume` is enough.
    """

    def __init__(self, epochs: int, options: argparse.Namespace | None = None) -> None:
        self.epochs = epochs
        self.history: list[Record] = []
        self.resumed_from = 0
        self._step: int | None = None  # last reported to the launcher; None: not reported from here
        self._steps_per_epoch = self._epoch = 0
        self._options = options
        self._made = self._began = time.monotonic()
        self.weights: Sequence[Any] = ()  # variables to log as histograms
        self._profiler = Profiler(options.logdir, options.profile_steps) if options is not None else None
        self._logs: Any = None  # made at the first line: TensorFlow refuses collectives after any other operation

    def start(self, epoch: int, step: int, steps_per_epoch: int) -> None:
        """Start a custom loop, after `epoch` epochs and `step` steps completed before."""
        self.resume(epoch, step)
        self._epoch, self._step, self._steps_per_epoch = epoch, step, steps_per_epoch
        tftraining.begin(step=step, epochs=self.epochs, steps_per_epoch=steps_per_epoch)

    def resume(self, epoch: int, step: int) -> None:
        """Print that `epoch` epochs and `step` steps were completed before, if any, and load their curves."""
        if self._profiler is not None:
            self._profiler.begin(step)
        if not step:
            return
        self.resumed_from = epoch
        if self._options is not None:
            self.history = [record for record in read_history(self._file("history.json")) if record["epoch"] <= epoch]
        rest = ", nothing left to train" if epoch >= self.epochs else ""
        say(f"resumed from epoch {epoch} (step {step} of the training){rest}")

    def begin(self) -> None:
        """Begin an epoch."""
        self._began = time.monotonic()
        if self._step is not None:
            tftraining.report(epoch=self._epoch + 1)

    def follow(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The same batches, one per step; the request for the next batch ends a step."""
        for batch in batches:
            yield batch
            self.reach((self._step or 0) + 1)

    def reach(self, step: int) -> None:
        """Report that `step` steps of the training are complete."""
        if step != self._step:
            tftraining.report(step=step)
        self._step = step
        self.profile(step)

    def profile(self, step: int) -> None:
        """Begin or end the profile of --profile-steps, after `step` steps of the training."""
        if self._profiler is not None:
            self._profiler.reach(step)

    def end(self, epoch: int, values: Mapping[str, float]) -> None:
        """End epoch number `epoch` (from 1): `epoch 3/10 loss 0.4100 accuracy 0.8800 (1.2 s)`."""
        seconds = time.monotonic() - self._began
        metrics = {name: float(value) for name, value in values.items()}
        say(f"epoch {epoch}/{self.epochs} {_words(metrics)} ({seconds:.1f} s)")
        self.history.append({"epoch": epoch, "seconds": round(seconds, 3), **metrics})
        self._epoch = epoch
        if self._step is not None:
            self.reach(epoch * self._steps_per_epoch)
            tftraining.report(epoch=epoch, metrics=metrics)
        if self._options is not None:
            write_atomically(self._file("history.json"), json.dumps(self.history) + "\n")
        if self._options is not None and self._options.logdir:
            self._logs = self._logs or summary_writer(self._options.logdir)
            write_summaries(self._logs, epoch, metrics, self.weights)

    def finish(self, values: Mapping[str, Any]) -> None:
        """End the training: draw the curves, write `<directory>/result.json`, print the result as the last line."""
        if self._profiler is not None:
            self._profiler.end()
        times = {"resumed_from": self.resumed_from, "seconds": round(time.monotonic() - self._made, 1)}
        result = {"epochs": self.epochs, **values, **times}
        if self._options is not None and self._options.plot:
            from tftraining.lib.plots import draw  # noqa: PLC0415  matplotlib is imported only for a plot

            draw(self.history, Path(self._options.plot))
        if self._options is not None:
            write_atomically(self._file("result.json"), json.dumps(result) + "\n")
        say("result: " + " ".join(f"{key}={_short(value)}" for key, value in result.items()))

    def _file(self, name: str) -> Path:
        assert self._options is not None
        return Path(self._options.directory) / name


def _words(metrics: Record) -> str:
    return " ".join(f"{name} {value:.4f}" for name, value in metrics.items())


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def summary_writer(directory: str) -> Any:
    """A writer of logs for TensorBoard."""
    import tensorflow as tf  # noqa: PLC0415  only for logs

    return tf.summary.create_file_writer(directory)


def write_summaries(writer: Any, epoch: int, metrics: Record, weights: Sequence[Any] = ()) -> None:
    """Log the metrics of an epoch, and histograms of these variables."""
    import tensorflow as tf  # noqa: PLC0415

    with writer.as_default():
        for name, value in metrics.items():
            tf.summary.scalar(name, value, step=epoch)
        for variable in weights:
            values = tf.convert_to_tensor(variable)  # which may be sharded, or on another machine
            tf.summary.histogram(getattr(variable, "path", variable.name), values, step=epoch)
    writer.flush()
