"""What a training says of itself: a line an epoch, its curves, logs for TensorBoard, and the result.

One journal a process. The curves are kept in `<directory>/history.json`, so that a training that was interrupted has
them whole at its end. It must never change what is trained, nor print anything but whole lines; it never imports
TensorFlow unless logs for TensorBoard are asked for.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import tftraining
from tftraining.options import write_atomically

Record = dict[str, float]
Batch = TypeVar("Batch")


def say(text: str) -> None:
    """Print a line at once and in one piece, so that TensorFlow's own log lines do not end up inside it."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def read_history(path: Path) -> list[Record]:
    """The epochs that earlier processes have recorded; none if there is no such file, or one that is damaged."""
    try:
        history = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [dict(record) for record in history] if isinstance(history, list) else []


class Journal:
    """The lines of a training of `epochs` epochs; with options also its files, of which one process a job is in charge.

    `resumed_from` is the number of epochs that were done before, 0 for a new training. A loop of one's own says
    `start`; then the launcher is told how it goes. It follows `fit` by itself, for which `resume` is enough.
    """

    def __init__(self, epochs: int, options: argparse.Namespace | None = None) -> None:
        self.epochs = epochs
        self.history: list[Record] = []
        self.resumed_from = 0
        self._step: int | None = None  # that the launcher was told; None: somebody else tells it
        self._steps_per_epoch = self._epoch = 0
        self._options = options
        self._made = self._began = time.monotonic()
        self._logs: Any = None  # made at the first line: TensorFlow refuses collectives after it has run anything else

    def start(self, epoch: int, step: int, steps_per_epoch: int) -> None:
        """A loop of one's own begins, behind `epoch` epochs and `step` steps that were done before."""
        self.resume(epoch, step)
        self._epoch, self._step, self._steps_per_epoch = epoch, step, steps_per_epoch
        tftraining.begin(step=step, epochs=self.epochs, steps_per_epoch=steps_per_epoch)

    def resume(self, epoch: int, step: int) -> None:
        """Say that `epoch` epochs and `step` steps were done before, if any were, and take over their curves."""
        if not step:
            return
        self.resumed_from = epoch
        if self._options is not None:
            self.history = [record for record in read_history(self._file("history.json")) if record["epoch"] <= epoch]
        rest = ", nothing left to train" if epoch >= self.epochs else ""
        say(f"resumed from epoch {epoch} (step {step} of the training){rest}")

    def begin(self) -> None:
        """An epoch begins."""
        self._began = time.monotonic()
        if self._step is not None:
            tftraining.report(epoch=self._epoch + 1)

    def follow(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The same batches, one a step; a step is over when the next batch is asked for."""
        for batch in batches:
            yield batch
            self.reach((self._step or 0) + 1)

    def reach(self, step: int) -> None:
        """So many steps of the training are done by now."""
        if step != self._step:
            tftraining.report(step=step)
        self._step = step

    def end(self, epoch: int, values: Mapping[str, float]) -> None:
        """Epoch number `epoch`, counted from 1, is over: `epoch 3/10 loss 0.4100 accuracy 0.8800 (1.2 s)`."""
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
            write_summaries(self._logs, epoch, metrics)

    def finish(self, values: Mapping[str, Any]) -> None:
        """The training is over: draw the curves, write `<directory>/result.json`, say the result on the last line."""
        times = {"resumed_from": self.resumed_from, "seconds": round(time.monotonic() - self._made, 1)}
        result = {"epochs": self.epochs, **values, **times}
        if self._options is not None and self._options.plot:
            from tftraining.plots import draw  # noqa: PLC0415  matplotlib is imported where a plot is wanted

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
    import tensorflow as tf  # noqa: PLC0415  only where logs are wanted

    return tf.summary.create_file_writer(directory)


def write_summaries(writer: Any, epoch: int, metrics: Record) -> None:
    """Log the metrics of an epoch."""
    import tensorflow as tf  # noqa: PLC0415

    with writer.as_default():
        for name, value in metrics.items():
            tf.summary.scalar(name, value, step=epoch)
    writer.flush()
