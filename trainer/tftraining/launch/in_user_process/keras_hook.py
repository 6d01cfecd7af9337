"""Tracks Keras `fit` from inside the training process, without changes to user code.

Extends Keras' CallbackList as soon as its module is imported, in tf_keras, Keras 3 and Keras 2. User code sees no
additional callback, and logs stay on their device. It must never disturb the training (see tracker.py), nor import
Keras.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .import_hook import after_import
from .memory_backup import input_position, shuffle_seed
from .memory_backup.copy_file import VARIABLE as MEMORY_BACKUP
from .surface import Part, Surface
from .tracker import EPOCHS_DONE, STEPS_DONE, Tracker

MODULES = frozenset(
    {
        "tf_keras.src.callbacks",
        "tf_keras.callbacks",
        "keras.src.callbacks.callback_list",
        "keras.src.callbacks",
        "keras.callbacks",
    }
)
BACKUP, BACKUP_METHOD = "BackupAndRestore", "_backup"
# The methods that progress, finished fits and backups in memory all wrap, with their parameters.
CALLBACKS = Surface(
    "neither progress nor backups in memory nor finished fits of Keras",
    tuple(
        Part("{module}", f"CallbackList.{method}", takes)
        for method, takes in (
            *(("on_train_begin", "self logs"), ("on_train_end", "self logs")),
            *(("on_epoch_begin", "self epoch logs"), ("on_epoch_end", "self epoch logs")),
            *(("on_train_batch_begin", "self batch logs"), ("on_train_batch_end", "self batch logs")),
        )
    ),
)
# The counter of the steps of a `fit` of Keras 2, and the method that saves its backups. Keras 3 counts no steps.
COUNTERS = Surface(
    "no progress of Keras",
    (
        Part("{package}.engine.training", "Model.fit", uses="_train_counter"),
        Part("{package}.callbacks", f"{BACKUP}.{BACKUP_METHOD}", "self epoch batch"),
    ),
)
_MARK, _SAVES = "_tftraining_extended", "_tftraining_follows_saves"


def install(
    tracker: Tracker | None,
    fit_settings: str,
    environment: Mapping[str, str],
    look_at: Callable[[Sequence[Any]], None] | None = None,
) -> None:
    """Extend Keras, now or when it is imported. `fit_settings`: those of the launcher for finished fits, as JSON,
    or "". `environment`: the process's at its start, because the program may have changed it since. `look_at`
    gets the callbacks of each `fit`."""
    takes_part = tracker.claim.takes_part if tracker is not None else functools.partial(_is, os.getpid())
    keepers = [functools.partial(_keep_finished_fits, fit_settings, environment, takes_part)] if fit_settings else []
    if memory_settings := environment.get(MEMORY_BACKUP):
        keepers.append(functools.partial(_back_up_in_memory, memory_settings, environment, takes_part))
        input_position.install()
        shuffle_seed.install(memory_settings, environment.get("TF_CONFIG", ""))
    if keepers or tracker is not None:
        after_import(MODULES, functools.partial(_extend, keepers, tracker, look_at))


def _is(pid: int) -> bool:
    return os.getpid() == pid


def _extend(
    keepers: Sequence[Callable[[Any], None]],
    tracker: Tracker | None,
    look_at: Callable[[Sequence[Any]], None] | None,
    module: Any,
) -> None:
    """Extend the CallbackList that `module` has, once; first the keepers, so that the tracker sees the restored
    state."""
    cls = module.__dict__.get("CallbackList")
    if isinstance(cls, type) and _MARK in cls.__dict__:
        return
    if not CALLBACKS.holds({module.__name__: module}, module=module.__name__):
        return
    setattr(cls, _MARK, True)
    for keep in keepers:
        keep(cls)
    if tracker is not None:
        _report_progress(tracker, cls)
    if look_at is not None:
        _call_after(cls, "on_train_begin", lambda callbacks, *_, **__: look_at(callbacks.callbacks))


def _keep_finished_fits(
    fit_settings: str, environment: Mapping[str, str], takes_part: Callable[[], bool], cls: Any
) -> None:
    """Extend a CallbackList to keep the final state of `fit` until the job has ended."""
    try:
        from . import finished_fit  # noqa: PLC0415  # a process without Keras need not import it

        finished_fit.extend(finished_fit.make_keeper(fit_settings, environment, takes_part), cls)
    except Exception as error:
        sys.stderr.write(f"tftraining: cannot save the end of Keras fit: {type(error).__name__}: {error}\n")


def _back_up_in_memory(
    memory_settings: str, environment: Mapping[str, str], takes_part: Callable[[], bool], cls: Any
) -> None:
    """Extend a CallbackList to back up the state of `fit` in memory."""
    try:
        from .memory_backup import fit_hook, settings  # noqa: PLC0415  # a process without Keras need not import them

        fit_hook.extend(settings.CopySettings(memory_settings, environment), takes_part, cls)
    except Exception as error:
        sys.stderr.write(f"tftraining: no backups in memory: {type(error).__name__}: {error}\n")


def _report_progress(tracker: Tracker, cls: Any) -> None:
    """Extend a CallbackList to report progress."""
    try:
        package, _, inner = cls.__module__.rpartition(".callbacks")  # of Keras 2; Keras 3 has a module within
        begin = functools.partial(_on_train_begin, tracker, "" if inner else package)
        _call_after(cls, "on_train_begin", begin)
        _call_after(cls, "on_epoch_begin", functools.partial(_on_epoch_begin, tracker))
        _call_after(cls, "on_epoch_end", functools.partial(_on_epoch_end, tracker))
        _call_after(cls, "on_train_end", functools.partial(_on_train_end, tracker))
        _report_batches(cls, tracker)
    except Exception as error:
        sys.stderr.write(f"tftraining: cannot track the progress of Keras: {type(error).__name__}: {error}\n")


def _call_after(cls: type, name: str, action: Callable[..., None]) -> None:
    """Wrap the method to call `action` afterwards with the same arguments."""
    method = getattr(cls, name)

    @functools.wraps(method)
    def extended(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        action(self, *args, **kwargs)
        return result

    setattr(cls, name, extended)


def _report_batches(cls: Any, tracker: Tracker) -> None:
    """Wrap the two methods that run at every step, with the least overhead."""
    begin, end = cls.on_train_batch_begin, cls.on_train_batch_end
    begin_batch, end_batch = tracker.begin_batch, tracker.end_batch
    begin_step, end_step = tracker.own_time.begin_step, tracker.own_time.end_step

    @functools.wraps(begin)
    def on_train_batch_begin(self: Any, batch: int, logs: Any = None) -> None:
        begin_batch(batch)
        begin(self, batch, logs)
        begin_step(batch)

    @functools.wraps(end)
    def on_train_batch_end(self: Any, batch: int, logs: Any = None) -> None:
        end_step(batch)
        end(self, batch, logs)
        end_batch(batch)

    cls.on_train_batch_begin = on_train_batch_begin
    cls.on_train_batch_end = on_train_batch_end


def _on_train_begin(tracker: Tracker, package: str, callbacks: Any, logs: Any = None) -> None:
    """Report the start of `fit`. Runs after all callbacks, so BackupAndRestore has already restored the counter."""
    if package and not COUNTERS.holds(package=package):
        return tracker.leave_fit()
    params = getattr(callbacks, "params", None) or {}
    done = _counted(callbacks)
    done = _restored(callbacks, params.get("steps")) if done is None else done
    tracker.begin_fit(done, params.get("epochs"), params.get("steps"))
    tracker.own_time.begin_fit(callbacks.model)
    try:
        _report_backups(tracker, callbacks)
    except Exception as error:
        sys.stderr.write(f"tftraining: cannot track backups: {type(error).__name__}: {error}\n")
    return None


def _restored(callbacks: Any, steps: int | None) -> int | None:
    """The steps of the epochs that Keras 3's BackupAndRestore has restored; None if it has restored none."""
    is_backed_up = any(cls.__name__ == BACKUP for each in callbacks.callbacks for cls in type(each).__mro__)
    epochs = getattr(callbacks.model, "_initial_epoch", None) if is_backed_up else None
    return epochs * steps if isinstance(epochs, int) and steps and not isinstance(epochs, bool) else None


