"""The end of a round that is known before: the members make a copy at one step and wait there, so no step is lost.

Pure. It must never keep a round for long: after a bound the round ends with the copy before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from math import ceil

from tftraining.launch.failure.incident import PLANNED, TERMINATED, Incident
from tftraining.launch.failure_and_restart_messages import summarize_names
from tftraining.launch.gang.backup_report import first_cause
from tftraining.launch.gang.membership import Membership
from tftraining.launch.gang.memory_backups import makes_copies
from tftraining.launch.gang.outbox import Outbox
from tftraining.launch.gang.peer import Peer
from tftraining.launch.progress import Snapshot

DELIVERY_SECONDS = 0.5  # within which the order reaches all programs
LEAST_STEPS = 3  # between the newest known step and the copy
LEAST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 3.0, 60.0

Describe = Callable[[float], Incident]  # the incident that ends the round at that time


@dataclass
class Order:
    """The order to make a copy at the end of `step`. `behind` are the members that have not reported it yet."""

    describe: Describe
    step: int
    ordered_at: float
    deadline: float
    behind: set[str]


class AnnouncedStop:
    """The announced end of the present round, if there is one."""

    def __init__(self, membership: Membership, outbox: Outbox) -> None:
        self._membership = membership
        self._outbox = outbox
        self._order: Order | None = None
        self._leaving: tuple[Describe, float] | None = None  # a leaving member that waits for the copy, and until when
        self._why_skipped = ""

    def announce(self, describe: Describe, now: float, seconds: float = LONGEST_WAIT_SECONDS) -> bool:
        """Order a copy at whose end, or after `seconds`, the round ends; False if the members make no copies.

        If an end is announced already, it comes after `seconds` at the latest.
        """
        copiers = self._membership.copiers
        if self._order is not None:
            self._order.deadline = min(self._order.deadline, now + seconds)
            return True
        self._why_skipped = why_no_copy(copiers)
        step = None if self._why_skipped or not makes_copies(copiers) else next_common_step(copiers, now, seconds)
        if step is None:
            return False
        wait = min(seconds, longest_wait(copiers, step))
        step += counter_offset(copiers)
        self._order = Order(describe, step, now, now + wait, {peer.name for peer in copiers})
        for peer in copiers:
            self._outbox.send_copy(peer, step)
        return True

    def announce_leaving(self, describe: Describe, now: float, seconds: float) -> None:
        """Order a copy for a member that ends its program itself after `seconds`. If the programs have only begun, the
        order waits until all members make copies."""
        self._leaving = None if self.announce(describe, now, seconds) else (describe, now + seconds)

    def retry(self, now: float) -> None:
        """Order the copy for a leaving member that still waits, if all members make copies by now. This looks at all
        members: do not call it for each heartbeat."""
        describe, until = self._leaving or (None, now)
        if describe is not None and now < until:
            self.announce_leaving(describe, now, until - now)

    def record_copy(self, peer: Peer) -> None:
        """Note the newest copy that a member has reported."""
        if self._order is not None and peer.backup is not None and (peer.backup.step or 0) >= self._order.step:
            self._order.behind.discard(peer.name)

    def find_due(self, now: float) -> Incident | None:
        """The incident that ends the round now: all members have made the copy, or it takes too long."""
        order = self._order
        if order is None or (order.behind and now < order.deadline):
            return None
        return order.describe(now)

    def end(self, incident: Incident, now: float) -> Incident:
        """The incident that ends the round, announced or not: if it was announced, with the reason for no copy."""
        order, why = self._order, self._why_skipped
        if order is not None and order.behind:
            waited = f"{now - order.ordered_at:.1f} s"
            why = f"no copy at step {order.step} in {summarize_names(sorted(order.behind))} after {waited}"
        self._order, self._leaving, self._why_skipped = None, None, ""
        return replace(incident, backup_skipped=why) if incident.reason in (TERMINATED, *PLANNED) else incident


def why_no_copy(trainers: Collection[Peer]) -> str:
    """Why the members make no copies, though their launchers can; "" if they do, or have made no step to be lost."""
    can = all(peer.memory_copies is not None for peer in trainers)
    if not can or makes_copies(trainers) or all(peer.progress.first_step_time is None for peer in trainers):
        return ""
    reasons = [peer.backup.reason for peer in trainers if peer.backup is not None]
    return first_cause(reasons) or "not all members make copies"


def next_common_step(trainers: Collection[Peer], now: float, seconds: float) -> int | None:
    """A step that no member has reached when the order arrives; None if no member has made one. If the steps are so
    long that a few of them take more than half of the `seconds`, it is the earliest such step."""
    reported = [peer for peer in trainers if peer.progress.step is not None]
    if not reported:
        return None
    rate = max(steps_per_second(peer.progress) for peer in trainers)
    position = max(
        (peer.progress.step or 0) + steps_per_second(peer.progress) * (now - peer.progress_at) for peer in reported
    )
    earliest, safe = ceil(position + rate * DELIVERY_SECONDS), ceil(position) + LEAST_STEPS
    is_slow = rate > 0 and (safe - position) / rate > seconds / 2
    return earliest if is_slow else max(earliest, safe)


def counter_offset(trainers: Collection[Peer]) -> int:
    """The difference between the number of a step in the copies and in the reports of the programs: the two count
    differently where a program has several `fit`s, or a loop of its own that numbers its copies otherwise."""
    for peer in trainers:
        if peer.progress.fit_start:
            return -peer.progress.fit_start
        begun = None if peer.backup is None else peer.backup.begun
        if begun is not None and peer.progress.first_step is not None:
            return begun - peer.progress.first_step
    return 0


def longest_wait(trainers: Collection[Peer], step: int) -> float:
    """The seconds that the members may take to get from the steps that they have reported to this one."""
    left = step - max(peer.progress.step or 0 for peer in trainers)
    rate = max(steps_per_second(peer.progress) for peer in trainers)
    return min(LEAST_WAIT_SECONDS + (2 * left / rate if rate else 0.0), LONGEST_WAIT_SECONDS)


def steps_per_second(progress: Snapshot) -> float:
    """The speed that the program reports, or else that of its steps so far; 0 if unknown."""
    if progress.steps_per_second:
        return progress.steps_per_second
    begin, first, last = progress.first_step, progress.first_step_time, progress.last_step_time
    if progress.step is None or begin is None or first is None or last is None or last <= first:
        return 0.0
    return (progress.step - begin + progress.made_before - 1) / (last - first)
