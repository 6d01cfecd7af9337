"""Keeps the final state of Keras' `fit` until the job has ended, so that a failure after `fit` repeats no training.

BackupAndRestore deletes its backup when `fit` ends. Instead, this module turns the backup into a copy
(finished_copy.py) with the state after all callbacks and the History. The same call of `fit` (call_site.py) in a
restarted process finds the copy, restores the state, trains nothing and returns that History. Any other `fit` runs as
usual.

All members of a MultiWorkerMirroredStrategy must decide alike, or their collectives hang: the chief looks for the copy
and tells the others by an all-reduce sum. It must never fail a training: after an error, Keras runs as usual.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import call_site, finished_copy
from .keras_backup import Backup, find_backup
from .keras_hook import EPOCHS_DONE

VISIBLE_SECONDS = 60.0  # for all members to see a copy that the chief sees: NFS may show new names that late
_FIT = "_tftraining_fit"


@dataclass
class Keeper:
    """Keeps and finds the finished fits of this process. `start` identifies this start of the program."""

    uid: str
    file: str
    start: str
    variables: str
    takes_part: Callable[[], bool]  # whether this process trains: the program may have several
    own_copies: set[str] = field(default_factory=set)  # the copies that this process has made

    def begin(self, callbacks: Any) -> Fit | None:
        """Call before `fit` begins; None if its final state is not kept."""
        try:
            backup = find_backup(callbacks) if self.takes_part() else None
            if backup is None:
                return None
            if not backup.is_local:
                _log(f"does not save the end of this fit: its backup is not in files but in {backup.path}")
                return None
            return self._agree_on_fit(callbacks, backup)
        except Exception as error:
            _log(f"cannot save the end of this fit: {_describe(error)}")
            return None

    def _agree_on_fit(self, callbacks: Any, backup: Backup) -> Fit | None:
        """The Fit as the chief decides for all. Its sum: 0 keeps nothing, 1 means no copy, n + 1 means copy n."""
        identity = self._identify(callbacks, backup) if backup.writes else ""
        number = backup.sum_over_members(1 + self._find_copy(backup, identity) if identity else 0)
        if not number:
            return None
        fit = Fit(self, callbacks, backup, identity)
        if number > 1:
            path = finished_copy.copy_path(backup.path, number - 1)
            mark = finished_copy.wait_for_mark(path, self.uid, VISIBLE_SECONDS)
            if backup.sum_over_members(int(mark is not None)) == backup.workers:
                fit.copy, fit.mark = path, mark or {}
        return fit

    def _identify(self, callbacks: Any, backup: Backup) -> str:
        """The identity of the call; "" if unknown. Never raises: the other members wait for the chief's sum."""
        try:
            epochs = (getattr(callbacks, "params", None) or {}).get("epochs")
            return call_site.identity(sys._getframe(), self.variables, epochs, backup.path, backup.shapes())
        except Exception as error:
            _log(f"cannot save the end of this fit: {_describe(error)}")
            return ""

    def _find_copy(self, backup: Backup, identity: str) -> int:
        """The number of this call's copy, 0 for none; repairs or removes copies without a valid mark for this job."""
        found = 0
        try:
            for path in finished_copy.copies(backup.path):
                mark = finished_copy.read_mark(path)
                if mark is None or mark.get("uid") != self.uid:
                    self._repair_or_remove(path, backup, mark is None)
                elif mark.get("identity") == identity and mark.get("start") != self.start:
                    finished_copy.add_to_list(path, self.file)
                    found = finished_copy.copy_number(path)
        except Exception as error:
            _log(f"cannot read the finished fits beside {backup.path}: {_describe(error)}")
        return found

    def _repair_or_remove(self, path: str, backup: Backup, unmarked: bool) -> None:
        """Rename an unmarked copy back to the backup, for its program ended while making it; remove any other copy."""
        if unmarked and path not in self.own_copies and not os.path.lexists(backup.path):
            os.rename(path, backup.path)
        else:
            finished_copy.remove(path)


