"""One `fit` whose state is copied into memory: where it resumes, its place in the epochs and in the input.

fit_hook.py calls it from Keras; keras_fit.py is what differs between tf_keras and Keras 3; copier.py makes the copies.
docs/memory-backups.md says how the parts work together, and the invariants. What is not known to be exact is not
restored, and self_check.py looks at the rest.
"""

from __future__ import annotations

import functools
import io
import math
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .. import call_site
from ..keras_backup import KerasBackup
from ..shared.copy_reasons import ENDED
from ..tracker import EPOCHS_DONE, STEPS_DONE
from . import copy_file, input_kind, kept_variables, random_numbers, stored_state, variable_count
from .callback_state import CallbackStates
from .copier import Copier, describe
from .copy_report import NOT_STORED
from .input_kind import DRAWN_ANEW, EPOCH, STEP, STORAGE, Kind
from .input_position import UNKNOWN, Position, can_skip, examples_in_a_step, pass_over, readers_of
from .kept_variables import KeptVariables
from .keras_fit import KerasFit
from .keras_state import METRICS, FitState
from .member_sums import members_of, sums_over, totals_over, writes_under
from .program_digest import program_digest
from .resumed_position import Place, Split, from_head, resume_at
from .self_check import Checks, ResumedTrainingDiffers
from .settings import CopySettings

PATIENCE_SECONDS = 600.0  # then an epoch of an input that is not known to be reproducible has copies inside
FIRST_LOOK = 16  # batches behind the begin of an epoch at which the members first look how long it takes
FAR = 1 << 20  # batches
_LOW = 1 << 20
STOPPED = "stopped"
_TOLD = {
    STEP: "at the step",
    DRAWN_ANEW: "at the step, and the rest of the epoch is drawn anew",
    EPOCH: "at the begin of the epoch",
}


class Unsaved:
    """A `fit` without BackupAndRestore, in place of its backup."""

    path = ""
    saves_each_epoch = False

    def __init__(self, model: Any) -> None:
        self._model = model
        self.workers, self.writes = members_of(model.distribute_strategy), writes_under(model.distribute_strategy)

    def has_stopped(self) -> bool:
        """Whether a callback has stopped the training."""
        return bool(getattr(self._model, "stop_training", False))


