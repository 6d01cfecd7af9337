"""One `fit` of tf_keras whose state is copied into memory: its place in the epochs and in the input, and its restore.

fit_hook.py calls it from Keras; copier.py makes the copies. docs/memory-backups-design.md says how the parts work
together, and the invariants. Never fails a training: after an error there are no more copies, and Keras runs as usual.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from .. import call_site
from ..keras_backup import LegacyBackup
from ..keras_hook import EPOCHS_DONE
from . import copy_file
from .copier import Copier, describe
from .input_position import Position, examples_in_a_step, supported
from .keras_state import State
from .member_sums import sums_over
from .program_digest import program_digest
from .resumed_position import Pace, Place, SkipCost, from_head, resume_at
from .settings import Settings

STEP_IN_CHECKPOINT = "train_counter/.ATTRIBUTES/VARIABLE_VALUE"
_LOW = 1 << 20


class Session:
    """The copies of one `fit` of this process."""

    def __init__(self, settings: Settings, callbacks: Any, backup: LegacyBackup, log: Callable[[str], None]) -> None:
        self._settings = settings
        self._log = log
        self._callbacks = callbacks
        self._backup = backup
        self._model = callbacks.model
        sums = sums_over(self._model.distribute_strategy, backup.workers)
        self.copier = Copier(settings, backup.workers, sums, log)
        self.copier.report.tell()  # no longer what an earlier program has told
        self._epoch = self._batch = self._step = 0
        self._first = 0  # the batch with which the present epoch begins or resumes
        self._steps = 0  # of an epoch
        self._due = self._asked = False  # copies that wait for the end of the epoch
        self._examples: int | None = None  # in a step of all members
        self._cost = SkipCost(None)
        self.position: Position | None = None

    def trains(self, model: Any) -> bool:
        """Whether it is this model that trains."""
        return model is self._model

    # The begin.

    def restore(self, saved: Any) -> bool:
        """Restore the copy that all members hold, in place of Keras' restore of `saved`; False if Keras has to.

        Every member of the round calls this, and every member agrees once.
        """
        found = self._look()
        newest, count = self._stored(saved) if found is not None and self._backup.writes else (-1, 0)
        newer = found is not None and self._backup.writes and found.step >= newest
        saves = self.copier.agree(found, newer, count)
        if saves is not None and found is not None:
            self.copier.take(found)
            if saves:  # or the next backup would overwrite the newest one, and with it the only one
                saved.read_checkpoint_manager.checkpoint.save_counter.assign(saves)
        if found is not None:
            found.close()
        return saves is not None

    def _look(self) -> copy_file.Copy | None:
        """Look whether this member can make copies; its own file of the copy that all hold, if that fits."""
        try:
            self._steps = int((getattr(self._callbacks, "params", None) or {}).get("steps") or 0)
            state = State(self._model)
            identity = self._identify(state)
            if why := self._objection(identity):
                self.copier.cannot(why)
                return None
            self.copier.use(state, identity)
            return self.copier.find()
        except Exception as error:
            self.copier.cannot(describe(error))
            return None

    def _objection(self, identity: str) -> str:
        """Why there can be no copies in this `fit`; "" if there can."""
        if getattr(self._model.distribute_strategy, "_should_use_with_coordinator", False):
            return "ParameterServerStrategy is not supported"
        if self._steps < 2:
            return "the number of steps in an epoch is unknown, or 1"
        if not identity:
            return "the call of fit is in a loop, so another process cannot recognize it"
        return ""

    def _identify(self, state: State) -> str:
        """The identity of this call of `fit` in this program, equal for all members; "" if there is none.

        Environment variables are no part of it: some name the pod or its devices. Keras' own backup heeds none either.
        """
        epochs = (getattr(self._callbacks, "params", None) or {}).get("epochs")
        return call_site.identity(sys._getframe(), epochs, self._backup.path, state.signature(), program_digest())

    def _stored(self, saved: Any) -> tuple[int, int]:
        """The step of the newest backup in the storage, and the number of times it was saved; -1 and 0 for none."""
        latest, step = "", -1
        try:
            latest = saved.read_checkpoint_manager.latest_checkpoint or ""
            reader = sys.modules["tensorflow"].train.load_checkpoint(latest) if latest else None
            step = int(reader.get_tensor(STEP_IN_CHECKPOINT)) if reader is not None else -1
        except Exception as error:  # Keras could not restore it either
            self._log(f"the backup {latest} cannot be read: {describe(error)}")
        number = re.search(r"-(\d+)$", latest)
        return step, int(number[1]) if number else 0

    def after_begin(self, saved: Any) -> None:
        """Call after all callbacks, when `fit` is about to ask where to begin."""
        if getattr(self._callbacks, EPOCHS_DONE, None) is not None:
            self.copier.agreed = False
            self.copier.report.tell_end("the training has ended")
        if not self.copier.agreed:
            return
        head, self._step = self.copier.resumed, self._counted()
        replicas = self._replicas() // self._backup.workers
        self._cost = SkipCost(head)
        self.position = Position(0, 0, replicas)
        if head is not None:
            first = (int(head["epoch"]), int(head["batch"]))  # until `follows` knows the input
            saved.maybe_load_initial_counters_from_ckpt = lambda *_, **__: first
            self._epoch, self._batch = first
            seconds = self.copier.restored_in
            self._log(f"resumed from memory at epoch {first[0] + 1}, step {self._step}, in {seconds:.2f} s")
        self.copier.begin(self._step)

    def _replicas(self) -> int:
        return int(self._model.distribute_strategy.num_replicas_in_sync)

    # The steps.

    def follows(self, handler: Any) -> bool:
        """Whether this DataHandler is that of the training, and its input can be skipped."""
        if not self.copier.agreed or self.position is None or not self.position.follows(handler):
            return False
        if not supported(handler):  # equal for all members
            self.copier.end("the input cannot be skipped, so a restart resumes at the epoch")
            return False
        self._examples = examples_in_a_step(handler, self._replicas())
        if self.copier.resumed is not None:
            self._resume(handler, self.position, self.copier.resumed)
        self._cost.begin(time.monotonic(), self.position.drawn)
        return True

    def _resume(self, handler: Any, position: Position, head: Mapping[str, Any]) -> None:
        """Set the place in the epochs and in the input: the chief's, for all members must make the same steps."""
        place, why = self._place(position, head)
        own = float(self._backup.writes)
        high, low = divmod(place.drawn, _LOW)  # the sums are of single precision
        told = self.copier.sums([own * each for each in (place.epoch, place.batch, high, low, place.made)])
        epoch, batch, high, low, position.made = map(round, told[:5])
        position.drawn = high * _LOW + low
        handler._initial_epoch, handler._initial_step = self._epoch, self._batch = epoch, batch
        if why:
            self.copier.report.tell(epochResumed=why)
            self._log(f"the epoch is resumed from its begin: {why}")
        if position.drawn:
            self._log(f"batches of input to skip: {position.drawn}")

    def _place(self, position: Position, head: Mapping[str, Any]) -> tuple[Place, str]:
        """Where to resume, and why at the begin of an epoch, as this member sees it. Never raises: others wait."""
        try:
            place, then, cost = from_head(head)
            now = Pace(self._backup.workers, self._steps, self._examples)
            return resume_at(place, then, now, cost, anew=position.begins_anew())
        except Exception as error:
            return Place(self._epoch, 0, 0, 0), describe(error)

    def begin_epoch(self, epoch: int) -> None:
        """Note the begin of an epoch; the one that a restart resumes begins behind some of its batches."""
        if epoch != self._epoch:
            self._epoch, self._batch = epoch, 0
        self._first = self._batch

    def end_batch(self, batch: int, logs: Any) -> None:
        """Note that the batches of this epoch up to `batch` are done, and copy if it is time."""
        if not self.copier.agreed or self.position is None:
            return
        before, first = self._step, self._batch == self._first
        # Keras may resume within an epoch, too, so the first batch of an epoch need not be number 0.
        self._step = self._counted() if first else before + batch + 1 - self._batch
        self._batch = batch + 1
        self._cost.first_batch(time.monotonic())
        self.position.drawn += self._step - before
        self._due |= self.copier.due(before, self._step)
        self._asked |= self.copier.asked(before, self._step)
        if self._batch >= self._steps:
            self.copier.measure_to(self._step)
        elif self._due or self._asked:
            self._copy({"epoch": self._epoch, "batch": self._batch, **self.position.now()}, logs)
        elif first:  # not before: it has traced the model, or waited for the input
            self.copier.measure_from(self._step)

    def _counted(self) -> int:
        """The steps of this `fit` so far, as the model counts them."""
        return int(self._model._train_counter.numpy())

    def end_epoch(self, epoch: int, logs: Any) -> None:
        """Copy behind the callbacks of an epoch's end, if it was time at its last batch."""
        self.copier.epoch_ended()
        if not self.copier.agreed or self.position is None:
            return
        epochs = int((getattr(self._callbacks, "params", None) or {}).get("epochs") or 0)
        if epoch + 1 < epochs:
            self._copy({"epoch": epoch + 1, "batch": 0, **self.position.next_epoch()}, logs)

    def _copy(self, where: dict[str, int], logs: Any) -> None:
        """Make the copies that are due or asked for, unless a callback has stopped the training."""
        due, asked, self._due, self._asked = self._due, self._asked, False, False
        if self._backup.has_stopped():
            return
        pace = {"stepsPerEpoch": self._steps, "globalBatch": self._examples, "stepSeconds": self.copier.step_seconds()}
        told = {**where, **pace, **self._cost.for_head()}
        if due:
            self.copier.copy(self._step, told, _loss(logs))
        if asked and self.copier.agreed:
            self.copier.answer(self._step, told, _loss(logs))

    # The end.

    def end(self) -> None:
        """The training is over: its copies are of no use any more."""
        if self.copier.agreed:
            self.copier.end("")


def _loss(logs: Any) -> float | None:
    """The loss as Keras tells its callbacks, equal for all members; None if there is none. Never raises."""
    try:
        loss = logs["loss"]
        return float(loss.numpy() if hasattr(loss, "numpy") else loss)
    except Exception:
        return None
