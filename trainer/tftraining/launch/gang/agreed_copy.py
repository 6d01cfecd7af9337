"""The newest backup in memory (copy) on which all members agree, and the restart from it when replicas differ
(spec.restartPolicy.onDivergence: Restore).

Pure. Copies come faster than reports, so a copy that has compared equal may be overwritten already. So the chief's
launcher orders all members to set one aside, before it is made, and looks at its digests afterwards. Only a copy whose
digests are equal in all replicas counts: one that differs by rounding may hide a flipped bit. What is set aside goes
with the memory of its pod, so there may be none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil

from tftraining.launch.failure.incident import Incident
from tftraining.launch.failure_and_restart_messages import goes_back
from tftraining.launch.gang.announced_stop import (
    LONGEST_WAIT_SECONDS,
    counter_offset,
    next_common_step,
    steps_per_second,
)
from tftraining.launch.gang.backup_report import first_cause
from tftraining.launch.gang.membership import Membership
from tftraining.launch.gang.memory_backups import MemoryBackups, makes_copies
from tftraining.launch.gang.outbox import Outbox
from tftraining.launch.gang.replica_comparison import ReplicaComparison
from tftraining.launch.gang.suspect_copies import Copy
from tftraining.launch.gang.verdict import Verdict

EVERY_SECONDS = 10.0  # between two copies that are set aside
UNREPORTED_SECONDS = 60.0  # of steps that programs may make behind their last report

Digests = Mapping[Copy, Sequence[str]]
Attribute = Callable[[str, str, float], Incident]  # of the odd member or "", with a message, at that time


class AgreedCopy:
    """What is known of one gang. `attribute` makes an uncharged incident."""

    def __init__(
        self,
        membership: Membership,
        verdict: Verdict,
        outbox: Outbox,
        backups: MemoryBackups,
        comparison: ReplicaComparison,
        attribute: Attribute,
    ) -> None:
        self._membership = membership
        self._verdict = verdict
        self._outbox = outbox
        self._backups = backups
        self._comparison = comparison
        self._attribute = attribute
        self.copy: Copy | None = None
        self.why_not = ""  # why the difference of this round is only reported
        self._begin(0)

    def _begin(self, number: int) -> None:
        self._number, self.why_not = number, ""
        self._ordered: tuple[int, float] | None = None  # the step of the last order, and when

    def update(self, number: int, now: float) -> None:
        """While the round of this number runs: look whether all agree on the copy that is set aside, and order the next
        one. This looks at all members: do not call it for each heartbeat."""
        if number != self._number:
            self._begin(number)
        if self._comparison.difference is not None:
            return
        self._look()
        copiers = self._membership.copiers
        if not makes_copies(copiers) or not self._is_answered(now):
            return
        step = next_common_step(copiers, now, LONGEST_WAIT_SECONDS)
        if step is None:
            return
        self._ordered = step + counter_offset(copiers), now
        for peer in copiers:
            self._outbox.send_set_aside(peer, self._ordered[0], self.copy)

    def _is_answered(self, now: float) -> bool:
        """Whether a member has answered the last order, some time ago. An earlier order to take another copy would
        reach some members in time for the copy, and others too late."""
        if self._ordered is None:
            return True
        step, at = self._ordered
        made = [copy for report in self._reports for copy in report if copy[0] == self._number]
        return now - at >= EVERY_SECONDS and any(copy[1] >= step for copy in made)

    @property
    def _reports(self) -> list[Digests]:
        """What each member says that it has set aside."""
        return [peer.backup.set_aside if peer.backup is not None else {} for peer in self._membership.copiers]

    def _look(self) -> None:
        reports = self._reports
        first = reports[0] if reports else {}
        agreed = [copy for copy in first if copy[0] == self._number and are_equal(reports, copy)]
        self.copy = max((each for each in (self.copy, *agreed) if each is not None), default=None)

    def find_divergence(self, number: int, now: float) -> Incident | None:
        """The incident that ends the round, because its replicas differ and all go back; None if they train on."""
        if number != self._number:
            self._begin(number)
        found = self._comparison.difference
        if found is None or not self._membership.policy.restores or self.why_not:
            return None
        self._look()
        copy = self.copy
        if copy is None or (why := self._objection(copy)):
            self.why_not = f"the training goes on with them, for {self._why_none() if copy is None else why}"
            return None
        one = next(iter(found.odd)) if len(found.odd) == 1 else ""
        incident = self._attribute(one, goes_back(found.words, copy[1]), now)
        # A new pod has no copies: it needs a member that can send it this one.
        senders = [peer for peer in self._membership.copiers if peer.name != one and peer.hello.copy_port is not None]
        is_sent = any(peer.backup is not None and copy in peer.backup.set_aside for peer in senders)
        leaves = one and is_sent and not self._membership.job.local
        moves = f"{one} holds other values than the rest" if leaves else ""
        return replace(incident, back_to=copy, back_from=self._not_made_yet(), moves=moves)

    def _objection(self, copy: Copy) -> str:
        """Why the training cannot go back to this copy; "" if it can."""
        if copy[1] <= (before := self._verdict.ledger.went_back_to):
            return f"it has gone back before, and all have agreed on no copy behind step {before} since"
        if copy in self._backups.suspects or not any(copy in report for report in self._reports):
            return f"the copy of step {copy[1]} is gone"
        return ""

    def _why_none(self) -> str:
        reports = [peer.backup for peer in self._membership.copiers if peer.backup is not None]
        return first_cause(each.set_aside_reason for each in reports) or "there is no copy on which all have agreed"

    def _not_made_yet(self) -> int:
        """A step that no program has reached yet, in the numbers of the copies."""
        copiers = self._membership.copiers
        newest = [peer.backup.newest or 0 for peer in copiers if peer.backup is not None]
        steps = [(peer.progress.step or 0) + counter_offset(copiers) for peer in copiers]
        rate = max((steps_per_second(peer.progress) for peer in copiers), default=0.0)
        return max([*newest, *steps]) + ceil(rate * UNREPORTED_SECONDS) + 1


def are_equal(reports: Sequence[Digests], copy: Copy) -> bool:
    """Whether all members have set this copy aside, and all replicas have the same digest."""
    digests = [digest for report in reports for digest in report.get(copy) or ("",)]
    return "" not in digests and len(set(digests)) == 1
