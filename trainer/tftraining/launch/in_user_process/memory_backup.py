"""Backups in memory: copies the state of a `fit` of tf_keras every few steps; a restart in place resumes there.

docs/memory-backups.md says how the parts work together, and the invariants. All members of a
MultiWorkerMirroredStrategy must decide alike, or their collectives hang: what decides whether one is called is equal
for all, and a member that fails votes "no". It must never fail a training: after an error there are no more copies, and
Keras runs as usual.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from . import backup_interval, call_site, memory_copy
from .input_position import Position, supported
from .keras_backup import CLASS, LegacyBackup, find_backup
from .keras_hook import EPOCHS_DONE
from .keras_state import State
from .variable_values import Unsupported

_SESSION = "_tftraining_memory_backup"
_MARK = "_tftraining_copies"
_GENERATED = "__autograph_generated_file"  # another name in each process
_OFF = backup_interval.LARGEST + 1  # the vote against any further copy
STEP_IN_CHECKPOINT = "train_counter/.ATTRIBUTES/VARIABLE_VALUE"

_present: Session | None = None  # the last `fit` that has begun, until it ends


class Settings:
    """What the launcher tells the program: where to copy to, at which cost, and which copy all members hold."""

    def __init__(self, told: str, environment: Mapping[str, str]) -> None:
        settings = json.loads(told)
        self.directory = str(settings["directory"])
        self.share = float(settings["percent"]) / 100
        restore = settings.get("restore")
        self.restore = (int(restore[0]), int(restore[1])) if restore else None
        self.round = int(environment["TFTRAINING_ROUND"])
        self.variables = call_site.environment_fingerprint(environment)


class Session:
    """The copies of one `fit` of this process. `why_not` is why there are none; "" while there are."""

    def __init__(self, settings: Settings, callbacks: Any, backup: LegacyBackup) -> None:
        self._settings = settings
        self._callbacks = callbacks
        self._backup = backup
        self._model = callbacks.model
        self._state: State | None = None
        self._slots: memory_copy.Slots | None = None
        self._views: dict[int, list[Any]] = {}
        self._reserving: threading.Thread | None = None
        self._measured = backup_interval.Measured()
        self._exponent = backup_interval.FIRST
        self._copies = 0
        self._epoch = self._batch = self._step = 0
        self._first = 0  # the batch with which the present epoch begins or resumes
        self._steps = 0  # of an epoch
        self._due = False  # a copy waits for the end of the epoch
        self._identity = ""
        self._restored_in = 0.0
        self.position: Position | None = None
        self.resumed: dict[str, Any] | None = None  # the head of the restored copy
        self.agreed = False  # all members make copies in this `fit`
        self.why_not = ""

    def trains(self, model: Any) -> bool:
        """Whether it is this model that trains."""
        return model is self._model

    # The begin.

    def restore(self, saved: Any) -> bool:
        """Restore the copy that all members hold, in place of Keras' restore of `saved`; False if Keras has to.

        Every member of the round calls this, and every member calls `_sums` once.
        """
        usable, found = self._look()
        newest, count = self._stored(saved) if found is not None and self._backup.writes else (-1, 0)
        newer = found is not None and self._backup.writes and found.step >= newest
        exponent = found.exponent if newer and found is not None else 0
        told = self._sums([float(each) for each in (usable, found is not None, newer, count, exponent)])
        self.agreed = round(told[0]) == self._backup.workers
        if not self.agreed and not self.why_not:
            self.why_not = "another member cannot"
        taken = self.agreed and round(told[1]) == self._backup.workers and round(told[2]) > 0
        if taken and found is not None and self._state is not None:
            self._take(found, round(told[3]), saved)
            self._exponent = round(told[4])
        if found is not None:
            found.close()
        return taken

    def _look(self) -> tuple[bool, memory_copy.Copy | None]:
        """Whether this member can make copies; its own file of the copy that all hold, if that fits. Never raises."""
        try:
            self._steps = int((getattr(self._callbacks, "params", None) or {}).get("steps") or 0)
            self._state = State(self._model)
            self._identity = self._identify(self._state)
            self.why_not = self._objection()
            if self.why_not:
                return False, None
            return True, self._fitting()
        except Exception as error:
            self.why_not = _describe(error)
            return False, None

    def _objection(self) -> str:
        """Why there can be no copies in this `fit`; "" if there can."""
        if getattr(self._model.distribute_strategy, "_should_use_with_coordinator", False):
            return "ParameterServerStrategy is not supported"
        if self._steps < 2:
            return "the number of steps in an epoch is unknown, or 1"
        if not self._identity:
            return "the call of fit is in a loop, so another process cannot recognize it"
        return ""

    def _identify(self, state: State) -> str:
        """The identity of this call of `fit` in this program by this member; "" if there is none."""
        extended = self._model.distribute_strategy.extended
        place = [self._backup.workers, int(getattr(extended, "_id_in_cluster", 0) or 0)]
        epochs = (getattr(self._callbacks, "params", None) or {}).get("epochs")
        more = (self._settings.variables, epochs, self._steps, self._backup.path, place, state.signature(), _program())
        return call_site.identity(sys._getframe(), *more)

    def _fitting(self) -> memory_copy.Copy | None:
        """This member's file of the copy that all hold; None without one, or if it is of another `fit`."""
        if self._settings.restore is None or self._state is None:
            return None
        try:
            copy = memory_copy.Copy(self._settings.directory, *self._settings.restore)
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log(f"the copy in memory cannot be read: {_describe(error)}")
            return None
        if copy.head.get("identity") == self._identity and len(copy.state) == self._state.size:
            return copy
        copy.close()
        _log("the copy in memory is of another fit, another program or a gang of another size")
        return None

    def _stored(self, saved: Any) -> tuple[int, int]:
        """The step of the newest backup in the storage, and the number of times it was saved; -1 and 0 for none."""
        latest, step = "", -1
        try:
            latest = saved.read_checkpoint_manager.latest_checkpoint or ""
            reader = sys.modules["tensorflow"].train.load_checkpoint(latest) if latest else None
            step = int(reader.get_tensor(STEP_IN_CHECKPOINT)) if reader is not None else -1
        except Exception as error:  # Keras could not restore it either
            _log(f"the backup {latest} cannot be read: {_describe(error)}")
        number = re.search(r"-(\d+)$", latest)
        return step, int(number[1]) if number else 0

    def _take(self, found: memory_copy.Copy, count: int, saved: Any) -> None:
        """Restore the copy. Its errors end the program: the state is half restored, and the others have theirs."""
        assert self._state is not None
        begin = time.monotonic()
        views = self._state.views(found.state, 0)
        self._state.restore_from(views)
        views.clear()
        if count:  # or the next backup would overwrite the newest one, and with it the only one
            saved.read_checkpoint_manager.checkpoint.save_counter.assign(count)
        self.resumed = found.head
        self._restored_in = time.monotonic() - begin

    def after_begin(self, saved: Any) -> None:
        """Call after all callbacks, when `fit` is about to ask where to begin."""
        if not self.agreed or self._state is None or getattr(self._callbacks, EPOCHS_DONE, None) is not None:
            self.agreed = False
            return
        head, self._step = self.resumed, self._counted()
        replicas = int(self._model.distribute_strategy.num_replicas_in_sync) // self._backup.workers
        drawn, made = (int(head["drawn"]), int(head["made"])) if head else (0, 0)
        self.position = Position(drawn, made, replicas)
        if head is not None:
            first = (int(head["epoch"]), int(head["batch"]))
            saved.maybe_load_initial_counters_from_ckpt = lambda *_, **__: first
            self._epoch, self._batch = first
            where = f"epoch {first[0] + 1}, step {self._step}, in {self._restored_in:.2f} s"
            _log(f"resumed from memory at {where}; batches of input to skip: {drawn}")
        kept = self._settings.restore if head is not None else None
        self._slots = memory_copy.Slots(self._settings.directory, self._state.size, kept)
        self._reserving = threading.Thread(target=self._reserve, name="tftraining-memory", daemon=True)
        self._reserving.start()

    def _reserve(self) -> None:
        assert self._slots is not None
        try:
            self._slots.reserve()
        except Exception as error:  # the others make copies until the next vote
            self.why_not = f"no memory for two copies: {_describe(error)}"

    # The steps.

    def follows(self, handler: Any) -> bool:
        """Whether this DataHandler is that of the training, and its input can be skipped."""
        if not self.agreed or self.position is None or not self.position.follows(handler):
            return False
        if not supported(handler):  # equal for all members
            self._end("the input cannot be skipped, so a restart resumes at the epoch")
        return self.agreed

    def begin_epoch(self, epoch: int) -> None:
        """Note the begin of an epoch; the one that a restart resumes begins behind some of its batches."""
        if epoch != self._epoch:
            self._epoch, self._batch = epoch, 0
        self._first = self._batch

    def end_batch(self, batch: int) -> None:
        """Note that the batches of this epoch up to `batch` are done, and copy if it is time."""
        if not self.agreed or self.position is None:
            return
        before, first = self._step, self._batch == self._first
        # Keras may resume within an epoch, too, so the first batch of an epoch need not be number 0.
        self._step = self._counted() if first else before + batch + 1 - self._batch
        self._batch = batch + 1
        self.position.drawn += self._step - before
        if backup_interval.crosses(before, self._step, self._exponent) and not self._backup.has_stopped():
            if self._batch >= self._steps:
                self._due = True
            else:
                self._copy({"epoch": self._epoch, "batch": self._batch, **self.position.now()})
        elif first:  # not before: it has traced the model, or waited for the input
            self._measured.start(time.monotonic(), self._step)
        if self._batch >= self._steps:
            self._measured.stop(time.monotonic(), self._step)

    def _counted(self) -> int:
        """The steps of this `fit` so far, as the model counts them."""
        return int(self._model._train_counter.numpy())

    def end_epoch(self, epoch: int) -> None:
        """Copy behind the callbacks of an epoch's end, if a step near its end was due."""
        due, self._due = self._due, False
        if not self.agreed or self.position is None:
            return
        epochs = int((getattr(self._callbacks, "params", None) or {}).get("epochs") or 0)
        if due and epoch + 1 < epochs and not self._backup.has_stopped():
            self._copy({"epoch": epoch + 1, "batch": 0, **self.position.next_epoch()})

    def _copy(self, where: dict[str, int]) -> None:
        """Make a copy, and vote if it is time to. `where`: the place in the epochs and in the input."""
        begin = time.monotonic()
        self._measured.stop(begin, self._step)
        try:
            self._write(where)
        except Exception as error:
            self.why_not = self.why_not or _describe(error)
        self._copies += 1
        self._measured.blocked(time.monotonic() - begin)
        if backup_interval.votes_after(self._copies):
            self._vote()
        self._measured.start(time.monotonic(), self._step)

    def _write(self, where: dict[str, int]) -> None:
        if self._reserving is not None:
            self._reserving.join()
            self._reserving = None
        if self.why_not or self._slots is None or self._state is None:
            return
        if not self._copies and self._state.grown():
            raise Unsupported("the training has created variables")
        buffer = self._slots.begin()
        views = self._views.get(id(buffer))
        if views is None:
            views = self._views[id(buffer)] = self._state.views(buffer, memory_copy.HEAD)
        self._state.copy_to(views)
        told = {
            **where,
            "identity": self._identity,
            "step": self._step,
            "exponent": self._exponent,
            "time": time.time(),
        }
        self._slots.commit(self._settings.round, self._step, told)

    def _vote(self) -> None:
        """Agree on the interval by the largest vote, a collective: all members call it after the same copies."""
        own = _OFF if self.why_not else self._measured.exponent(self._exponent, self._settings.share)
        told = self._sums([float(place == own) for place in range(_OFF + 1)])
        exponent = max(place for place, votes in enumerate(told) if round(votes))
        if exponent == _OFF:
            self._end(self.why_not or "another member cannot")
        elif exponent != self._exponent:
            self._exponent = exponent

    def _sums(self, numbers: list[float]) -> list[float]:
        """The sums over all members: a collective that all of them must call."""
        if self._backup.workers == 1:
            return numbers
        numbers = numbers + [0.0] * (_OFF + 1 - len(numbers))  # always of one shape, or it is traced again
        tensorflow, strategy = sys.modules["tensorflow"], self._model.distribute_strategy
        values = strategy.experimental_distribute_values_from_function(lambda _: tensorflow.constant(numbers))
        replicas = int(strategy.num_replicas_in_sync) // self._backup.workers
        return [float(each) / replicas for each in strategy.reduce("SUM", values, axis=None).numpy()]

    # The end.

    def end(self) -> None:
        """The training is over: its copies are of no use any more."""
        if self.agreed:
            self._end("")

    def _end(self, why: str) -> None:
        """Make no more copies in this `fit`, and free their memory."""
        if why:
            _log(f"no backups in memory: {why}")
        self.agreed = False
        self._views.clear()
        if self._reserving is not None:
            self._reserving.join()
        try:
            if self._slots is not None:
                self._slots.discard()
        except OSError as error:
            _log(f"{error.filename}: {error.strerror}")


