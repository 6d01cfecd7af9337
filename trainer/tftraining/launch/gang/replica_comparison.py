"""Compares the copies of all replicas of a gang, by the digests in the members' reports. No member waits for it.

Pure. Where digests differ, it asks one member of each digest for a summary of a later copy, for only the chief's
launcher knows that they do. A difference is told once a round, and holds until a later round compares equal: a restart
from memory gives each member its own copy back. Differences of rounding are told, and looked at again now and then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tftraining.launch.gang.announced_stop import LONGEST_WAIT_SECONDS, counter_offset, next_common_step
from tftraining.launch.gang.membership import Membership
from tftraining.launch.gang.outbox import Outbox
from tftraining.launch.gang.peer import Peer
from tftraining.launch.gang.replica_values import Comparison, ReplicaName, ReplicaSummary, compare

MOST_STEPS = 64  # of copies that not all members have reported
MOST_ASKED = 16
AGAIN_SECONDS = 60.0  # between two looks at replicas that differ in their last bits
PATIENCE = 4  # after so many later copies that are unequal, the order has not reached all members in time


@dataclass
class _Order:
    """The order for a summary of the first copy at `step` or behind it, to one member of each digest."""

    step: int
    members: Sequence[str]
    missed: int = 0


class ReplicaComparison:
    """What is known of the replicas of one gang."""

    def __init__(self, membership: Membership, outbox: Outbox) -> None:
        self._membership = membership
        self._outbox = outbox
        self.compared = 0  # copies whose replicas were found equal, or to differ by rounding only
        self.found: Comparison | None = None  # the last difference
        self.start_round()

    def start_round(self) -> None:
        """Forget the copies of the last round, but not what they have shown."""
        self._fresh = True  # this round has shown nothing yet
        self.difference: Comparison | None = None  # of this round
        self._last = -1  # the step of the last copy that was compared
        self._reports: dict[int, dict[str, tuple[str, ...]]] = {}  # by step and member
        self._summaries: dict[str, ReplicaSummary] = {}
        self._order: _Order | None = None
        self._not_before = 0.0

    def record(self, peer: Peer, now: float) -> None:
        """Take the report of a member."""
        if peer.backup is None or not peer.backup.digests:
            return
        if peer.backup.summary is not None:
            self._summaries[peer.name] = peer.backup.summary
        copiers = self._membership.copiers
        new = [step for step in peer.backup.digests if step > self._last]
        for step in sorted(new):
            known = self._reports.setdefault(step, {})
            known[peer.name] = peer.backup.digests[step]
            if len(known) >= len(copiers) and all(each.name in known for each in copiers):
                self._compare(step, known, now)
        while len(self._reports) > MOST_STEPS:
            del self._reports[min(self._reports)]

    def _compare(self, step: int, known: dict[str, tuple[str, ...]], now: float) -> None:
        """Compare the copies of one step, which all members have reported."""
        self._last = step
        self._reports = {each: told for each, told in self._reports.items() if each > step}
        groups: dict[str, list[ReplicaName]] = {}
        for name, digests in known.items():
            for number, digest in enumerate(digests):
                groups.setdefault(digest, []).append((name, number))
        if len(groups) == 1:
            self._agree(None)
        elif self.difference is None and (verdict := self._judge(step, groups)) is not None:
            self._order, self._not_before = None, now + AGAIN_SECONDS
            self._agree(verdict) if not verdict.differs else self._differ(verdict)
        elif self.difference is None and self._order is None and now >= self._not_before:
            self._ask(groups, now)

    def _judge(self, step: int, groups: dict[str, list[ReplicaName]]) -> Comparison | None:
        """The verdict, if the summaries of this step are there. An order that has not met one copy is given up."""
        if self._order is None or step < self._order.step:
            return None
        told = {name: each for name, each in self._summaries.items() if each.step == step}
        verdict = compare(groups, told, several=len(self._membership.copiers) > 1)
        self._order.missed += verdict is None
        if self._order.missed > PATIENCE:
            self._order = None
        return verdict

    def _agree(self, verdict: Comparison | None) -> None:
        self.compared += 1
        if self._fresh or (self.found is None and self.difference is None):
            self.found = verdict  # the first one of a round: what rounding does changes with each step
        self._fresh = False

    def _differ(self, verdict: Comparison) -> None:
        self._fresh, self.found = False, verdict
        self.difference = verdict

    def _ask(self, groups: dict[str, list[ReplicaName]], now: float) -> None:
        copiers = self._membership.copiers
        step = next_common_step(copiers, now, LONGEST_WAIT_SECONDS)
        members = list(dict.fromkeys(replicas[0][0] for replicas in groups.values()))[:MOST_ASKED]
        if step is None:
            return
        self._order = _Order(max(step + counter_offset(copiers), self._last + 1), members)
        for name in members:
            self._outbox.send_compare(self._membership.get_peer(name), self._order.step)
