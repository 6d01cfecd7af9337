"""Compares the copies of all replicas of a gang, by the digests in the members' reports. No member waits for it.

Pure. Where digests differ, it asks one member of each digest for a summary of that copy, for only the chief's launcher
knows that they do; of a later copy if that one will be overwritten before the order arrives. A difference is told once
a round, and holds until a later round compares equal: a restart from memory gives each member its own copy back.
Differences of rounding are told, and looked at again now and then.
"""

from __future__ import annotations

from dataclasses import dataclass

from tftraining.launch.gang.announced_stop import LONGEST_WAIT_SECONDS, counter_offset, next_common_step
from tftraining.launch.gang.membership import Membership
from tftraining.launch.gang.outbox import Outbox
from tftraining.launch.gang.peer import Peer
from tftraining.launch.gang.replica_values import Comparison, ReplicaName, ReplicaSummary, compare
from tftraining.launch.in_user_process.memory_backup.copy_file import SLOTS

MOST_STEPS = 64  # of copies that not all members have reported
MOST_UNEQUAL = 8  # copies whose summaries may still come
MOST_ASKED = 16
AGAIN_SECONDS = 60.0  # between two looks at replicas that differ in their last bits
PATIENCE = 4  # after so many later copies that are unequal, the order has not reached all members in time


@dataclass
class _Order:
    """The order for a summary of a copy, to one member of each digest. All copies from the step `due` on are made
    behind its arrival, and `missed` of them have brought no verdict."""

    due: int
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
        self._unequal: dict[int, dict[str, list[ReplicaName]]] = {}  # copies by step: the replicas of each digest
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
                self._compare(step, known)
        while len(self._reports) > MOST_STEPS:
            del self._reports[min(self._reports)]
        if self._unequal and self.difference is None:
            self._decide(now)

    def _compare(self, step: int, known: dict[str, tuple[str, ...]]) -> None:
        """Compare the copies of one step, which all members have reported."""
        self._last = step
        self._reports = {each: told for each, told in self._reports.items() if each > step}
        groups: dict[str, list[ReplicaName]] = {}
        for name, digests in known.items():
            for number, digest in enumerate(digests):
                groups.setdefault(digest, []).append((name, number))
        if self._order is not None:
            self._order.missed += step >= self._order.due
        if len(groups) == 1:
            self._agree(None)
            return
        self._unequal[step] = groups
        if len(self._unequal) > MOST_UNEQUAL:
            del self._unequal[min(self._unequal)]

    def _decide(self, now: float) -> None:
        """The verdict on an unequal copy, if its summaries are there; else the order for them. An order that has
        brought none is given up."""
        if (verdict := self._judge()) is not None:
            self._order, self._not_before = None, now + AGAIN_SECONDS
            self._unequal.clear()
            self._agree(verdict) if not verdict.differs else self._differ(verdict)
            return
        is_late = self._order is not None and self._order.missed > PATIENCE
        self._order = None if is_late else self._order
        if self._order is None and now >= self._not_before and self._last in self._unequal:
            self._ask(self._unequal[self._last], now, is_late)

    def _judge(self) -> Comparison | None:
        for step in sorted(self._unequal.keys() & {each.step for each in self._summaries.values()}):
            told = {name: each for name, each in self._summaries.items() if each.step == step}
            verdict = compare(self._unequal[step], told, several=len(self._membership.copiers) > 1)
            if verdict is not None:
                return verdict
        return None

    def _agree(self, verdict: Comparison | None) -> None:
        self.compared += 1
        if self._fresh or (self.found is None and self.difference is None):
            self.found = verdict  # the first one of a round: what rounding does changes with each step
        self._fresh = False

    def _differ(self, verdict: Comparison) -> None:
        self._fresh, self.found = False, verdict
        self.difference = verdict

    def _ask(self, groups: dict[str, list[ReplicaName]], now: float, later: bool) -> None:
        """Ask for the summary of the last copy, while its members hold it: the difference may be gone from the next
        one, as from an average that forgets. `later`: of a later one."""
        copiers = self._membership.copiers
        step, earliest = (next_common_step(copiers, now, seconds) for seconds in (LONGEST_WAIT_SECONDS, 0.0))
        members = list(dict.fromkeys(replicas[0][0] for replicas in groups.values()))[:MOST_ASKED]
        if step is None or earliest is None:
            return
        interval = min((peer.backup.interval or 0 for peer in copiers if peer.backup is not None), default=0)
        offset, held_until = counter_offset(copiers), self._last + SLOTS * interval
        is_held = earliest + offset <= held_until and not later
        self._order = _Order(max((earliest if is_held else step) + offset, self._last + 1))
        for name in members:
            self._outbox.send_compare(self._membership.get_peer(name), self._last if is_held else self._order.due)
