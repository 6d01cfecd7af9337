"""Keeps the final state of Keras' `fit` until the job has ended, so that a failure after `fit` repeats no training.

BackupAndRestore deletes its backup when `fit` ends. Before that, this module makes a copy (finished_copy.py) with the
state after all callbacks, that of the callbacks themselves (callback_state.py), and the History. The same call of `fit`
(call_site.py) in a restarted process finds the copy, restores the state, trains nothing and returns that History. Any
other `fit` runs as usual, and does not resume from the backup that an earlier process made in a call that is known to
be another: that is set aside until its own call begins.

All members of a MultiWorkerMirroredStrategy must decide alike, or their collectives hang: the chief decides and tells
the others by an all-reduce sum. It must never fail a training: after an error, Keras runs as usual.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from . import backup_owner, call_site, finished_copy
from .backup_owner import Owner
from .keras_backup import KerasBackup, find_backup
from .memory_backup.callback_state import CallbackStates, keeping_rows
from .memory_backup.program_digest import distributions_digest, program_digest
from .memory_backup.random_numbers import OF_PROGRAM, of_model, of_program
from .tracker import EPOCHS_DONE

VISIBLE_SECONDS = 60.0  # for all members to see what the chief sees: NFS may show new names that late
_FIT = "_tftraining_fit"
ARRAYS = f"{finished_copy.STATE}.callbacks.npz"


class BackupNotSeenError(RuntimeError):
    """A member would restore a backup that the chief has moved, and train with other weights than the others."""


@dataclass
class Call:
    """A call of `fit` as the chief knows it; without an identity its end is not kept."""

    owner: Owner
    identity: str = ""
    functions: str = ""
    found: bool = False  # an earlier process has kept its end
    owns: bool = False  # the backup that is there


@dataclass
class Keeper:
    """Keeps and finds the finished fits of this process. `start` identifies this start of the program."""

    uid: str
    file: str
    start: str
    variables: str
    takes_part: Callable[[], bool]  # whether this process trains: the program may have several
    _begun: set[str] = field(default_factory=set)  # the identities of the calls of this process
    _told: set[str] = field(default_factory=set)

    def begin(self, callbacks: Any) -> Fit | None:
        """Call before `fit` begins; None if its final state is not kept."""
        try:
            backup = find_backup(callbacks) if self.takes_part() else None
            if backup is None or not backup.is_known():
                return None
            if not backup.is_local:
                _log(f"does not save the end of this fit: its backup is not in files but in {backup.path}")
                return None
            return self._agree_on_fit(callbacks, backup)
        except BackupNotSeenError:
            raise
        except Exception as error:
            _log(f"cannot save the end of this fit: {_describe(error)}")
            return None

    def _agree_on_fit(self, callbacks: Any, backup: KerasBackup) -> Fit | None:
        """The Fit as the chief decides for all."""
        call, moved = self._decide(callbacks, backup) if backup.writes else (self._unknown(), 0)
        name = call.identity[:10].rjust(10, "0")
        parts = [int(name[:5], 16), int(name[5:], 16)]  # a sum is of single precision
        keeps, found, high, low, moved = backup.sums(int(bool(call.identity)), int(call.found), *parts, moved)
        if moved:
            seen = finished_copy.wait_until(lambda: backup_owner.token(backup.path) == moved, VISIBLE_SECONDS)
            if backup.sums(int(bool(seen))) != [backup.workers]:
                raise BackupNotSeenError(f"not every member sees what the chief has moved to or from {backup.path}")
        if not keeps:
            return None
        fit = Fit(self, callbacks, backup, call, finished_copy.copy_path(backup.path, f"{high:05x}{low:05x}"))
        if found:
            mark = finished_copy.wait_until(lambda: finished_copy.read_mark(fit.path, self.uid), VISIBLE_SECONDS)
            fit.mark = mark if backup.sums(int(bool(mark))) == [backup.workers] else {}
        return fit

    def _decide(self, callbacks: Any, backup: KerasBackup) -> tuple[Call, int]:
        """The call, and a number that tells whose backup is there now, if one was moved (`backup_owner.token`). Never
        raises: the others wait for the chief's sum."""
        try:
            call = self._identify(callbacks, backup)
            call.found = self._find_copy(backup, call)
            call.owns = backup_owner.owns(call.owner, backup_owner.owner_of(backup.path))
            moved = backup_owner.claim(backup.path, call.owner, self.file, trains=not call.found)
            return call, backup_owner.token(backup.path) if moved else 0
        except Exception as error:
            _log(f"cannot save the end of this fit: {_describe(error)}")
            return self._unknown(), 0

    def _unknown(self, version: str = "") -> Call:
        return Call(Owner(self.uid, version, "", self.start))

    def _identify(self, callbacks: Any, backup: KerasBackup) -> Call:
        call = self._unknown(call_site.digest([program_digest(), distributions_digest()]))
        try:
            call.functions, place = call_site.place(sys._getframe())
        except call_site.UnknownCallError as error:
            self._tell_once(f"a failure after this fit repeats it, for it cannot be told from others: {error}")
            return call
        epochs = (getattr(callbacks, "params", None) or {}).get("epochs")
        call.owner = call.owner._replace(call=place)
        more = [call_site.program_arguments(), self.variables, epochs, backup.path, backup.shapes()]
        call.identity = call_site.digest([place, call.owner.version, more])
        return call

    def _find_copy(self, backup: KerasBackup, call: Call) -> bool:
        """Whether there is a copy of this call's end; removes copies without a valid mark for this job."""
        own: Mapping[str, Any] = {}
        changed = False
        for path in finished_copy.copies(backup.path):
            mark = finished_copy.read_mark(path, self.uid)
            if not mark:
                finished_copy.remove(path)
            elif mark.get("identity") == call.identity:
                own = mark
            elif mark.get("start") != self.start and mark.get("functions") == call.functions:
                changed |= mark.get("version") != call.owner.version
        if changed and not own:
            _log("a fit here has finished before, but the program or its packages have changed since: this one trains")
        return bool(call.identity) and self._use(backup, own, call)

    def _use(self, backup: KerasBackup, mark: Mapping[str, Any], call: Call) -> bool:
        """Use a copy of this identity, unless another call of the same start has it: then neither keeps its end."""
        path = finished_copy.copy_path(backup.path, call.identity)
        repeated = call.identity in self._begun or mark.get("repeated") or mark.get("start") == self.start
        self._begun.add(call.identity)
        if repeated:
            self._tell_once("a failure after this fit repeats it, for another call of fit cannot be told from it")
            finished_copy.remove(path)
            mark = {**self.about(call), "repeated": True}
            call.identity, call.owner = "", call.owner._replace(call="")
        if mark:
            finished_copy.add_to_list(path, self.file)
            finished_copy.write_mark(path, {**mark, "start": self.start})
        return bool(mark) and not repeated

    def about(self, call: Call) -> dict[str, Any]:
        """The part of a mark that identifies the call."""
        version = call.owner.version
        return {"uid": self.uid, "identity": call.identity, "functions": call.functions, "version": version}

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            _log(text)


