"""Extends tf_keras for backups in memory: `fit` copies its state every few steps, and resumes there after a restart.

fit.py knows the training. Must never disturb a training: after an error, Keras runs as usual.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ..keras_backup import CLASS, LegacyBackup, find_backup
from .copier import describe
from .copy_report import Report
from .fit import Session
from .settings import Settings

_SESSION = "_tftraining_memory_backup"
_MARK = "_tftraining_copies"

_present: Session | None = None  # the last `fit` that has begun, until it ends


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
            if session.copier.why_not:
                _log(f"no backups in memory: {session.copier.why_not}")
        setattr(self, _SESSION, session if session is not None and session.copier.agreed else None)

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
            session.end_epoch(epoch, logs)

    @functools.wraps(end_batch)
    def on_train_batch_end(self: Any, batch: int, logs: Any = None) -> None:
        end_batch(self, batch, logs)
        if (session := self.__dict__.get(_SESSION)) is not None:
            session.end_batch(batch, logs)

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
                why = "only BackupAndRestore of tf_keras is supported, with a model that is built"
                Report(settings.directory, settings.round).tell(reason=why)
                _log(f"no backups in memory: {why}")
            return None
        _extend_keras(_package(callbacks))
        _present = Session(settings, callbacks, backup, _log)
    except Exception as error:
        _log(f"no backups in memory: {describe(error)}")
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


def _log(text: str) -> None:
    sys.stderr.write(f"tftraining: {text}\n")