def extend(settings: Settings, takes_part: Callable[[], bool], cls: Any) -> None:
    """Extend Keras' CallbackList class. `takes_part`: whether this process trains."""
    begin, end = cls.on_train_begin, cls.on_train_end
    begin_epoch, end_epoch, end_batch = cls.on_epoch_begin, cls.on_epoch_end, cls.on_train_batch_end

    @functools.wraps(begin)
    def on_train_begin(self: Any, logs: Any = None) -> None:
        session = _begin(settings, self) if takes_part() else None
        begin(self, logs)
        if session is not None:
            session.after_begin(getattr(self.model, "_training_state", None))
            if session.why_not:
                _log(f"no backups in memory: {session.why_not}")
        setattr(self, _SESSION, session if session is not None and session.agreed else None)

    @functools.wraps(end)
    def on_train_end(self: Any, logs: Any = None) -> None:
        end(self, logs)
        if (session := self.__dict__.pop(_SESSION, None)) is not None:
            _forget()
            session.end()

    @functools.wraps(begin_epoch)
    def on_epoch_begin(self: Any, epoch: int, logs: Any = None) -> None:
        if (session := self.__dict__.get(_SESSION)) is not None:
            session.begin_epoch(epoch)
        begin_epoch(self, epoch, logs)

    @functools.wraps(end_epoch)
    def on_epoch_end(self: Any, epoch: int, logs: Any = None) -> None:
        end_epoch(self, epoch, logs)
        if (session := self.__dict__.get(_SESSION)) is not None:
            session.end_epoch(epoch)

    @functools.wraps(end_batch)
    def on_train_batch_end(self: Any, batch: int, logs: Any = None) -> None:
        end_batch(self, batch, logs)
        if (session := self.__dict__.get(_SESSION)) is not None:
            session.end_batch(batch)

    cls.on_train_begin, cls.on_train_end, cls.on_train_batch_end = on_train_begin, on_train_end, on_train_batch_end
    cls.on_epoch_begin, cls.on_epoch_end = on_epoch_begin, on_epoch_end