class Fit:
    """One `fit` of this process; `mark` is that of the copy by an earlier process, empty if `fit` must train."""

    def __init__(self, keeper: Keeper, callbacks: Any, backup: KerasBackup, call: Call, path: str) -> None:
        self.mark: Mapping[str, Any] = {}
        self._keeper = keeper
        self._callbacks = callbacks
        self._backup = backup
        self._call = call
        self._variables: set[int] = set()  # by identity, what the program had made before this `fit`
        self._trainable: list[int] = []  # by identity, what is trained
        self._anew: list[str] = []  # the callbacks whose state is not kept
        self._states = CallbackStates(callbacks, self._anew.append)
        self._drawn = of_program()
        self.path = path

    def after_begin(self) -> bool:
        """Call after all callbacks, when Keras has restored its backup; whether the final state can be kept."""
        try:
            self._backup.after_begin()
            self._variables = {id(each) for each in self._backup.variables()}
            self._trainable = self._backup.trainable()
        except Exception as error:  # a user-defined BackupAndRestore
            _log(f"cannot save the end of this fit: {_describe(error)}")
            return False
        if self.mark:
            self._restore()
        return True

    def _restore(self) -> None:
        """Restore the copy. Raises Keras' errors, for a half-restored state is unusable; the next start ignores it."""
        try:
            self._backup.restore(os.path.join(self.path, finished_copy.STATE), int(self.mark["epochs"]))
        except Exception:
            if self._backup.writes:
                finished_copy.remove(self.path)
            raise
        random = of_model(getattr(self._callbacks, "model", None))
        random.resume(self.mark.get("random") or [], within=False)
        setattr(self._callbacks, EPOCHS_DONE, self.mark["done"])
        _log(f"this fit finished before the restart, after epoch {self.mark['done']}; restoring its end")

    def end(self, method: Callable[..., Any], logs: Any) -> None:
        """Run Keras' on_train_end, the `method`, then keep or return the final state."""
        with nullcontext() if self.mark and self._call.owns else self._backup.without_deletion():
            method(self._callbacks, self.mark.get("logs") or logs)
        self._restore_history() if self.mark else self._keep_state(logs)

    def _restore_history(self) -> None:
        """Restore the History that `fit` returns, and the model attributes that the end of `fit` sets."""
        history = getattr(self._callbacks, "_history", None)
        if history is not None:
            history.history = dict(self.mark["history"])
            history.epoch = list(self.mark["epoch"])
        self._states.restore_end(os.path.join(self.path, ARRAYS), self.mark.get("callbacks"))
        self._backup.after_end(bool(self.mark["stopped"]))

    def _keep_state(self, logs: Any) -> None:
        """Make the copy, all members together, then delete the backup as Keras would."""
        backup = self._backup
        try:
            # All wait for the mark: a member that fails right after `fit` would end the others before it is written.
            kept = any(backup.sums(int(self._make_room()))) and any(backup.sums(int(self._save(logs))))
        except Exception as error:
            return _log(f"a member was lost; the next start resumes from the backup: {_describe(error)}")
        for path in [backup.path] * backup.deletes + [self.path] * (not kept) if backup.writes else []:
            try:
                finished_copy.remove(path)
            except OSError as error:
                _log(f"{error.filename}: {error.strerror}")
        return None

    def _make_room(self) -> bool:
        """Make the copy's directory; whether this member is the one that writes, and can."""
        try:
            if not self._backup.writes or len(finished_copy.copies(self._backup.path)) >= finished_copy.MAX_COPIES:
                return False
            if why := self._changes_model():
                _log(f"a failure after this fit repeats it, for {why}")
                return False
            finished_copy.add_to_list(self.path, self._keeper.file)
            finished_copy.remove(self.path)
            os.makedirs(self.path)
        except Exception as error:
            _log(f"cannot save the end of this fit: {_describe(error)}")
            return False
        return True

    def _changes_model(self) -> str:
        """What the training has changed of the model itself, which the state does not bring back; "" for nothing."""
        if new := [each.name for each in self._backup.variables() if id(each) not in self._variables]:
            return f"only its training creates a variable: {new[0]}"
        return "its training has changed which variables are trained" * (self._trainable != self._backup.trainable())

    def _save(self, logs: Any) -> bool:
        """Save the state; True on the chief if the copy is complete. Never raises: the others wait for its sum."""
        try:
            self._backup.save(os.path.join(self.path, finished_copy.STATE) if self._backup.writes else "")
            content = self._mark_content(logs)  # all members: a callback may read what is a collective
            if self._backup.writes:
                self._states.write_arrays(os.path.join(self.path, ARRAYS))
                finished_copy.write_mark(self.path, content)
                self._anew += [OF_PROGRAM] * (self._drawn != of_program())
                if self._anew:
                    _log(f"a failure after this fit does not restore the state of {', '.join(self._anew)}")
        except Exception as error:
            _log(f"cannot save the end of this fit: {_describe(error)}")
            return False
        return self._backup.writes

    def _mark_content(self, logs: Any) -> dict[str, Any]:
        history = getattr(self._callbacks, "_history", None)
        epochs = (getattr(self._callbacks, "params", None) or {}).get("epochs") or 0
        epoch = list(getattr(history, "epoch", ()))
        return {
            **self._keeper.about(self._call),
            "start": self._keeper.start,
            "epochs": int(epochs),
            "done": epoch[-1] + 1 if epoch else int(epochs),
            "history": getattr(history, "history", {}),
            "epoch": epoch,
            "logs": logs,
            "stopped": self._backup.has_stopped(),
            # A next fit of this model goes on from there.
            "random": of_model(getattr(self._callbacks, "model", None)).offsets(),
            "callbacks": self._states.end_states(),
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
        with keeping_rows(self) if fit is not None and fit.mark else nullcontext():
            begin(self, logs)
        setattr(self, _FIT, fit if fit is not None and fit.after_begin() else None)

    @functools.wraps(end)
    def on_train_end(self: Any, logs: Any = None) -> None:
        fit = self.__dict__.pop(_FIT, None)
        end(self, logs) if fit is None else fit.end(end, logs)

    cls.on_train_begin, cls.on_train_end = on_train_begin, on_train_end


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _log(text: str) -> None:
    sys.stderr.write(f"tftraining: {text}\n")
