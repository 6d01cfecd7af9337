"""Extends Keras for backups in memory: `fit` copies its state every few steps, and resumes there after a restart.

fit.py knows the training. A `fit` of a Keras that is not as SURFACE declares is left alone.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ..import_hook import after_import
from ..keras_backup import CLASS, KerasBackup, find_backup
from ..surface import Part, Surface
from . import input_position, keras3_fit, member_sums, random_numbers, variable_count
from .copier import describe
from .copy_report import NOT_STORED, CopyReport, without_copies
from .fit import Session, Unsaved, log_once
from .keras_fit import KerasFit
from .legacy_fit import LegacyFit
from .settings import CopySettings

_SESSION = "_tftraining_memory_backup"
_WITHOUT = "_tftraining_no_memory_backup"
_MARK = "_tftraining_copies"
_HANDLERS = frozenset({"tf_keras.src.engine.data_adapter", "keras.src.engine.data_adapter"})
_LOST = "no backups in memory"
_KERAS_3 = "keras.src.callbacks.callback_list"
NOT_SUPPORTED = "fit of this Keras is not supported"
# keras_hook.py has looked at the methods.
LISTS = Surface(_LOST, (Part("{package}.callbacks", "CallbackList", uses="callbacks _history params"),))
HANDLERS = Surface(
    _LOST,
    (
        Part("{package}.engine.data_adapter", "DataHandler.__init__", uses="_adapter _initial_epoch _epochs"),
        Part(
            "{package}.engine.data_adapter",
            "DataHandler.enumerate_epochs",
            "self",
            uses="_initial_epoch _epochs _dataset _adapter _inferred_steps should_recreate_iterator",
        ),
        Part("{package}.engine.data_adapter", "DataHandler.steps", "self", uses="_initial_step _inferred_steps"),
        Part("{package}.engine.data_adapter", "DataHandler.step_increment"),
        Part("{package}.engine.data_adapter", "DataHandler.catch_stop_iteration", uses="_insufficient_data"),
    ),
)
TENSORFLOW = Surface(
    _LOST,
    (
        Part("tensorflow.python.ops.resource_variable_ops", "_set_handle_shapes_and_types", uses="_handle_data"),
        *input_position.SURFACE.parts,
        *member_sums.SURFACE.parts,
        *variable_count.SURFACE.parts,
    ),
)
TRAINING = Surface(
    _LOST,
    (
        Part("{package}.distribute.worker_training_state", "WorkerTrainingState", uses="_model"),
        Part("{package}.distribute.worker_training_state", "WorkerTrainingState.restore", "self"),
        Part(
            "{package}.distribute.worker_training_state",
            "WorkerTrainingState.back_up",
            "self epoch batch",
            uses="write_checkpoint_manager save",
        ),
        Part(
            "tensorflow.python.checkpoint.checkpoint_management",
            "CheckpointManager.save",
            uses="_prefix save_counter",
        ),
        Part(
            "{package}.engine.training",
            "Model.fit",
            uses="_train_counter _initial_epoch _initial_step enumerate_epochs reset_metrics stop_training",
        ),
        Part("{package}.engine.training", "Model.make_train_function", "self force", uses="train_function"),
    ),
)

# The last `fit` that has begun, until it ends. Not held here: it holds the model and the iterator, and it may end by an
# exception, of which nobody tells.
_begun: weakref.ref[Session] | None = None
_unread: weakref.ref[LegacyFit] | None = None  # the last one of tf_keras, until it reads its input
_unknown = ""  # how the input of this Keras differs from what SURFACE declares
_inside: list[Any] = []  # the CallbackLists whose callbacks run: a `fit` that begins meanwhile is inside another one
_handlers: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  # the newest DataHandler of each model


def extend(settings: CopySettings, takes_part: Callable[[], bool], cls: Any) -> None:
    """Extend Keras' CallbackList class. `takes_part`: whether this process trains."""
    if cls.__module__ == _KERAS_3:
        return _extend_lists(settings, takes_part, cls)
    if cls.__module__ not in ("tf_keras.src.callbacks", "keras.src.callbacks"):
        return _extend_to_refuse(settings, takes_part, cls)
    if LISTS.holds(package=cls.__module__.rpartition(".")[0]):
        after_import(_HANDLERS, _extend_handlers)
        _extend_lists(settings, takes_part, cls)
    return None