class Session:
    """The copies of one `fit` of this process."""

    def __init__(self, settings: CopySettings, callbacks: Any, backup: KerasBackup | Unsaved, fit: KerasFit) -> None:
        self._settings = settings
        self._callbacks = callbacks
        self._backup = backup
        self._model = callbacks.model
        self._fit = fit
        self._thread = threading.current_thread()
        strategy = self._model.distribute_strategy
        self.copier = Copier(
            settings, backup.workers, sums_over(strategy, backup.workers), totals_over(strategy, backup.workers), log
        )
        self.copier.not_stored = NOT_STORED
        self.copier.report.tell()  # replaces the report of an earlier program
        self._replicas = int(strategy.num_replicas_in_sync)
        self._epoch = self._batch = self._step = 0
        self._first = 0  # the batch with which the present epoch begins or resumes
        self._steps = 0  # of an epoch; 0 if that is unknown
        self._due = self._asked = False  # copies that wait for the end of the epoch
        self._examples = examples_in_a_step(fit.dataset, self._replicas)
        self._kind = Kind(STORAGE)
        self._state: FitState | None = None
        self._states: CallbackStates | None = None
        self._random = random_numbers.of_model(self._model)
        self._resumed: Mapping[str, Any] | None = None  # the head of the restored copy, or of the stored state
        self._checks: Checks | None = None
        self._position: Position | None = None
        self._begins_anew: list[str] = []
        self._inside = False  # copies are made inside an epoch of an input that is not known to be reproducible
        self._began = 0.0  # the time at which this epoch first began, perhaps in an earlier process
        self._began_here = 0.0
        self._look_after = FIRST_LOOK
        self._look_at: int | None = None

    def runs_elsewhere(self) -> bool:
        """Whether this `fit` trains in another thread."""
        return self._thread is not threading.current_thread() and self._thread.is_alive()

    def trains(self, model: Any) -> bool:
        """Whether it is this model that trains."""
        return model is self._model

    # The begin.

    def prepare(self) -> None:
        """Decide where a restart resumes, before callbacks begin: a collective of all members."""
        kind, why_not = self._look()
        if why_not:
            self.copier.why_not = why_not
        not_at_step, anew = self.copier.agree([float(kind.at == EPOCH), float(kind.at == DRAWN_ANEW)])
        if not self.copier.agreed:
            return self.copier.report.tell_storage(self.copier.why_not, self.copier.not_stored)
        at = EPOCH if round(not_at_step) else DRAWN_ANEW if round(anew) else STEP
        if at == DRAWN_ANEW and self._settings.required:
            at = EPOCH
        reason = kind.reason or ("" if at == kind.at else "the input of another member")
        self._kind = replace(kind, at=at, reason=reason)
        self.copier.report.tell(resumesAt=at, resumesAtReason=reason)
        if at != STEP:
            late = f", or at the step once an epoch takes {PATIENCE_SECONDS / 60:.0f} minutes"
            log(f"a restart resumes {_TOLD[at]}{late * self._may_go_inside()}: {reason}")
        return None

    def _look(self) -> tuple[Kind, str]:
        """The kind of the input, and why this member can make no copies. Never raises: the others wait."""
        try:
            self._steps = int((getattr(self._callbacks, "params", None) or {}).get("steps") or 0)
            if why := self._objection():
                return Kind(STORAGE), why
            self._states = CallbackStates(self._callbacks, self._tell_anew)
            self._state = FitState(self._model, self._states, self._random, self._epochs())
            if not (identity := self._identify(self._state)):
                return Kind(STORAGE), call_site.objection(sys._getframe()) or "another call of fit looks the same"
            self.copier.use(self._state, identity)
            if isinstance(self._backup, Unsaved) and self.copier.holds_copy_of_another_fit(self._program):
                self._only_counts = True
                return Kind(STORAGE), "the newest copy is of another fit of this program, which comes later"
            self._states.before_begin()
            kind = input_kind.kind_of(self._fit.dataset, self._fit.several)
            self._readers = readers_of(self._fit.dataset, kind)
            if UNKNOWN in self._readers:
                self._tell_anew("the order of the input", "an earlier fit that is not repeated has read it")
            if not self._steps and kind.at != EPOCH:
                kind = Kind(EPOCH, "the number of steps in an epoch is unknown")
            return kind, ""
        except Exception as error:
            return Kind(STORAGE), describe(error)

    def _objection(self) -> str:
        """Why there can be no copies in this `fit`; "" if there can."""
        if getattr(self._model.distribute_strategy, "_should_use_with_coordinator", False):
            return "ParameterServerStrategy is not supported"
        if isinstance(self._backup, Unsaved) and self._fit.initial_epoch:
            return "the program passes an initial_epoch of its own, without BackupAndRestore"
        return ""

    def _identify(self, state: FitState) -> str:
        """The identity of this call of `fit` in this program, equal for all members; "" if there is none.

        Environment variables are no part of it: some name the pod or its devices. Keras' own backup heeds none either.
        """
        epochs = (getattr(self._callbacks, "params", None) or {}).get("epochs")
        self._program = program_digest()
        return call_site.identity(sys._getframe(), epochs, self._backup.path, state.signature(), self._program)

    def _tell_anew(self, name: str, why: str = "it has no get_state and set_state that return data") -> None:
        """Say, once, what begins anew at a restart."""
        self._begins_anew.append(name)
        lost = self.copier.not_stored if self.copier.why_not else ()
        self.copier.report.tell(beginsAnew=[*lost, *self._begins_anew][:8])
        log(f"at a restart the state of {name} begins anew: {why}")

    def restore(self, saved: Any) -> bool:
        """Restore the copy that all members hold, in place of Keras' restore of `saved`, which is None without
        BackupAndRestore; False if Keras has to. Every member of the round calls this, and all agree twice."""
        self._fit.restores(saved)
        if not self.copier.agreed or self._has_chosen:  # Keras 3 may try another backup
            return False
        self._has_chosen = True
        found, place = self._find()
        newest, count = self._stored(found.step) if found is not None and self._backup.writes else (-1, 0)
        newer = found is not None and self._backup.writes and found.step >= newest
        saves = self.copier.choose(found, newer, count)
        if saves is not None and found is not None:
            self.copier.take(found)
            self._fit.go_on_behind(saves)
            self._resume(found.head, place)
        elif found is not None:
            found.close()
        return saves is not None

    def _find(self) -> tuple[copy_file.Copy | None, Place]:
        """The copy, if this `fit` can go on where it was made, and that place. Never raises: the others wait."""
        nowhere = Place(0, 0, 0, 0)
        try:
            if (found := self.copier.find()) is None:
                return None, nowhere
            if (place := self._place(found.head)) is not None and not self._lacks_trace(found):
                return found, place
            log("the place of the copy in memory does not exist in this gang or input")
        except Exception as error:
            log(f"the copy in memory cannot be used: {describe(error)}")
        return None, nowhere

    def _readers_since(self, head: Mapping[str, Any]) -> int | None:
        """How many iterators of the input are missing in this process. The process that made the copy had read the
        input in an earlier `fit`, whose end this process restores without reading. None if no number of iterators makes
        up for it."""
        then, now = list(head.get("readers") or ()), list(self._readers)
        if then in ([], now):
            return 0
        missing = {before - present for before, present in zip(then, now)}
        one = missing.pop() if len(then) == len(now) and len(missing) == 1 else -1
        return one if self._kind.drops and one >= 0 else None

    def _lacks_trace(self, found: copy_file.Copy) -> bool:
        """Whether the copy has variables that only the first step of a program that runs eagerly can create."""
        if self._state is None or not found.head.get("lateState") or self._state.has_late(found.head):
            return False
        return not self._fit.can_trace()

    def _place(self, head: Mapping[str, Any]) -> Place | None:
        """Where this `fit` resumes from a copy or a backup with this head; None if it cannot."""
        place, then = from_head(head)
        self._differs, self._rest = "", "training sees it in another order"
        if self._steps and place.batch >= self._steps and then.steps == self._steps:
            return None
        if self._kind.at == EPOCH:
            inside = bool(head.get("inside")) and self._may_go_inside()
            if not inside:
                return Place(place.epoch, 0, 0, 0) if place.batch == 0 else None
        elif then.workers == self._backup.workers:
            readers = self._readers_since(head)
            if readers is None or head.get("input") != self._kind.digest:
                self._differs = "the input differs from that before the restart"
            place = replace(place, made=place.made + (readers or 0))
        elif place.batch and self._kind.shared_out:
            self._differs = f"{self._kind.shared_out}, and the number of workers is another one"
            self._rest = "epoch has some examples twice, and others not at all"
        elif self._kind.orders and self._fit.looks_alone and 1 in (then.workers, self._backup.workers):
            self._differs = "Keras 3 looks at a batch of the shuffled input in a gang of one worker, and in no other"
        if self._differs and self._settings.required and place.batch:
            return None
        now = Split(self._backup.workers, self._steps, self._examples)
        return resume_at(place, then, now, anew=self._fit.anew)

    def _stored(self, behind: int) -> tuple[int, int]:
        """The step of the newest backup in the storage, if it is later than `behind`, the step of the copy; and how
        many backups were saved. -1 and 0 for none."""
        latest, step = "", -1
        try:
            if latest := self._fit.latest():
                step = self._exact(latest, behind)
        except Exception as error:  # Keras could not restore it either
            log(f"the backup {latest} cannot be read: {describe(error)}")
        return step, self._fit.number_of(latest)

    def _exact(self, backup: str, behind: int) -> int:
        """The step of a backup, if this process has stored beside it what the training needs to go on exactly as
        undisturbed (stored_state.py). -1 if not, because then an older copy in memory is better; -1 too if the backup
        is not newer than step `behind`, because then nobody needs it."""
        head = stored_state.head_of(backup)
        if head is None or head.get("identity") != self.copier.identity:
            return -1
        step = self._fit.step_of(backup, head)
        if step <= behind or self._settings.doubts(step):
            return -1
        return step if stored_state.is_of(backup, head) else -1

    def after_begin(self) -> None:
        """Call after all callbacks, when `fit` is about to ask where to begin."""
        if (done := getattr(self._callbacks, EPOCHS_DONE, None)) is not None:
            if self.copier.agreed:
                pass_over(self._fit.dataset, self._kind, self._fit.iterators_of(int(done)))
            self.copier.agreed = False
            self.copier.report.tell_end(ENDED)
        if not self.copier.agreed or self._states is None:
            if self._only_counts:
                self._count_random_numbers()
            return
        if isinstance(self._backup, Unsaved):
            self.restore(None)
        elif self._resumed is None:
            self._step = self._fit.initial_epoch * self._steps
            self._take_stored()
        self._position = Position(self._fit, self._kind, self._replicas // self._backup.workers, self._other_reader)
        self._step = self._counted()
        if self._resumed is not None and self._state is not None:
            self._states.restore(list(self._resumed_state().get("callbacks") or ()))
            self._states.restore_arrays()
        if self.copier.resumed is not None:
            seconds = self.copier.restored_in
            log(f"resumed from memory at epoch {self._epoch + 1}, step {self._step}, in {seconds:.2f} s")
        self._count_random_numbers()
        self._drawn = random_numbers.of_program()
        self.copier.begin(self._step)
        self._begin_in_input()
        self._tell_step()

    _drawn = 0  # what the program had drawn before the training
    _only_counts = False  # no copies, but a later `fit` resumes from one, with the same train function

    def _count_random_numbers(self) -> None:
        spec = getattr(self._fit.dataset, "element_spec", "")
        self._random.begin(self._model.train_function, spec, counts=self._fit.counted() is not None)

    def end_without_copies(self) -> None:
        """The training is over, and has made no copies."""
        self._fit.end()
        self._random.end()

    def _resumed_state(self) -> Mapping[str, Any]:
        """What the restored copy, or the stored state, has beside the variables."""
        assert self._state is not None
        return self._state.restored() or self._resumed or {}

    def _resume(self, head: Mapping[str, Any], place: Place) -> None:
        """Resume at the place of the chief: all members must make the same steps. A collective."""
        own = float(self._backup.writes)
        high, low = divmod(place.drawn, _LOW)  # the sums are of single precision
        told = self.copier.sums([own * each for each in (place.epoch, place.batch, high, low, place.made)])
        epoch, batch, high, low, made = map(round, told[:5])
        if head.get(STOPPED):  # by a callback: nothing is left to train
            epoch, self._model.stop_training = self._epochs(), True
        self._epoch, self._batch, self._step, self._resumed = epoch, batch, int(head["step"]), head
        self._place_in_input = (high * _LOW + low, made)
        self._inside = bool(head.get("inside")) and batch > 0 and self._kind.at == EPOCH
        self._began = float(head.get("began") or 0.0)
        if self._differs:
            self.copier.report.tell(resumesAt=DRAWN_ANEW, resumesAtReason=self._differs)
            log(f"{self._differs}: the rest of the {self._rest}")
        if head.get("trainable") not in (None, len(self._model.trainable_variables)):
            self._tell_anew("the choice of the trainable variables", "others were trained before the restart")
        self._checks = Checks(epoch, batch, self._counted(), self._steps, self._epochs())

    _has_chosen = False
    _place_in_input = (0, 0)
    _differs = ""  # why the input is another than that of the copy
    _rest = ""  # the end of the line that says so: what becomes of the rest of the training

    def _take_stored(self) -> None:
        """Where Keras has restored a backup: take what was stored with it. Two collectives, of all members."""
        found = self._find_stored()
        if round(self.copier.sums([float(found is not None)])[0]) != self._backup.workers or found is None:
            if self._counted():
                why = "the backup has no stored state of this fit: callbacks, random numbers and input begin anew"
                self.copier.report.tell(epochResumed=why)
                log(why)
            return
        head, arrays, self._beside, place = found
        assert self._states is not None
        self._states.set_arrays(arrays)
        self._restore_beside()
        if self._state is not None:
            self._state.resume_random(head, own=self._backup.writes)
        self._resume(head, place)
        if place.batch:
            self._tell_anew(METRICS, "they count from this step on, because the backup is from inside an epoch")

    def _restore_beside(self) -> None:
        """Restore the variables that are stored beside the backup: all members, for they create some. Its errors end
        the program, whose state is half restored."""
        if self._beside is not None:
            self._beside.seek(0)
            kept_variables.restore(self._model, self._beside, beside=True)

    _beside: io.BytesIO | None = None

    def _find_stored(self) -> tuple[dict[str, Any], list[Any], io.BytesIO | None, Place] | None:
        """What was stored with the backup that Keras has restored, if it is of this `fit`. Never raises."""
        try:
            found = stored_state.read(self._fit.latest())
            if found is None or found[0].get("identity") != self.copier.identity:
                return None
            head, arrays, beside = found
            place = self._place(head)
            counted = self._fit.counted()
            same = place is not None and (counted is None or int(head["step"]) == counted)
            return (head, arrays, beside, place) if same and place is not None else None
        except Exception as error:
            log(f"what was stored beside the backup cannot be read: {describe(error)}")
            return None

    # The steps.

    def trains_with(self, fit: KerasFit) -> bool:
        """Whether the training follows this `fit`."""
        return self.copier.agreed and fit is self._fit and self._position is not None

    def _begin_in_input(self) -> None:
        """Set where Keras begins."""
        assert self._position is not None
        if self._resumed is not None:
            self._position.drawn, self._position.made = self._place_in_input
            if self._position.drawn:
                log(f"batches of input to skip: {self._position.drawn}")
                self.copier.report.tell(skipping=self._position.drawn)
        self._fit.follow(self._position)
        self.begin_in_keras()

    def _tell_step(self) -> None:
        """Tell the progress how many steps are done, where Keras counts none."""
        if self._fit.counted() is None:
            setattr(self._callbacks, STEPS_DONE, self._step)

    def begin_in_keras(self) -> None:
        """Tell Keras where to begin: it may have asked its own backup since."""
        if self._resumed is not None:
            self._fit.begin_at(self._epoch, self._batch, self._resumed.get("inferred"))

    def _other_reader(self) -> None:
        """The program reads the input elsewhere, too: with the next vote there are no more copies."""
        self.copier.why_not = self.copier.why_not or (
            "the program reads the shuffled input of fit elsewhere, too, so its order depends on both"
        )

    def before_epoch(self) -> None:
        """Call before callbacks begin an epoch: in the resumed one, the late variables are created and restored."""
        head = self.copier.resumed
        if not self._first_epoch or head is None or not self.copier.agreed or self._state is None:
            return
        if head.get("late") and not self._state.has_late(head) and self._position is not None:
            self._fit.traced()  # it creates the variables
        self._late_waits = self._state.awaits_late(head)
        if not self._late_waits:
            self._restore_late(head, self._state)

    def _restore_late(self, head: Mapping[str, Any], state: FitState) -> None:
        anew = state.restore_late(head)
        if not self._batch:
            self._model.reset_metrics()  # as Keras has done, before the late ones were restored
        elif anew:
            self._tell_anew(anew, "they count from this step on")

    def begin_epoch(self, epoch: int, _: Any = None) -> None:
        """Call behind the callbacks at the begin of an epoch; the one that a restart resumes begins behind some of its
        batches, and with the values of the copy."""
        resumes = self._checks is not None and self._first_epoch
        self._first_epoch = False
        if self._checks is not None:
            self._violated(self._checks.begin_epoch(epoch))
        if epoch != self._epoch:
            self._epoch, self._batch, self._inside = epoch, 0, False
        if not resumes or not self._began:
            self._began = time.time()
        self._began_here, self._look_at = time.monotonic(), None
        self._first = self._batch
        self._tell_step()
        if self._state is not None and self._states is not None:
            if resumes and self._late_waits and self.copier.resumed is not None:
                self._restore_late(self.copier.resumed, self._state)
            if resumes and self._batch and self.copier.agreed and self.copier.resumed is not None:
                everything = self._states.overrides_epoch_begin()
                self._state.restore_again(self.copier.resumed, everything=everything)
            elif resumes and self._batch and self._resumed is not None and self._fit.latest():
                self._fit.restore_again()
                self._restore_beside()
            self._beside = None
            self._state.forget_restored()

    _first_epoch = True
    _late_waits = False  # callbacks create some late variables at the begin of an epoch
    _program = ""  # its digest
    _readers: Sequence[int] = ()  # the iterators made of each dataset that draws an order, before this `fit`

    def end_batch(self, batch: int, logs: Any) -> None:
        """Note that the batches of this epoch up to `batch` are done, and copy if it is time."""
        if not self.copier.agreed or self._position is None:
            return self._save_deferred(None)
        batch = self._fit.last_of(self._begun, batch)
        before, first, increment = self._step, self._batch == self._first, batch + 1 - self._batch
        if first:
            self._check_first(batch)
        # Keras may resume within an epoch, too, so the first batch of an epoch need not be number 0.
        counted = self._fit.counted() if first else None
        self._step = before + increment if counted is None else counted
        self._batch = batch + 1
        self._position.drawn += increment
        self._due |= self.copier.due(before, self._step)
        self._asked |= self.copier.asked(before, self._step)
        waits = self._epoch + 1 < self._epochs() and self.copier.schedule.leaves_to_epoch_end(self._steps - self._batch)
        if self._steps and self._batch >= self._steps:
            self.copier.measure_to(self._step)
            self.copier.judge(self._step, _loss(logs))  # callbacks at the end of the epoch save the state
            return None  # a backup that waits is one of the epoch's end
        if self._kind.at == EPOCH and not self._goes_inside():
            if first:
                self.copier.measure_from(self._step)
        elif (due := self._due and not (self._steps and waits)) or self._asked:
            self._copy({"epoch": self._epoch, "batch": self._batch, **self._position.now()}, logs, due)
        elif first:  # not before: it has traced the model, or waited for the input
            self.copier.measure_from(self._step)
        return self._save_deferred({"epoch": self._epoch, "batch": self._batch, **self._position.now()})

    def begin_batch(self, batch: int = 0, _: Any = None) -> None:
        """Call behind the callbacks, just before a step."""
        self._begun, self._created = batch, variable_count.created()
        if self._batch == self._first:
            self._before_first = self._counted()
            self._counts_more |= self._before_first != self._step  # by `train_on_batch` of a callback

    _begun = 0  # the batch
    _before_first = _made = 0  # steps before the first batch of an epoch, and in it
    _counts_more = False

    def _check_first(self, batch: int) -> None:
        """The first batch of an epoch in this process has been trained."""
        increment = self._fit.increment
        if self._fit.counted() is not None and self._made != increment:
            self.copier.why_not = self.copier.why_not or "the train function does not count its steps"
        elif self._checks is not None:
            self._violated(self._checks.end_batch(batch, increment))

    def end_step(self) -> None:
        """Call just behind a step, before its callbacks. A variable of a later one may be tracked by nothing: with the
        next vote there are no more copies."""
        self.defer_backups()
        if self._batch == self._first:
            self._made = self._counted() - self._before_first
        if self._trained and variable_count.created() != self._created:
            self.copier.why_not = self.copier.why_not or "the training has created variables behind its first step"
        elif not self._trained:
            self._note_first_step()
        if not self._trained and self._place_in_input[0]:
            self.copier.report.tell(skipping=0)
        self._trained = True

    def _note_first_step(self) -> None:
        """What the first step has shown of the training: variables that no copy has, and random numbers."""
        try:
            assert self._state is not None
            for step in self._fit.traced():
                self._state.note_others(step)
                self._random.look_at(step)
        except Exception as error:
            self.copier.why_not = self.copier.why_not or f"the step cannot be examined: {describe(error)}"
        if self._random.begins_anew:
            self._tell_anew(f"the random numbers of {self._random.begins_anew}", self._random.why)

    _created, _trained = 0, False

    def _counted(self) -> int:
        """The steps of this `fit` so far, as the model counts them, or we."""
        counted = self._fit.counted()
        return self._step if counted is None else counted

    def end_epoch(self, epoch: int, logs: Any) -> None:
        """Copy behind the callbacks of an epoch's end, if it was time near its end, or where BackupAndRestore saves:
        a restart then finds no backup in the storage that is newer than the copy."""
        self.copier.schedule.end_wait()
        stopped = self._backup.has_stopped() or self._fit.ends_early
        if self._checks is not None and self.copier.agreed:
            self._violated(self._checks.end_epoch(self._batch, stopped or self._fit.may_be_short))
        if not self.copier.agreed or self._position is None:
            return self._save_deferred(None)
        where = {"epoch": epoch + 1, "batch": 0, **self._fit.next_position()}
        if stopped or epoch + 1 >= self._epochs():
            return self._save_deferred({**where, STOPPED: int(stopped)})
        often = self._backup.saves_each_epoch or self._kind.at == EPOCH
        due = self._due or (often and self.copier.due_with_backup(self._step, self._batch))
        self._inside, self._began = False, time.time()
        if due or self._asked:
            self._copy(where, logs, due)
            self.copier.measure_to(self._step)  # the begin of the next epoch is no step
        return self._save_deferred(where)

    def _epochs(self) -> int:
        return int((getattr(self._callbacks, "params", None) or {}).get("epochs") or 0)

    def _copy(self, where: dict[str, int], logs: Any, due: bool) -> None:
        """Make the copies that are `due` or asked for, unless a callback has stopped the training. Not all members need
        to be asked, and `due` is equal for all."""
        asked, self._asked = self._asked, False
        self._due &= not due
        if random_numbers.OF_PROGRAM not in self._begins_anew and self._drawn != random_numbers.of_program():
            self._tell_anew(random_numbers.OF_PROGRAM, "the training draws them")
        if self._backup.has_stopped():
            return
        told = self._head(where)
        if due:
            self.copier.copy(self._step, told, _loss(logs))
        if asked and self.copier.agreed:
            self.copier.answer(self._step, told, _loss(logs))

    def _head(self, where: Mapping[str, int]) -> dict[str, Any]:
        """What a copy says beside the step: the place, the gang, and the input."""
        return {
            **where,
            "stepsPerEpoch": self._steps,
            "globalBatch": self._examples,
            "input": self._kind.digest,
            "inside": self._inside,
            "began": self._began,
            "inferred": self._fit.inferred,
            "readers": self._readers,
            "program": self._program,
            "trainable": len(self._model.trainable_variables),
            **(self._state.late() if self._state is not None else {}),
        }

    # The backups of BackupAndRestore.

    def defer_backups(self) -> None:
        """Callbacks are about to end a batch or an epoch: a backup waits until all of them have."""
        if self._deferred is None:
            self._deferred = []

    def defers(self, save: Callable[[], None]) -> bool:
        """Whether this backup waits."""
        if self._deferred is None:
            return False
        self._deferred.append(save)
        return True

    _deferred: list[Callable[[], None]] | None = None

    def _save_deferred(self, where: Mapping[str, int] | None) -> None:
        """Save the backups that wait, each with what a copy has beside the variables. `where`: the place; None without
        stored state."""
        saves, self._deferred = self._deferred, None
        keep = self._keep(where) if saves and where is not None else None
        for save in saves or ():
            self._fit.save(save, keep)

    def _keep(self, where: Mapping[str, int]) -> Callable[[str], None] | None:
        """What stores the state beside a backup; None on members that do not write. A collective."""
        try:
            beside = self._fit.beside()
            if self._state is not None:
                self._state.gather_for_storage(self.copier.totals)
        except Exception as error:  # then the state is not stored: half of it would be no state
            log(f"what a backup does not restore cannot be stored beside it: {describe(error)}")
            return None
        return functools.partial(self._store_state, where, beside) if self._backup.writes else None

    def _store_state(self, where: Mapping[str, int], beside: KeptVariables | None, backup: str) -> None:
        """Store beside this backup what a copy has beside the variables, and those that the backup does not have."""
        if self._state is None or self._states is None:
            return
        try:
            told = {"identity": self.copier.identity, "workers": self._backup.workers, "step": self._step}
            head = {**self._head(where), **told, **self._state.beside_variables()}
            stored_state.write(backup, head, self._states.arrays(), beside)
        except Exception as error:
            log(f"the state of callbacks cannot be stored beside the backup: {describe(error)}")

    # An input that is not known to be reproducible, in a long epoch.

    def _may_go_inside(self) -> bool:
        return self._kind.at == EPOCH and not self._settings.required and can_skip(self._fit.dataset)

    def _goes_inside(self) -> bool:
        """Whether copies are made inside this epoch, because it first began long ago. All members call this after the
        same batches: it is a collective where they look at the clock."""
        if self._inside or not self._may_go_inside():
            return self._inside
        if self._look_at is None:
            self._look_at = self._first + self._look_after
        if self._batch >= self._look_at:
            self._look_at_clock()
        return self._inside

    def _look_at_clock(self) -> None:
        """Agree, by the chief's clock, whether the epoch is old enough for copies inside it, or after how many batches
        to look again."""
        made = max(1, self._batch - self._first)
        left = min(PATIENCE_SECONDS, self._began + PATIENCE_SECONDS - time.time())
        pace = max(1e-6, (time.monotonic() - self._began_here) / made)
        ahead = 0 if left <= 0 else min(FAR, max(1, math.ceil(left / pace)))
        ahead = round(self.copier.sums([float(self._backup.writes) * ahead])[0])
        self._look_at = self._batch + ahead
        self._look_after = max(FIRST_LOOK, (made + ahead) // 2)
        if not ahead:
            self._inside = True
            self.copier.report.tell(inputNotReproducible=True)
            log(f"this epoch began more than {PATIENCE_SECONDS / 60:.0f} minutes ago: a restart resumes at the step")

    # The end.

    def _violated(self, what: str) -> None:
        """A self-check has failed: end with an error if the storage has a backup, or train on without copies."""
        if not what:
            return
        self._checks = None
        self.copier.report.tell(violation=what)
        self.copier.end(f"the resumed training differs: {what}")
        if self._fit.latest():
            raise ResumedTrainingDiffers(f"tftraining: {what}; the restart resumes from the storage")

    def end(self) -> None:
        """The training is over: its copies are of no use any more."""
        self._random.end()
        self._fit.end()
        early = self._fit.ends_early or self._fit.may_be_short
        stopped = self._backup.has_stopped() or early or self._counts_more
        if self._checks is not None and self.copier.agreed:
            self._violated(self._checks.end(self._counted(), stopped))
        if self.copier.agreed:
            self.copier.end("")


def log(text: str) -> None:
    """Tell the user."""
    sys.stderr.write(f"tftraining: {text}\n")


def log_once(text: str) -> None:
    """Tell the user what each `fit` of a loop would tell again."""
    if text not in _told:
        _told.add(text)
        log(text)


_told: set[str] = set()


def _loss(logs: Any) -> float | None:
    """The loss as Keras tells its callbacks, equal for all members; None if there is none. Never raises."""
    try:
        loss = logs["loss"]
        return float(loss.numpy() if hasattr(loss, "numpy") else loss)
    except Exception:
        return None