def _begin(settings: Settings, callbacks: Any) -> Session | None:
    """The session of a `fit` that is about to begin; None without BackupAndRestore of tf_keras."""
    global _present  # noqa: PLW0603  # one process, one training at a time
    _present = None
    try:
        backup = find_backup(callbacks)
        if not isinstance(backup, LegacyBackup):
            if any(cls.__name__ == CLASS for each in callbacks.callbacks for cls in type(each).__mro__):
                _log("no backups in memory: only BackupAndRestore of tf_keras is supported, with a model that is built")
            return None
        _extend_keras(_package(callbacks))
        _present = Session(settings, callbacks, backup)
    except Exception as error:
        _log(f"no backups in memory: {_describe(error)}")
    return _present


def _forget() -> None:
    global _present  # noqa: PLW0603
    _present = None


def _session_of(model: Any) -> Session | None:
    return _present if _present is not None and _present.trains(model) else None


def _package(callbacks: Any) -> str:
    """The package of Keras' modules: `tf_keras.src`."""
    classes = (cls for each in callbacks.callbacks for cls in type(each).__mro__)
    return next(cls.__module__ for cls in classes if cls.__name__ == CLASS).rpartition(".")[0]


def _extend_keras(package: str) -> None:
    """Extend, once, where tf_keras restores and where it begins to read the input."""
    state = sys.modules[f"{package}.distribute.worker_training_state"].WorkerTrainingState
    handler = sys.modules[f"{package}.engine.data_adapter"].DataHandler
    if _MARK in state.__dict__:
        return
    restore, epochs = state.restore, handler.enumerate_epochs

    @functools.wraps(restore)
    def restored(self: Any) -> Any:
        session = _session_of(self._model)
        return True if session is not None and session.restore(self) else restore(self)

    @functools.wraps(epochs)
    def followed(self: Any) -> Iterator[tuple[int, Any]]:
        session = _session_of(self._model)
        if session is None or session.position is None or not session.follows(self):
            found: Iterator[tuple[int, Any]] = epochs(self)
            return found
        return session.position.epochs(epochs, self)

    setattr(state, _MARK, True)
    state.restore, handler.enumerate_epochs = restored, followed


def _program() -> str:
    """A digest of the sources of the program's own modules, and the versions of TensorFlow and Keras."""
    digest = hashlib.sha256()
    for name in ("tensorflow", "tf_keras", "keras"):
        digest.update(str(getattr(sys.modules.get(name), "__version__", "")).encode())
    own = os.path.dirname(os.path.abspath(__file__))
    standard = os.path.dirname(os.__file__) + os.sep
    paths = {os.path.abspath(path) for each in list(sys.modules.values()) if (path := getattr(each, "__file__", None))}
    for path in sorted(paths):
        ours = path.startswith((own, standard)) or "-packages" in path
        if not ours and path.endswith(".py") and not os.path.basename(path).startswith(_GENERATED):
            with open(path, "rb") as file:
                digest.update(file.read())
    return digest.hexdigest()


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _log(text: str) -> None:
    sys.stderr.write(f"tftraining: {text}\n")