def _report_backups(tracker: Tracker, callbacks: Any) -> None:
    """Report the backup that tf_keras' BackupAndRestore has restored, and each one that it saves.

    Keras 3 always restarts the epoch, even from a backup in its middle, so there only whole epochs are progress.
    """
    classes = {cls for each in callbacks.callbacks for cls in type(each).__mro__ if cls.__name__ == BACKUP}
    for cls in [each for each in classes if BACKUP_METHOD in each.__dict__]:
        tracker.saved_fit(_counted(callbacks) or None)
        if _SAVES not in cls.__dict__:
            _call_after(cls, BACKUP_METHOD, lambda callback, *_, **__: tracker.saved_fit(_counted(callback)))
            setattr(cls, _SAVES, True)


def _on_epoch_begin(tracker: Tracker, callbacks: Any, epoch: int, logs: Any = None) -> None:
    params = getattr(callbacks, "params", None) or {}
    tracker.own_time.begin_epoch()
    tracker.begin_epoch(epoch, _counted(callbacks), params.get("steps"))


def _on_epoch_end(tracker: Tracker, callbacks: Any, epoch: int, logs: Mapping[str, object] | None = None) -> None:
    tracker.end_epoch(logs)


def _on_train_end(tracker: Tracker, callbacks: Any, logs: Any = None) -> None:
    params = getattr(callbacks, "params", None) or {}
    tracker.own_time.end_fit()
    tracker.end(getattr(callbacks, EPOCHS_DONE, params.get("epochs")))


def _counted(callbacks: Any) -> int | None:
    """The steps of this `fit` as its model counts them, and BackupAndRestore restores them, or its copies in memory;
    None in Keras 3 without copies. Never the iterations of an optimizer: a model may have several, or one that another
    `fit` has used."""
    try:
        return int(callbacks.model._train_counter.numpy())
    except Exception:
        return getattr(callbacks, STEPS_DONE, None)