class Fit:
    """One `fit` of this process; `found` is the path of the copy by an earlier process, "" if `fit` must train."""

    def __init__(self, keeper: Keeper, callbacks: Any, backup: Backup, identity: str) -> None:
        self.copy = ""
        self.mark: Mapping[str, Any] = {}
        self._keeper = keeper
        self._callbacks = callbacks
        self._backup = backup
        self._identity = identity

    def after_begin(self) -> bool:
        """Call after all callbacks, when Keras has restored its backup; whether the final state can be kept."""
        try:
            self._backup.after_begin()
        except Exception as error:  # a user-defined BackupAndRestore
            _log(f"cannot save the end of this fit: {_describe(error)}")
            return False
        if self.copy:
            self._restore()
        return True

    def _restore(self) -> None:
        """Restore the copy. Raises Keras' errors, for a half-restored state is unusable; the next start ignores it."""
        try:
            self._backup.restore(os.path.join(self.copy, finished_copy.STATE), int(self.mark["epochs"]))
        except Exception:
            if self._backup.writes:
                finished_copy.drop_mark(self.copy)
            raise
        setattr(self._callbacks, EPOCHS_DONE, self.mark["done"])
        _log(f"this fit finished before the restart, after epoch {self.mark['done']}; restoring its end")

    def end(self, method: Callable[..., Any], logs: Any) -> None:
        """Run Keras' on_train_end, the `method`, then keep or return the final state."""
        if self.copy:
            with self._backup.without_deletion():
                method(self._callbacks, self.mark["logs"] or logs)
            self._restore_history()
        else:
            with self._backup.without_deletion():
                method(self._callbacks, logs)
            self._keep_state(logs)

    def _restore_history(self) -> None:
        """Restore the History that `fit` returns, and the model attributes that the end of `fit` sets."""
        history = getattr(self._callbacks, "_history", None)
        if history is not None:
            history.history = dict(self.mark["history"])
            history.epoch = list(self.mark["epoch"])
        self._backup.after_end(bool(self.mark["stopped"]))

    def _keep_state(self, logs: Any) -> None:
        """Make the copy, all members together; if the chief cannot, delete the backup as Keras would."""
        backup = self._backup
        path = self._make_directory() if backup.writes else ""
        try:
            # All wait for the mark: a member that fails right after `fit` would end the others before it is written.
            kept = backup.sum_over_members(int(bool(path))) and backup.sum_over_members(int(self._save(path, logs)))
        except Exception as error:
            return _log(f"a member was lost; the next start resumes from the backup: {_describe(error)}")
        if not backup.writes:
            return None
        return finished_copy.keep_state(path) if kept else self._delete_as_keras_does(path)

    def _save(self, path: str, logs: Any) -> bool:
        """Save the state; True on the chief if the copy is complete. Never raises: the others wait for its sum."""
        try:
            self._backup.save(os.path.join(path, finished_copy.STATE) if path else "")
            if path:
                finished_copy.write_mark(path, self._mark_content(logs))
        except Exception as error:
            _log(f"cannot save the end of this fit: {_describe(error)}")
            return False
        return bool(path)

    def _make_directory(self) -> str:
        """Make the copy's directory, from the backup if Keras would delete that; return its path, "" if it cannot."""
        backup, keeper = self._backup, self._keeper
        try:
            existing = finished_copy.copies(backup.path)
            path = finished_copy.copy_path(backup.path, 1 + max(map(finished_copy.copy_number, existing), default=0))
            if len(existing) >= finished_copy.MAX_COPIES:
                return ""
            finished_copy.add_to_list(path, keeper.file)
            keeper.own_copies.add(path)
            if backup.deletes and os.path.isdir(backup.path):
                os.rename(backup.path, path)
            else:
                os.makedirs(path)
        except Exception as error:
            _log(f"cannot save the end of this fit: {_describe(error)}")
            return ""
        return path

    def _delete_as_keras_does(self, path: str) -> None:
        try:
            for each in (path, self._backup.path if self._backup.deletes and self._backup.writes else ""):
                if each:
                    finished_copy.remove(each)
        except OSError as error:
            _log(f"{error.filename}: {error.strerror}")

    def _mark_content(self, logs: Any) -> dict[str, Any]:
        """The content of the mark."""
        history = getattr(self._callbacks, "_history", None)
        epochs = (getattr(self._callbacks, "params", None) or {}).get("epochs") or 0
        epoch = plain(list(getattr(history, "epoch", ())))
        return {
            "uid": self._keeper.uid,
            "start": self._keeper.start,
            "identity": self._identity,
            "epochs": int(epochs),
            "done": epoch[-1] + 1 if epoch else int(epochs),
            "history": plain(getattr(history, "history", {})),
            "epoch": epoch,
            "logs": plain(logs),
            "stopped": self._backup.has_stopped(),
        }


def make_keeper(fit_settings: str, environment: Mapping[str, str], takes_part: Callable[[], bool]) -> Keeper:
    """This process's keeper. `fit_settings`: the launcher's, as JSON; `environment`: the process's at its start."""
    settings = json.loads(fit_settings)
    start = f"{settings['launcher']} {environment.get('TFTRAINING_ROUND', '')}"
    variables = call_site.environment_fingerprint(environment)
    return Keeper(str(settings["uid"]), str(settings["file"]), start, variables, takes_part)


def extend(keeper: Keeper, cls: Any) -> None:
    """Extend Keras' CallbackList class."""
    begin, end = cls.on_train_begin, cls.on_train_end

    @functools.wraps(begin)
    def on_train_begin(self: Any, logs: Any = None) -> None:
        fit = keeper.begin(self)
        begin(self, logs)
        setattr(self, _FIT, fit if fit is not None and fit.after_begin() else None)

    @functools.wraps(end)
    def on_train_end(self: Any, logs: Any = None) -> None:
        fit = self.__dict__.pop(_FIT, None)
        end(self, logs) if fit is None else fit.end(end, logs)

    cls.on_train_begin, cls.on_train_end = on_train_begin, on_train_end


def plain(value: Any) -> Any:
    """A value as JSON types: NumPy numbers and tensors become floats or lists."""
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    array = value.numpy() if hasattr(value, "numpy") else value
    return plain(array.tolist()) if hasattr(array, "tolist") else str(value)


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _log(text: str) -> None:
    sys.stderr.write(f"tftraining: {text}\n")
