"""Tells the launcher of the training's progress, from inside the training process.

It must never disturb the training: what goes wrong here ends the reports, after one line, and nothing else. Of the
processes that the program starts only the one that trains reports (claim.py). A step costs a few microseconds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

from . import stacks
from .claim import Claim
from .page import NONE, Writer


class Tracker:
    """The one of a process. `path` is the page's, "" where there is none: then everything here does nothing."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.claim = Claim(path)
        self._gpus: int | None = None
        self._writer: Writer | None = None
        self._base = 0
        self._offset: int | None = None
        self._steps_by_saves = False  # no step was told of but by its checkpoint
        os.register_at_fork(after_in_child=self._forget)

    def lists_gpus(self, count: Callable[[], int]) -> None:
        """Note on the page how many GPUs TensorFlow lists, if this is the process that trains, or may become it."""
        try:
            self._gpus = count()
            if self._path and not (writer := Writer(self._path)).belongs_to_another():
                writer.lists_gpus(self._gpus)
        except Exception as error:
            self._give_up(error)

    def connects(self, begun: bool) -> None:
        """Note on the page that this process has begun to dial its peers, or has reached them."""
        try:
            self.claim.dials()
            if self._path and self.claim.holds():
                Writer(self._path).connects(begun)
        except Exception as error:
            self._give_up(error)

    def begin(self, iterations: int | None, epochs: int | None, steps: int | None) -> None:
        """A training begins, or goes on: the optimizer has done so many iterations, each epoch has so many steps."""
        if (writer := self._claimed()) is None:
            return
        try:
            self._base = iterations or 0
            writer.step = self._base
            writer.epochs, writer.steps_per_epoch = _known(epochs), _known(steps)
            if writer.first_step == NONE:
                writer.first_step = self._base
            writer.write()
        except Exception as error:
            self._give_up(error)

    def begin_epoch(self, epoch: int, iterations: int | None, steps: int | None) -> None:
        """`epoch` counts from 0."""
        if (writer := self._writer) is None:
            return
        try:
            self._base = max(iterations or 0, writer.step)
            self._offset = None
            writer.epoch = epoch + 1
            if writer.first_epoch == NONE:
                writer.first_epoch = epoch
            if writer.steps_per_epoch == NONE:
                writer.steps_per_epoch = _known(steps)
            writer.pause()
            writer.write()
        except Exception as error:
            self._give_up(error)

    def begin_batch(self, batch: int) -> None:
        """The first of an epoch counts: a training that was resumed in the middle does not begin with 0."""
        if self._offset is None:
            self._offset = batch

    def end_batch(self, batch: int) -> None:
        """The batches of this epoch up to `batch` are done."""
        if (writer := self._writer) is None:
            return
        try:
            writer.stepped(self._base + batch + 1 - (self._offset or 0))
        except Exception as error:
            self._give_up(error)

    def end_epoch(self, metrics: Mapping[str, object] | None) -> None:
        """The metrics are those of the whole epoch, of its validation too."""
        if self._writer is not None:
            self._writer.pause()
        self._write(metrics)

    def end(self, epochs: int | None) -> None:
        """The training has come to its end, after so many epochs; one that was done already began none."""
        if (writer := self._writer) is not None and writer.first_epoch == NONE:
            writer.first_epoch = writer.epoch = _known(epochs)
            writer.went_on()
        self._write(None)

    def report(
        self, step: int | None, epoch: int | None, epochs: int | None, metrics: Mapping[str, object] | None
    ) -> None:
        """What a training loop of the user's own tells; `epoch` counts from 1, `step` is the number of those done."""
        if (writer := self._claimed()) is None:
            return
        try:
            if epochs is not None:
                writer.epochs = int(epochs)
            if epoch is not None:
                writer.epoch = int(epoch)
                writer.first_epoch = writer.epoch - 1 if writer.first_epoch == NONE else writer.first_epoch
            if step is not None:
                self._steps_by_saves = False
                if writer.first_step == NONE:
                    writer.first_step = int(step) - 1
                    self.saved(writer.first_step or None)  # what it goes on from
                writer.stepped(int(step))
            if metrics is not None or step is None:
                writer.write(metrics)
        except Exception as error:
            self._give_up(error)

    def saved(self, step: int | None) -> None:
        """There is a checkpoint that a restart goes on from, with so many steps done; None: nobody knows how many."""
        if step is None or (writer := self._claimed()) is None:
            return
        try:
            step = int(step)
            writer.saved(step)
            if writer.step == NONE or self._steps_by_saves:  # of a loop that tells nothing else
                self._steps_by_saves = True
                writer.stepped(step)
        except Exception as error:
            self._give_up(error)

    def _claimed(self) -> Writer | None:
        """The page, if it is this process that may write on it."""
        try:
            if self._writer is None and self._path and self.claim.holds():
                stacks.answer(self._path, instead=True)
                self._writer = Writer(self._path)
                self._writer.begin(self._gpus)
        except Exception as error:
            self._give_up(error)
        return self._writer

    def _write(self, metrics: Mapping[str, object] | None) -> None:
        try:
            if self._writer is not None:
                self._writer.write(metrics)
        except Exception as error:
            self._give_up(error)

    def _forget(self) -> None:
        """In a fork, which may be the one that trains if the process that it comes from is not."""
        self._writer, self._gpus = None, None

    def _give_up(self, error: Exception) -> None:
        self._writer, self._path = None, ""
        try:
            sys.stderr.write(f"tftraining: no more progress is reported: {type(error).__name__}: {error}\n")
        except Exception:
            return


def _known(number: int | None) -> int:
    return NONE if number is None else int(number)
