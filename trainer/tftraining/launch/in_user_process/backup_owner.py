"""Binds a backup of BackupAndRestore to the call of `fit` that made it, by a record in the backup's directory.

A call does not resume from the backup that an earlier start of the same program made in another call: that becomes
`<backup>.aside-<name>` until its own call begins. Must never lose a backup, and never touch one without such a record:
of an edited program, of another job or of a call without identity.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from . import call_site, finished_copy

RECORD = "tftraining.json"


class Owner(NamedTuple):
    """The call of `fit` that makes a backup; `call` is its place, "" if that is unknown."""

    uid: str
    version: str  # of the program
    call: str
    start: str  # of the program

    @property
    def name(self) -> str:
        """The name of its backup while that is set aside."""
        return call_site.digest([self.uid, self.version, self.call])[:10]


def owner_of(backup: str) -> Owner:
    """Whose backup this is; of empty texts if that is unknown."""
    record = finished_copy.read_json(os.path.join(backup, RECORD))
    return Owner(*(str(record.get(name, "")) for name in Owner._fields))


def owns(call: Owner, owner: Owner) -> bool:
    """Whether the call has made the backup of this owner, in this start or an earlier one."""
    return bool(call.call) and owner[:3] == call[:3]


def is_of_another(call: Owner, owner: Owner) -> bool:
    """Whether another call of `fit`, in an earlier start, is known to have made the backup of this owner. Within one
    start Keras resumes from whatever backup there is."""
    same_program = owner[:2] == call[:2] and owner.start != call.start
    return same_program and "" not in (owner.call, call.call) and owner.call != call.call


def claim(backup: str, call: Owner, list_file: str, *, trains: bool) -> bool:
    """Make the backup this call's, before Keras restores it; whether one was moved. A call that has finished before
    and trains no more takes none."""
    owner = owner_of(backup)
    moves = is_of_another(call, owner)
    if moves:
        _set_aside(backup, _aside(backup, owner), list_file)
    if trains and not os.path.lexists(backup) and os.path.isdir(_aside(backup, call)):
        os.rename(_aside(backup, call), backup)
        moves = True
    if trains or owns(call, owner):
        finished_copy.write_json(os.path.join(backup, RECORD), call._asdict())
    return moves


def token(backup: str) -> int:
    """A number that tells whose backup it is, small enough for a sum over the members; 1 if that is unknown."""
    owner = owner_of(backup)
    return 2 + int(call_site.digest(owner)[:5], 16) if owner.uid else 1


def _aside(backup: str, owner: Owner) -> str:
    return f"{backup}.aside-{owner.name}"


def _set_aside(backup: str, path: str, list_file: str) -> None:
    if all(name.startswith(RECORD) for name in os.listdir(backup)):
        return finished_copy.remove(backup)  # its call has saved nothing
    finished_copy.add_to_list(path, list_file)
    finished_copy.remove(path)
    return os.rename(backup, path)