def _extend_lists(settings: CopySettings, takes_part: Callable[[], bool], cls: Any) -> None:
    begin, end = cls.on_train_begin, cls.on_train_end

    @functools.wraps(begin)
    def on_train_begin(self: Any, logs: Any = None) -> None:
        session = _begin(settings, self) if takes_part() else None
        if session is not None:
            session.prepare()
        _run(begin, self, logs)
        if session is not None:
            session.after_begin()
            if session.copier.why_not:
                log_once(without_copies(session.copier.why_not))
        setattr(self, _SESSION, session if session is not None and session.copier.agreed else None)
        setattr(self, _WITHOUT, session if session is not None and not session.copier.agreed else None)

    @functools.wraps(end)
    def on_train_end(self: Any, logs: Any = None) -> None:
        end(self, logs)
        _forget()
        if (session := self.__dict__.pop(_SESSION, None)) is not None:
            session.end()
        if (session := self.__dict__.pop(_WITHOUT, None)) is not None:
            session.end_without_copies()

    cls.on_train_begin, cls.on_train_end = on_train_begin, on_train_end
    _around(cls, "on_epoch_begin", Session.before_epoch, Session.begin_epoch)
    _around(cls, "on_epoch_end", Session.defer_backups, Session.end_epoch)
    _around(cls, "on_train_batch_begin", None, Session.begin_batch)
    _around(cls, "on_train_batch_end", Session.end_step, Session.end_batch)


def _around(cls: Any, name: str, before: Callable[[Session], None] | None, after: Callable[..., None]) -> None:
    """Extend a method of a CallbackList by what the session does before and behind its callbacks."""
    method = getattr(cls, name)

    @functools.wraps(method)
    def extended(self: Any, number: int, logs: Any = None) -> None:
        session = self.__dict__.get(_SESSION)
        if session is not None and before is not None:
            before(session)
        _run(method, self, number, logs)
        if session is not None:
            after(session, number, logs)

    setattr(cls, name, extended)


def _run(method: Callable[..., None], callbacks: Any, *arguments: Any) -> None:
    """Run the callbacks of this list."""
    _inside.append(callbacks)
    try:
        method(callbacks, *arguments)
    finally:
        _inside.pop()


def _extend_to_refuse(settings: CopySettings, takes_part: Callable[[], bool], cls: Any) -> None:
    """Extend the CallbackList of another Keras, to say that there are no copies."""
    begin = cls.on_train_begin

    @functools.wraps(begin)
    def on_train_begin(self: Any, logs: Any = None) -> None:
        if takes_part():
            _refuse(settings, NOT_SUPPORTED)
        begin(self, logs)

    cls.on_train_begin = on_train_begin


def _report_refusal(settings: CopySettings, why: str) -> None:
    report = CopyReport(settings.directory, settings.round)
    report.tell(reason=why)
    report.tell_storage(why, NOT_STORED)


def _refuse(settings: CopySettings, why: str) -> None:
    _report_refusal(settings, why)
    log_once(without_copies(why))


def _begin(settings: CopySettings, callbacks: Any) -> Session | None:
    """The session of a `fit` that is about to begin; None if it makes no copies, of which the user is told."""
    global _begun, _unread  # noqa: PLW0603  # one process, one training at a time
    if _inside or ((present := _present()) is not None and present.runs_elsewhere()):
        return None  # this `fit` runs inside another one, which makes the copies
    _begun = None
    try:
        known = _handlers.pop(callbacks.model, None)  # that of an earlier `fit` is no longer there
        if _unknown and type(callbacks).__module__ != _KERAS_3:  # HANDLERS has told the user
            _report_refusal(settings, _unknown)
            return None
        fit, why = _fit_of(callbacks, known() if known is not None else None)
        backup = _backup_of(callbacks) if fit is not None else None
        if fit is not None and backup is None:
            why = "it takes a model that is built, and one BackupAndRestore or none"
        elif fit is not None and backup is not None:
            session = Session(settings, callbacks, backup, fit)
            _begun, _unread = weakref.ref(session), weakref.ref(fit) if isinstance(fit, LegacyFit) else None
            return session
    except Exception as error:
        why = describe(error)
    _refuse(settings, why)
    return None


