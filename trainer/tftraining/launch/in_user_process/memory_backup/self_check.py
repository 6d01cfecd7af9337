"""Checks that a resumed training is where its copy says: what Keras reports against what was restored. Pure.

The code that restores a position relies on how Keras counts epochs, batches and steps. If a version of Keras counted in
another way, the training would silently go on at another place. Therefore the number of the first batch, the number of
batches in each epoch and the number of steps at the end are compared with those that the copy leads to.
"""

from __future__ import annotations

from dataclasses import dataclass


class ResumedTrainingDiffers(RuntimeError):
    """A resumed training is not where its copy says. The program ends, and the next one resumes from the storage."""


@dataclass
class Checks:
    """The checks of one resumed `fit`. Each method takes what Keras reports, and returns what is wrong with it, "" if
    nothing is."""

    epoch: int  # in which the training goes on, from 0
    batch: int  # of that epoch, from 0: the first one that is trained
    step: int  # the steps that were made before
    steps: int  # of an epoch; 0: unknown
    epochs: int  # of the whole training
    _begun: bool = False
    _first: bool = True

    def begin_epoch(self, epoch: int) -> str:
        """Keras begins an epoch."""
        begun, self._begun = self._begun, True
        if not begun and epoch != self.epoch:
            return f"the training goes on in epoch {epoch + 1} instead of {self.epoch + 1}"
        return ""

    def end_batch(self, batch: int, increment: int) -> str:
        """Keras has ended the batches up to `batch`, `increment` at once."""
        first, self._first = self._first, False
        if not first:
            return ""
        if batch + 1 - increment != self.batch:
            return f"the training goes on at batch {batch + 2 - increment} instead of {self.batch + 1}"
        return ""

    def end_epoch(self, batches: int, stopped: bool) -> str:
        """An epoch ends behind so many batches; `stopped`: by a callback, or because its input had no more."""
        if stopped or not self.steps or batches == self.steps:
            return ""
        return f"an epoch has {batches} batches instead of {self.steps}"

    def end(self, counted: int, stopped: bool) -> str:
        """The training ends with `counted` steps; `stopped`: before its last epoch."""
        expected = self.step + (self.epochs - self.epoch) * self.steps - self.batch
        if stopped or not self.steps or counted == expected:
            return ""
        return f"the training ends with {counted} steps instead of {expected}"
