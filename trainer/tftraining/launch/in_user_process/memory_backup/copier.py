"""Makes the copies of one training in memory, whatever trains: when, into which file, and the agreement about them.

The state is an object with the size of its values and methods that copy them (keras_state.py). All members must decide
alike, or their collectives hang: what decides whether `sums` is called is equal for all, and a member that fails votes
"no". It must never fail a training: after an error there are no more copies.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ..shared.copy_reasons import ENDED, OTHER_MEMBER, WAITS
from . import copy_file, interval, room
from .copy_report import CopyReport, without_copies
from .copy_request import CopyRequest
from .member_sums import Sums, Totals
from .replica_digest import ReplicaDigests, Variables
from .settings import SOURCE, CopySettings
from .variable_values import Unsupported

_OFF = interval.LARGEST + 1  # the vote of a member that can make no further copy
FETCH_SECONDS = 660.0  # for the launcher to fetch the copy from another member: it gives up earlier
_awaited: set[tuple[str, int, int]] = set()  # the copies for which this process has waited


class CopiedState(Protocol):
    """The values that a copy has, in `size` bytes."""

    size: int

    def complete(self) -> None:
        """Called when the training has created all its variables: measures `size` anew."""

    def grown(self) -> bool:
        """Whether there are other values than when `size` was measured."""

    def is_finite(self) -> bool:
        """Whether all values are finite numbers."""

    def leave_averages(self) -> None:
        """Not all members gather the averages of tf_keras (an earlier launcher's do not): leave them out of `gather`,
        or its collective would wait for ever."""

    def draws_apart(self) -> bool:
        """Whether members may have drawn more random numbers than others: the shapes depend on the batch."""

    def gather_draws(self) -> None:
        """All members gather how many random numbers each has drawn."""

    def gathers(self) -> bool:
        """Whether members have values of their own, which a copy of another member has only behind `gather`."""

    def gather(self, totals: Totals) -> None:
        """Learn the values of all members that the next copy has: a collective if `gathers`."""

    def views(self, buffer: Any, start: int) -> list[Any]:
        """What `copy_to` and `restore_from` need to use this buffer from byte `start` on."""

    def copy_to(self, views: list[Any]) -> None:
        """Copy all values into the buffer."""

    def replicated(self, views: list[Any]) -> Variables:
        """The variables in these views that all replicas hold alike, or ought to."""

    def restore_from(self, views: list[Any], own: bool, all_own: bool) -> None:
        """Take all values from the buffer, and share no memory with it. `own`: this member has made the copy;
        `all_own`: each member has made its own."""


class Copier:
    """The copies of one training of this process, one of `members`. `sums` and `totals`: over all of them, collectives.

    The order of the calls: `use`, or set `why_not`; `agree`, and if `agreed`: `find`, `choose`, `take` if that says so,
    and `begin`; after each batch `due` and `asked`, and then `copy` or `answer`; `end`.
    """

    def __init__(
        self, settings: CopySettings, members: int, sums: Sums, totals: Totals, log: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._members = members
        self.sums = sums
        self.totals = totals
        self._log = log
        self._state: CopiedState | None = None
        self.identity = ""
        self._request = CopyRequest(settings.directory)
        self._slots: copy_file.Slots | None = None
        self._views: dict[int, list[Any]] = {}
        self._replicas: dict[int, ReplicaDigests] = {}  # in each of these views
        self._compares = True  # nothing has failed in it
        self._summarized = 0  # the request that the last summary has answered
        self._aside_for = 0  # the request for which the last copy was set aside
        self._aside: list[tuple[int, int, Sequence[str]]] = []  # what is set aside: round, step and digests
        self._new_file = False  # the last copy was the first one of this process into its file
        self._reserving: threading.Thread | None = None
        self.schedule = interval.Schedule()
        self._own = self._all_own = True  # the restored copy is this member's, and each member has its own
        self._judged = False  # whether there is memory
        self._newest = -1  # the step of the newest copy of this process
        self._blocked = 0.0
        self.report = CopyReport(settings.directory, settings.round)
        self.not_stored: Sequence[str] = ()  # what a restart without a copy does not restore
        self.agreed = False  # all members make copies
        self.why_not = ""  # why there are none; "" while there are
        self.resumed: dict[str, Any] | None = None  # the head of the restored copy
        self.restored_in = 0.0

    # The begin.

    def use(self, state: CopiedState, identity: str) -> None:
        """Set the state, and the identity of the training: equal for all members, and after a restart."""
        self._state, self.identity = state, identity

    def agree(self, votes: Sequence[float] = ()) -> list[float]:
        """Whether all make copies: a collective of all members, equal for all. Returns the sums of the `votes`."""
        told = self.sums([float(not self.why_not), *votes, 1.0])  # an earlier launcher's program votes 0 at the end
        self.agreed = round(told[0]) == self._members
        if not self.agreed:
            self.why_not = self.why_not or OTHER_MEMBER
            self.report.tell(reason=self.why_not)
        elif round(told[1 + len(votes)]) != self._members and self._state is not None:
            self._state.leave_averages()
        return told[1 : 1 + len(votes)]

    def find(self) -> copy_file.Copy | None:
        """This member's file of the copy that all hold; None without one, or if it is of another training."""
        if self._settings.restore is None or self._state is None:
            return None
        if self._settings.fetching and not self._fetched(*self._settings.restore):
            return None
        try:
            copy = copy_file.Copy(self._settings.directory, *self._settings.restore)
        except FileNotFoundError:
            return None  # an earlier training of this process has begun copies of its own
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._log(f"the copy in memory cannot be read: {describe(error)}")
            return None
        if copy.head.get("identity") == self.identity and len(copy.state) >= self._state.size:
            return copy
        copy.close()
        self._log("the copy in memory is of another training or another program")
        return None

    def holds_copy_of_another_fit(self, program: str) -> bool:
        """Whether the copy that all hold is of another training of the program with this digest, which comes later."""
        if self._settings.restore is None or self._settings.fetching:
            return False
        try:
            copy = copy_file.Copy(self._settings.directory, *self._settings.restore)
        except (OSError, ValueError, KeyError, TypeError):
            return False
        copy.close()
        return copy.head.get("identity") != self.identity and copy.head.get("program") == program

    def _fetched(self, number: int, step: int) -> bool:
        """Wait for the copy from another member: as late as possible, for the launcher fetches it all the while. Once a
        process: behind the first training its own copies may have taken that one's place."""
        if (name := (self._settings.directory, number, step)) in _awaited:
            return True
        _awaited.add(name)
        fetched = copy_file.wait_for(self._settings.directory, number, step, FETCH_SECONDS)
        if not fetched:
            self._log(f"the copy of step {step} could not be fetched from another member")
        return fetched

    def choose(self, found: copy_file.Copy | None, newer: bool, number: int = 0) -> int | None:
        """Whether all restore what they have `found`: a collective of all members.

        `newer`: this member knows the storage, and the copy is not older. The answer is the `number` of such a member
        if all restore the copy, and None if none does.
        """
        exponent = found.exponent if newer and found is not None else 0
        own = found is not None and self._has_made(found)
        told = self.sums([float(each) for each in (found is not None, newer, number, exponent, own)])
        if round(told[0]) != self._members or not round(told[1]):
            return None
        same = found is not None and found.head.get("workers") == self._members
        self._own, self._all_own = own, same and round(told[4]) == self._members
        self.schedule.exponent = round(told[3] / told[1])  # members that tell one tell the same
        return round(told[2] / told[1])

    def _has_made(self, found: copy_file.Copy) -> bool:
        """Whether the values of the copy are this member's: one that it fetched in an earlier round lies in its own
        memory, too."""
        made = self._settings.source == SOURCE and found.head.get("maker", self._maker) == self._maker
        return made or found.head.get("workers") == 1 == self._members

    @property
    def _maker(self) -> str:
        """Who makes copies here, by the name of their directory: that of the job and the member, or a random one that
        no other launcher has."""
        return os.path.basename(self._settings.directory)

    def take(self, found: copy_file.Copy) -> None:
        """Restore the copy. An error ends the program: its state is half restored, while the other members have
        restored theirs."""
        assert self._state is not None
        begin = time.monotonic()
        self._state.restore_from(self._state.views(found.state, 0), self._own, self._all_own)
        self.resumed = found.head
        self.restored_in = time.monotonic() - begin
        self.report.tell(
            resumed={"from": self._settings.source, "step": found.step},
            step=found.step,
            time=found.head.get("time"),
            bytes=found.size,
        )

    def begin(self, step: int) -> None:
        """Begin to train behind this step."""
        assert self._state is not None
        wait = self._settings.wait_steps if self.resumed is None else 0
        self.schedule.begin(step, wait)
        kept = self._settings.restore if self.resumed is not None else None
        self._slots = copy_file.Slots(self._settings.directory, None, kept, sets_aside=self._settings.sets_aside)
        try:
            self._slots.clear()
            self._aside = [(*each, ()) for each in copy_file.set_aside(self._settings.directory)]
        except OSError as error:
            self.why_not = f"{error.filename}: {error.strerror}"
        self.report.tell(reason=f"{WAITS}, or {wait} steps" if wait else "", begun=step)
        if self._aside:
            self.report.tell(setAside=self._aside)

    # The steps.

    def due(self, before: int, after: int) -> bool:
        """Whether a copy is due after the step `after`, when the one before the last batch was `before`.

        The first call after the first epoch, or after 200 steps, is a collective: by then the members know how much
        memory the training needs, and agree whether there is enough for copies.
        """
        if self.schedule.waits(after):
            return False
        if not self._judged:
            self._judge_together()
        return self.agreed and self.schedule.is_due(before, after)

    def due_with_backup(self, step: int, steps: int) -> bool:
        """Whether a copy is due where an epoch of so many steps ends, and the storage gets a backup. The copies near to
        this one are left out, so there are no more copies than otherwise. The first of all calls of `due` and of this
        method is a collective."""
        if not self._judged:
            self._judge_together()
        return self.agreed and steps >= 1 << self.schedule.exponent and not self.schedule.is_soon(step)

    def _judge_together(self) -> None:
        self._judged = True
        self._judge()
        state = self._state
        apart = state is not None and state.draws_apart()
        told = self.sums([float(not self.why_not), float(apart), 1.0])  # an earlier launcher's program tells the first
        if state is not None and round(told[1]) and round(told[2]) == self._members:
            state.gather_draws()
        if round(told[0]) != self._members:
            self.end(self.why_not or OTHER_MEMBER)
        elif self._slots is not None and not self._slots.reserved():
            # Beside the training; the first copy waits for it.
            self._reserving = threading.Thread(target=self._reserve, name="tftraining-memory", daemon=True)
            self._reserving.start()

    def _judge(self) -> None:
        """Look whether there is memory for the copies."""
        limits, state = self._settings.limits, self._state
        if self.why_not or state is None:
            return
        try:
            state.complete()
        except Exception as error:
            self.why_not = describe(error)
        if self.why_not or limits is None:
            return
        size, resumed, used = copy_file.HEAD + state.size, self.resumed is not None, room.measure(limits.memory)
        self.why_not = room.objection(copy_file.SLOTS * size, limits, used, resumed=resumed)
        if self._slots is not None and self._slots.sets_aside and not self.why_not:
            need = (copy_file.SLOTS + copy_file.ASIDE) * size
            if why := room.objection(need, limits, used, resumed=resumed, copies="four"):
                self._set_nothing_aside(why)

    def _set_nothing_aside(self, why: str) -> None:
        assert self._slots is not None
        self._log(f"replicas that differ are only reported, and not restored: {why}")
        self._slots.sets_aside, self._aside = False, []
        self.report.tell(setAside=[], setAsideReason=why)

    def _reserve(self) -> None:
        assert self._slots is not None
        assert self._state is not None
        try:
            self._slots.reserve(self._state.size)
        except Exception as error:  # the others make copies until the next vote
            self.why_not = f"no memory for two copies: {describe(error)}"

    def measure_from(self, step: int) -> None:
        """Measure the speed of the training from the end of this step on."""
        self.schedule.measured.start(time.monotonic(), step)

    def measure_to(self, step: int) -> None:
        """Measure it up to the end of this step: something else follows."""
        self.schedule.measured.stop(time.monotonic(), step)

    def judge(self, step: int, loss: float | None) -> bool:
        """Whether the state may be copied: the loss is a finite number or unknown, or all values of the state are.

        LossIsNotFinite if neither is so, and no copy was due since a restore: the restored state may be the cause. Call
        it before Keras saves a backup in the storage, too.
        """
        if loss is None or math.isfinite(loss) or self._is_state_finite():
            return True
        if self.schedule.turns == 0 and self.resumed is not None:
            raise LossIsNotFinite(_poisoned(loss, step, int(self.resumed["step"])))
        return False

    def _is_state_finite(self) -> bool:
        """Whether the state has only finite numbers: the training has got over a loss that is none."""
        try:
            return self._state is not None and self._state.is_finite()
        except Exception:  # a value of a type that NumPy does not know
            return False

    def copy(self, step: int, where: Mapping[str, Any], loss: float | None = None) -> None:
        """Make a copy that is due, and vote if it is time to: all members call it at the same steps.

        `where`: for the head. `loss`: if it is no finite number, the state is not copied, or `judge` raises its error.
        The votes do not depend on it.
        """
        begin = time.monotonic()
        self.schedule.last = step
        self.schedule.measured.stop(begin, step)
        finite = self.judge(step, loss)
        if self._state is not None:
            self._state.gather(self.totals)  # a collective, also of members that do not copy
        if finite:
            self._try_to_write(step, where)
        else:
            self.report.tell(on=False, reason=f"the loss of step {step} is {loss}: the copies before it are kept")
        self.schedule.turns += 1
        if finite and not self._new_file:  # the first write to each page of a file takes longer
            self.schedule.measured.blocked(time.monotonic() - begin)
        if interval.votes_after(self.schedule.turns, self.schedule.exponent):
            self._vote()
        self._tell_copy(step, begin)
        self.schedule.measured.start(time.monotonic(), step)

    def _try_to_write(self, step: int, where: Mapping[str, Any]) -> None:
        try:
            if self._reserving is not None:
                self._reserving.join()
                self._reserving = None
            if not self.why_not:
                self._write(step, where)
        except Exception as error:
            self.why_not = self.why_not or describe(error)

    def _write(self, step: int, where: Mapping[str, Any]) -> None:
        assert self._slots is not None
        assert self._state is not None
        if self._state.grown():
            raise Unsupported("the training has created variables")
        summary = self._compared(self._summarize_held)
        buffer = self._slots.begin()
        views = self._views.get(id(buffer))
        self._new_file = views is None
        if views is None:
            views = self._views[id(buffer)] = self._state.views(buffer, copy_file.HEAD)
        self._state.copy_to(views)
        digests = self._compared(lambda: self._digest(id(buffer), views, step, summary)) or ()
        told = {"identity": self.identity, "workers": self._members, "step": step, "exponent": self.schedule.exponent}
        told |= {"maker": self._maker, "time": time.time()}
        self._slots.commit(self._settings.round, step, {**where, **told})
        self._newest = step
        if self._slots.sets_aside and digests:
            self._set_aside(self._slots, step, digests)

    def _set_aside(self, slots: copy_file.Slots, step: int, digests: Sequence[str]) -> None:
        """Set this copy aside if the launcher asks for it. It ends no copies."""
        if not self._aside_for < (asked := self._request.set_aside_from()) <= step:
            return None
        self._aside_for, agreed = asked, self._request.agreed()
        try:
            slots.set_aside(self._settings.round, step, agreed)
        except OSError as error:
            return self._set_nothing_aside(describe(error))
        kept = [each for each in self._aside if each[:2] == agreed]
        self._aside = [*kept, (self._settings.round, step, digests)]
        return self.report.tell(setAside=self._aside)

    def _compared(self, part: Callable[[], Any]) -> Any:
        """The result of a part of the comparison of replicas; None if there is none any more. It ends no copies."""
        try:
            return part() if self._compares else None
        except Exception as error:
            self._log(f"the replicas are not compared any more: {describe(error)}")
            self._compares = False
            return None

    def _summarize_held(self) -> Mapping[str, Any] | None:
        """The summary of the copy for which the launcher asks, while a buffer has it; None without one."""
        asked = self._request.summary_from()
        held = [each for each in self._replicas.values() if self._summarized < asked == each.step]
        self._summarized = asked if held else self._summarized
        return held[0].summary() if held else None

    def _digest(self, place: int, views: list[Any], step: int, summary: Mapping[str, Any] | None) -> Sequence[str]:
        """Note what tells whether all replicas hold the variables of this copy alike: a digest of each replica, none if
        there is nothing to compare; and the `summary` of an earlier copy, or the one of this copy that is due."""
        assert self._state is not None
        if (replicas := self._replicas.get(place)) is None:
            replicas = self._replicas[place] = ReplicaDigests(self._state.replicated(views))
        replicas.step = step
        if replicas.count * self._members < 2:
            return ()
        digests, asked = replicas.digests(), self._request.summary_from()
        if self._summarized < asked <= step:
            self._summarized, summary = asked, replicas.summary()
        self.report.note_digests(step, digests, summary)
        return digests

    def _tell_copy(self, step: int, begin: float) -> None:
        """Report a copy that was made, with the time that it has blocked the training."""
        seconds = time.monotonic() - begin
        self._blocked += seconds
        if self._newest == step and self.agreed and self._state is not None:
            self.report.tell(
                on=True,
                reason="",
                step=step,
                time=time.time(),
                bytes=copy_file.HEAD + self._state.size,
                seconds=round(seconds, 6),
                interval=1 << self.schedule.exponent,
                blockedSeconds=round(self._blocked, 6),
            )
        elif self.why_not:
            self.report.tell(on=False, reason=self.why_not)

    def _vote(self) -> None:
        """Agree on the interval by the largest vote, a collective: all members call it after the same copies."""
        limits = self._settings.limits
        if limits is not None and not self.why_not:
            self.why_not = room.shortage(limits, room.measure_now(limits.memory))
        own = _OFF if self.why_not else self.schedule.measured.exponent(self.schedule.exponent, self._settings.share)
        told = self.sums([float(place == own) for place in range(_OFF + 1)])
        exponent = max(place for place, votes in enumerate(told) if round(votes))
        if exponent == _OFF:
            self.end(self.why_not or OTHER_MEMBER)
        elif exponent != self.schedule.exponent:
            self.schedule.exponent = exponent

    # A stop that the launcher announces.

    def asked(self, before: int, after: int) -> bool:
        """Whether the launcher asks for a copy after one of the steps behind `before` up to `after`."""
        return self.agreed and self._request.is_for(before, after)

    def answer(self, step: int, where: Mapping[str, Any], loss: float | None = None) -> None:
        """Make the copy that the launcher asks for, and wait to be stopped.

        Not all members need to hear it in time, so only what a new member cannot do without is a collective: where one
        has not heard of it, the launcher ends the round. If the training goes on, the next copy overwrites this one,
        and not the newest one that all have made.
        """
        begin = time.monotonic()
        self.schedule.measured.stop(begin, step)
        extra = self._newest != step and (loss is None or math.isfinite(loss))
        if extra:
            self._prepare_alone()
        if self._gather_at_stop(step) and extra:  # all members gather, also those that write no copy
            self._try_to_write(step, where)
            self._tell_copy(step, begin)
        self._request.hold()
        if extra and self._newest == step and self._slots is not None:
            self._slots.reuse()
        self.schedule.measured.start(time.monotonic(), step)

    def _gather_at_stop(self, step: int) -> bool:
        """Gather what each member has of its own; whether a copy made now has what a member without one needs."""
        if self.schedule.last == step or self._state is None or not self._state.gathers():
            return True
        if self._judged:  # by all members together: the variables to sum up exist in each
            self._state.gather(self.totals)
        return self._judged or self._members == 1

    def _prepare_alone(self) -> None:
        """Reserve the memory of the files before all members have judged theirs."""
        if self._judged or self.why_not:
            return
        self._judge()
        if not self.why_not and self._slots is not None and not self._slots.reserved():
            self._reserve()

    # The end.

    def end(self, why: str) -> None:
        """Make no more copies, and free their memory. `why`: for the log; "" if the training is over."""
        if why:
            self._log(without_copies(why, self.not_stored))
            self.report.tell_storage(why, self.not_stored)
        self.agreed, self.why_not = False, why
        self._views.clear()
        self._replicas.clear()
        if self._reserving is not None:
            self._reserving.join()
        try:
            if self._slots is not None:
                self._slots.discard()
        except OSError as error:
            self._log(f"{error.filename}: {error.strerror}")
        self.report.tell_end(why or ENDED)


class LossIsNotFinite(ArithmeticError):
    """The training has no finite loss right after a restore."""


def _poisoned(loss: float | None, step: int, restored: int) -> str:
    kind = "NaN" if loss is None or math.isnan(loss) else "infinite"
    steps = step - restored
    after = f"{steps} step{'s' * (steps != 1)} after the restore of the copy of step {restored}"
    return f"tftraining: the loss is {kind} {after}; that copy is dropped"


def describe(error: Exception) -> str:
    """The error in one line."""
    return f"{type(error).__name__}: {error}".splitlines()[0]
