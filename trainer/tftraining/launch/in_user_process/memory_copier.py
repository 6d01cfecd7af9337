"""Makes the copies of one training in memory, whatever trains: when, into which file, and the agreement about them.

The state is an object with the size of its values and methods that copy them (keras_state.py). All members must decide
alike, or their collectives hang: what decides whether `sums` is called is equal for all, and a member that fails votes
"no". It must never fail a training: after an error there are no more copies.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from . import backup_interval, memory_copy
from .backup_settings import Settings
from .member_sums import Sums

_OFF = backup_interval.LARGEST + 1  # the vote against any further copy


class State(Protocol):
    """The values that a copy has, in `size` bytes."""

    size: int

    def grown(self) -> bool:
        """Whether there are more values than when `size` was measured."""

    def views(self, buffer: Any, start: int) -> list[Any]:
        """What `copy_to` and `restore_from` need to use this buffer from byte `start` on."""

    def copy_to(self, views: list[Any]) -> None:
        """Copy all values into the buffer."""

    def restore_from(self, views: list[Any]) -> None:
        """Take all values from the buffer, and share no memory with it."""


class Copier:
    """The copies of one training of this process.

    `state` and `identity` (of the training, equal for all members and in each process of them) are absent if
    `why_not` says why this member can make none. `sums`: the sums over all `members`, a collective.
    """

    def __init__(self, settings: Settings, members: int, sums: Sums, log: Callable[[str], None]) -> None:
        self._settings = settings
        self._members = members
        self._sums = sums
        self._log = log
        self._state: State | None = None
        self._identity = ""
        self._slots: memory_copy.Slots | None = None
        self._views: dict[int, list[Any]] = {}
        self._reserving: threading.Thread | None = None
        self._measured = backup_interval.Measured()
        self._exponent = backup_interval.FIRST
        self._copies = 0
        self.agreed = False  # all members make copies
        self.why_not = ""  # why there are none; "" while there are
        self.resumed: dict[str, Any] | None = None  # the head of the restored copy
        self.restored_in = 0.0

    # The begin: either `cannot` or `use`, then `agree`, then `take` if that says so, then `begin`.

    def cannot(self, why: str) -> None:
        """Say why this member can make no copies, before `agree`."""
        self.why_not = why

    def use(self, state: State, identity: str) -> None:
        """Set the state, and the identity of the training: equal for all members, and after a restart."""
        self._state, self._identity = state, identity

    def find(self) -> memory_copy.Copy | None:
        """This member's file of the copy that all hold; None without one, or if it is of another training."""
        if self._settings.restore is None or self._state is None:
            return None
        try:
            copy = memory_copy.Copy(self._settings.directory, *self._settings.restore)
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._log(f"the copy in memory cannot be read: {describe(error)}")
            return None
        if copy.head.get("identity") == self._identity and len(copy.state) == self._state.size:
            return copy
        copy.close()
        self._log("the copy in memory is of another training, another program or a gang of another size")
        return None

    def agree(self, found: memory_copy.Copy | None, newer: bool, number: int = 0) -> int | None:
        """Whether all make copies, and whether all restore what they have `found`: a collective of all members.

        `newer`: this member knows the storage, and the copy is not older. The answer is the `number` of such a member
        if all restore the copy, and None if none does.
        """
        exponent = found.exponent if newer and found is not None else 0
        told = self._sums([float(each) for each in (not self.why_not, found is not None, newer, number, exponent)])
        self.agreed = round(told[0]) == self._members
        if not self.agreed and not self.why_not:
            self.why_not = "another member cannot"
        if not self.agreed or round(told[1]) != self._members or not round(told[2]):
            return None
        self._exponent = round(told[4])
        return round(told[3])

    def take(self, found: memory_copy.Copy) -> None:
        """Restore the copy. Its errors end the program: the state is half restored, and the others have theirs."""
        assert self._state is not None
        begin = time.monotonic()
        views = self._state.views(found.state, 0)
        self._state.restore_from(views)
        views.clear()
        self.resumed = found.head
        self.restored_in = time.monotonic() - begin

    def begin(self) -> None:
        """Reserve the memory of the files, beside the training."""
        assert self._state is not None
        kept = self._settings.restore if self.resumed is not None else None
        self._slots = memory_copy.Slots(self._settings.directory, self._state.size, kept)
        self._reserving = threading.Thread(target=self._reserve, name="tftraining-memory", daemon=True)
        self._reserving.start()

    def _reserve(self) -> None:
        assert self._slots is not None
        try:
            self._slots.reserve()
        except Exception as error:  # the others make copies until the next vote
            self.why_not = f"no memory for two copies: {describe(error)}"

    # The steps.

    def due(self, before: int, after: int) -> bool:
        """Whether a copy is due after the step `after`, when the one before the last batch was `before`."""
        return backup_interval.crosses(before, after, self._exponent)

    def measure_from(self, step: int) -> None:
        """Measure the speed of the training from the end of this step on."""
        self._measured.start(time.monotonic(), step)

    def measure_to(self, step: int) -> None:
        """Measure it up to the end of this step: something else follows."""
        self._measured.stop(time.monotonic(), step)

    def copy(self, step: int, where: Mapping[str, Any]) -> None:
        """Make a copy, and vote if it is time to: all members call it at the same steps. `where`: for the head."""
        begin = time.monotonic()
        self._measured.stop(begin, step)
        try:
            self._write(step, where)
        except Exception as error:
            self.why_not = self.why_not or describe(error)
        self._copies += 1
        self._measured.blocked(time.monotonic() - begin)
        if backup_interval.votes_after(self._copies):
            self._vote()
        self._measured.start(time.monotonic(), step)

    def _write(self, step: int, where: Mapping[str, Any]) -> None:
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
        told = {"identity": self._identity, "step": step, "exponent": self._exponent, "time": time.time()}
        self._slots.commit(self._settings.round, step, {**where, **told})

    def _vote(self) -> None:
        """Agree on the interval by the largest vote, a collective: all members call it after the same copies."""
        own = _OFF if self.why_not else self._measured.exponent(self._exponent, self._settings.share)
        told = self._sums([float(place == own) for place in range(_OFF + 1)])
        exponent = max(place for place, votes in enumerate(told) if round(votes))
        if exponent == _OFF:
            self.end(self.why_not or "another member cannot")
        elif exponent != self._exponent:
            self._exponent = exponent

    # The end.

    def end(self, why: str) -> None:
        """Make no more copies, and free their memory. `why`: for the log; "" if the training is over."""
        if why:
            self._log(f"no backups in memory: {why}")
        self.agreed = False
        self._views.clear()
        if self._reserving is not None:
            self._reserving.join()
        try:
            if self._slots is not None:
                self._slots.discard()
        except OSError as error:
            self._log(f"{error.filename}: {error.strerror}")


class Unsupported(Exception):
    """The state cannot be copied; the message says why."""


def describe(error: Exception) -> str:
    """The error in one line."""
    return f"{type(error).__name__}: {error}".splitlines()[0]