def _fit_of(callbacks: Any, handler: Any) -> tuple[KerasFit | None, str]:
    """The `fit` that has called, or why it can have no copies. Extends its Keras."""
    package = type(callbacks).__module__.rpartition(".")[0]
    is_new = type(callbacks).__module__ == _KERAS_3
    missing = (keras3_fit.SURFACE if is_new else TRAINING).missing(package=package) or TENSORFLOW.missing()
    if is_new and sys.modules["keras"].backend.backend() != "tensorflow":
        return None, NOT_SUPPORTED
    if missing:
        return None, f"this {package.partition('.')[0]} is not known: {missing}"
    fit: KerasFit | None = None
    if is_new:
        fit = keras3_fit.fit_of(callbacks, sys._getframe())
    elif handler is not None:
        fit = LegacyFit(callbacks.model, handler)
    if fit is not None:
        _extend_backups(*_BACKUPS[is_new], package)
        _extend_tensorflow()
    return fit, "this is no fit of Keras"


def _backup_of(callbacks: Any) -> KerasBackup | Unsaved | None:
    """The backup of a `fit`; None with one that is not supported."""
    if (found := find_backup(callbacks)) is not None:
        return found
    has_one = any(cls.__name__ == CLASS for each in callbacks.callbacks for cls in type(each).__mro__)
    return Unsaved(callbacks.model) if not has_one and callbacks.model.built else None


def _forget() -> None:
    global _begun  # noqa: PLW0603
    _begun = None


def _present() -> Session | None:
    return None if _begun is None else _begun()


def _session_of(model: Any) -> Session | None:
    return session if (session := _present()) is not None and session.trains(model) else None


def _extend_handlers(module: Any) -> None:
    """Extend, once, where tf_keras gets and reads its input."""
    package = module.__name__.removesuffix(".engine.data_adapter")
    global _unknown  # noqa: PLW0603
    if not HANDLERS.holds(package=package):
        _unknown = HANDLERS.missing(package=package)
        return
    cls = module.DataHandler
    begin, epochs = cls.__init__, cls.enumerate_epochs

    @functools.wraps(begin)
    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        if (model := kwargs.get("model")) is not None:
            _handlers[model] = weakref.ref(self)

    @functools.wraps(epochs)
    def followed(self: Any) -> Iterator[tuple[int, Any]]:
        global _unread  # noqa: PLW0603
        session, fit = _present(), None if _unread is None else _unread()
        if session is None or fit is None or fit.handler is not self or not session.trains_with(fit):
            found: Iterator[tuple[int, Any]] = epochs(self)
            return found
        _unread = None
        session.begin_in_keras()
        return fit.epochs(epochs)

    if _MARK not in cls.__dict__:
        setattr(cls, _MARK, True)
        cls.__init__, cls.enumerate_epochs = initialize, followed


# Where a Keras restores and saves: the module, the class, its methods, and its attribute that has the model.
_BACKUPS = {
    False: ("{package}.distribute.worker_training_state", "WorkerTrainingState", "restore", "back_up", "_model"),
    True: ("{package}.backup_and_restore", CLASS, "_load_model", "_save_model", "model"),
}


def _extend_backups(module: str, name: str, restore: str, save: str, model: str, package: str) -> None:
    """Extend, once, where Keras restores and saves its backups."""
    cls = getattr(sys.modules[module.format(package=package)], name)
    if _MARK in cls.__dict__:
        return
    own_restore, own_save = getattr(cls, restore), getattr(cls, save)

    @functools.wraps(own_restore)
    def restored(self: Any) -> Any:
        session = _session_of(getattr(self, model))
        return True if session is not None and session.restore(self) else own_restore(self)

    @functools.wraps(own_save)
    def saved(self: Any, *args: Any, **kwargs: Any) -> Any:
        session, own = _session_of(getattr(self, model)), functools.partial(own_save, self, *args, **kwargs)
        return None if session is not None and session.defers(own) else own()

    setattr(cls, _MARK, True)
    setattr(cls, restore, restored)
    setattr(cls, save, saved)


def _extend_tensorflow() -> None:
    """Extend, once, what a `fit` must notice of TensorFlow."""
    variable_count.extend()
    if random_numbers.SURFACE.holds():
        random_numbers.extend()
