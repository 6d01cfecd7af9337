"""Reports the training's progress to the launcher, from inside the training process.

It must never disturb the training: an error here ends the reports, after one line, and nothing else. Of the program's
processes only the one that trains reports (claim.py). A step costs a few microseconds.

A `fit` counts its own steps from 0. The page has the steps of the program, which only rise: those of the earlier fits,
`fit_start`, and the present one's own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

from . import stack_dump
from .claim import Claim
from .own_time import OwnTime
from .peers import Peers
from .progress_page import NONE, PageWriter

# What a restored `fit` of Keras has done before, on its CallbackList.
EPOCHS_DONE = "_tftraining_epochs_done"  # of one that trains no more: fewer than all if it was stopped early
STEPS_DONE = "_tftraining_steps_done"  # of one of Keras 3 with copies


class Tracker:
    """The tracker of a process. `path` is the page's path; with "" all methods do nothing."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.claim = Claim(path)
        self.peers: Peers | None = None
        self.own_time = OwnTime()
        self._is_judged = False  # whether it trains alone
        self._gpus: int | None = None
        self._writer: PageWriter | None = None
        self._base = 0
        self._offset: int | None = None
        self._may_resume = False  # no step was made in this round: what is restored now is where it resumes
        self._is_first = False  # no other process of this round has reported
        self._steps_by_saves = False  # all steps so far were reported by checkpoints
        os.register_at_fork(after_in_child=self._reset_after_fork)

    @property
    def reports(self) -> bool:
        """Whether this process reports its progress."""
        return self._writer is not None

    def record_gpus(self, count: Callable[[], int]) -> None:
        """Note on the page how many GPUs TensorFlow lists, if this process trains or may come to train."""
        try:
            self._gpus = count()
            if self._path and not (writer := PageWriter(self._path)).has_other_owner():
                writer.record_gpus(self._gpus)
        except Exception as error:
            self._stop_reporting(error)

    def record_connecting(self, begun: bool) -> None:
        """Note on the page that this process connects to its peers (`begun`), or has connected."""
        try:
            self.claim.note_connecting()
            if self._path and self.claim.try_hold():
                PageWriter(self._path).record_connecting(begun)
                self._judge(PageWriter(self._path))
        except Exception as error:
            self._stop_reporting(error)

    def _judge(self, writer: PageWriter) -> bool:
        """Note whether this process trains without its peers; once it makes steps, and when it connects after that."""
        if self._is_judged or writer is self._writer:
            writer.record_alone(self.peers is not None and self.peers.are_left_out())
        return True

    def begin(self, step: int | None, epochs: int | None, steps: int | None) -> None:
        """Note that the program's own loop begins or resumes; `step` steps are done, an epoch has `steps`."""
        if (writer := self._claim_writer()) is not None:
            self._begin(writer, 0, step, epochs, steps)

    def begin_fit(self, done: int | None, epochs: int | None, steps: int | None) -> None:
        """Note that a `fit` begins or resumes, after `done` of its own steps if it counts them."""
        if (writer := self._claim_writer()) is not None:
            writer.fit += 1
            self._begin(writer, max(writer.step, 0), done, epochs, steps)

    def _begin(self, writer: PageWriter, start: int, done: int | None, epochs: int | None, steps: int | None) -> None:
        try:
            writer.fit_start, writer.step = start, start + int(done or 0)
            self._base = writer.step
            writer.epochs, writer.steps_per_epoch = _known(epochs), _known(steps)
            self._resume(writer)
            writer.write()
        except Exception as error:
            self._stop_reporting(error)

    def resume(self, step: int) -> None:
        """Note that the program's own loop has restored a newer state than it began with, with `step` steps done."""
        if (writer := self._writer) is None or not self._may_resume or step <= writer.step:
            return
        try:
            writer.step = self._base = step
            self._resume(writer)
            writer.write()
        except Exception as error:
            self._stop_reporting(error)

    def _resume(self, writer: PageWriter) -> None:
        """Note where the round resumes, until a step is made. Behind a `fit` whose end was restored, the next one
        resumes it, or begins: then the round has resumed at that end."""
        if not self._may_resume:
            return self._resume_later(writer)
        if writer.first_step == NONE or writer.step > writer.fit_start:
            writer.first_step, writer.first_fit_start = writer.step, writer.fit_start
            writer.first_epoch = NONE
        else:
            writer.first_fit_start = writer.first_step
        writer.first_time = writer.last_time = 0.0
        return None

    def _resume_later(self, writer: PageWriter) -> None:
        """Note that a later `fit` of the round resumes, behind earlier ones that were trained again: it has steps that
        nobody has made in this round."""
        if not self._is_first or writer.first_step == NONE:
            return
        if writer.step - writer.count > writer.first_step - writer.made_before:
            writer.first_step, writer.first_fit_start = writer.step, writer.fit_start
            writer.made_before, writer.first_epoch = writer.count, NONE
        elif (writer.step, writer.count) == (writer.first_step, writer.made_before):  # behind a restored end
            writer.first_fit_start = writer.first_step

    def begin_epoch(self, epoch: int, done: int | None, steps: int | None) -> None:
        """Note the begin of an epoch; `epoch` counts from 0, `done` are the steps that the `fit` itself has counted."""
        if (writer := self._writer) is None:
            return
        try:
            if writer.steps_per_epoch == NONE:
                writer.steps_per_epoch = _known(steps)
            self._count_epochs(writer, epoch)
            self._base = max(writer.fit_start + (done or 0), writer.step)
            self._offset = None
            writer.epoch = epoch + 1
            if writer.first_epoch == NONE:
                writer.first_epoch = epoch
            writer.pause()
            writer.write()
        except Exception as error:
            self._stop_reporting(error)

    def _count_epochs(self, writer: PageWriter, epoch: int) -> None:
        """Count the epochs before the first one of a `fit` that counts no steps itself, or has an `initial_epoch`: it
        goes on with the fit before."""
        if epoch > 0 and writer.step == writer.fit_start and writer.steps_per_epoch != NONE:
            done = epoch * writer.steps_per_epoch
            writer.fit_start = max(0, writer.fit_start - done)
            writer.step = writer.fit_start + done
            self._resume(writer)

    def begin_batch(self, batch: int) -> None:
        """Note the first batch of an epoch: a training that resumes within an epoch does not begin with 0."""
        if self._offset is None:
            self._offset = batch
            self._may_resume = False

    def end_batch(self, batch: int) -> None:
        """Note that the batches of this epoch up to `batch` are done."""
        if (writer := self._writer) is None:
            return
        try:
            writer.own_time = self.own_time.totals
            writer.record_step(self._base + batch + 1 - (self._offset or 0))
            self._is_judged = self._is_judged or self._judge(writer)
        except Exception as error:
            self._stop_reporting(error)

    def end_epoch(self, metrics: Mapping[str, object] | None) -> None:
        """Note the end of an epoch; `metrics` are those of the whole epoch, validation included."""
        if self._writer is not None:
            self._writer.pause()
        self._write(metrics)

    def end(self, epochs: int | None) -> None:
        """Note the end of the training after `epochs`; a training that was done already has begun none."""
        if (writer := self._writer) is not None and writer.first_epoch == NONE:
            self._count_epochs(writer, epochs or 0)
            writer.first_epoch = writer.epoch = _known(epochs)
            writer.record_resumption()
        self._write(None)

    def leave_fit(self) -> None:
        """Report nothing of a `fit` whose steps cannot be counted."""
        self._writer = None

    def report(
        self, step: int | None, epoch: int | None, epochs: int | None, metrics: Mapping[str, object] | None
    ) -> None:
        """Take a report of the user's own training loop; `epoch` counts from 1, `step` is the number of steps done."""
        if (writer := self._claim_writer()) is None:
            return
        try:
            if epochs is not None:
                writer.epochs = int(epochs)
            if epoch is not None:
                writer.epoch = int(epoch)
                writer.first_epoch = writer.epoch - 1 if writer.first_epoch == NONE else writer.first_epoch
            if step is not None:
                self._steps_by_saves = self._may_resume = False
                if writer.first_step == NONE:
                    writer.first_step = int(step) - 1
                    self.saved(writer.first_step or None)  # the checkpoint it resumes from
                writer.record_step(int(step))
                self._is_judged = self._is_judged or self._judge(writer)
            if metrics is not None or step is None:
                writer.write(metrics)
        except Exception as error:
            self._stop_reporting(error)

    def saved_fit(self, done: int | None) -> None:
        """Note a checkpoint of the present `fit`, with `done` of its own steps."""
        if done is not None and self._writer is not None:
            self.saved(self._writer.fit_start + done)

    def saved(self, step: int | None) -> None:
        """Note a checkpoint from which a restart can resume, with `step` steps done; None: the number is unknown."""
        if step is None or (writer := self._claim_writer()) is None:
            return
        try:
            step = int(step)
            writer.record_checkpoint(step)
            if writer.step == NONE or self._steps_by_saves:  # the loop reports nothing else
                self._steps_by_saves = True
                writer.record_step(step)
                self._is_judged = self._is_judged or self._judge(writer)
        except Exception as error:
            self._stop_reporting(error)

    def _claim_writer(self) -> PageWriter | None:
        """The page's writer, if this process may write."""
        try:
            if self._writer is None and self._path and self.claim.try_hold():
                stack_dump.register_handler(self._path, instead=True)
                self._writer = PageWriter(self._path)
                self._writer.begin(self._gpus)
                self._may_resume = self._is_first = self._writer.first_step == NONE
        except Exception as error:
            self._stop_reporting(error)
        return self._writer

    def _write(self, metrics: Mapping[str, object] | None) -> None:
        try:
            if self._writer is not None:
                self._writer.write(metrics)
        except Exception as error:
            self._stop_reporting(error)

    def _reset_after_fork(self) -> None:
        """Runs in a forked child, which may be the process that trains if its parent is not."""
        self._writer, self._gpus = None, None

    def _stop_reporting(self, error: Exception) -> None:
        self._writer, self._path = None, ""
        try:
            sys.stderr.write(f"tftraining: progress reports stopped: {type(error).__name__}: {error}\n")
        except Exception:
            return


def _known(number: int | None) -> int:
    return NONE if number is None else int(number)
