"""The rounds of a gang: their numbers, the members of the next one, when it can start, and when the present one trains.

Pure. A round starts only when every member of the gang has reported that its program does not run, and round numbers
only rise. So there are never two rounds at once, whatever frames are lost, late or repeated.
"""

from __future__ import annotations

import math

from tftraining.launch.gang import quorum
from tftraining.launch.gang.membership import Roster
from tftraining.launch.gang.peer import Peer
from tftraining.launch.progress import QUIET_PROGRESS, QUIET_START, Snapshot, after, reports, silent
from tftraining.launch.roles import traits_of

# How long programs of an earlier chief's launcher may run after the last member has left it, in member timeouts.
TAKEN_LEAVE = 1.0  # it said goodbye to a member: the leases of the others end
CLOSED = 1.5  # all others saw their connection end: it drops them after one timeout, and checks six times in one
DARK = 3.0  # it may have been stopped for almost one more timeout; leases that it then grants last almost one more
GIVE_WAY = 5.0  # seconds for which a newcomer leaves the processors to a round that begins
FIRST_STEPS = 2.0  # seconds to wait for the other members' first steps after the first one


class Rounds:
    """The rounds since this launcher of the chief began, at `now`, and what members have told it of earlier ones."""

    def __init__(self, roster: Roster, now: float) -> None:
        self._roster = roster
        self.number = 0
        self.running = False
        self.trained: float | None = None  # when the last member of this round made its first step
        self.proven = roster.job.proven  # some round made a step
        self.resized = False  # the gang has changed since the last round
        self._earlier = Snapshot()  # the progress of the last round
        self._born = now
        self._departed = -math.inf  # when a member last left an earlier launcher of the chief
        self._since = now  # when the gang began to gather
        self._not_before = 0.0
        self._started = 0.0
        self._launchers: dict[str, str] = {}  # the incarnation of each member of the last round
        self._blocking = 0  # the index in the gang of the member that blocked the next round at the last check
        self._stepless: set[str] = set()  # members without a step in the present round
        self._mark: int | None = None  # the newest epoch at the last incident
        self._saved: int | None = None  # the step of the newest checkpoint at the last incident
        self._came: tuple[float, int | None] | None = None  # when the missing members came, and in which epoch
        self._overdue = False  # the start deadline is over: the available members may be enough

    @property
    def progress(self) -> Snapshot:
        """The progress of the first trainer, in the order of ranks, that reports.

        Epoch and metrics come from the last round while they are unreported. With successPolicy AllWorkers, members
        that still work come before finished ones, which say nothing about the job.
        """
        together = self._roster.policy.all_workers
        trainers = sorted(self._roster.trainers, key=lambda peer: together and peer.finished)
        told = next((peer.progress for peer in trainers if reports(peer.progress)), None)
        return self._earlier if told is None else after(self._earlier, told)

    @property
    def missing(self) -> list[str]:
        """The members of the gang that are not in the running round; between rounds, those that are not available."""
        gang = self._roster.gang
        if self.running:
            return [name for name in gang if name not in self._launchers]
        return [name for name, peer in gang.items() if not quorum.available(peer)]

    def done(self, peer: Peer) -> bool:
        """Whether a member's program has finished and, unless the round ends, does not run again."""
        return peer.finished and (peer.name in self._roster.evaluators or (self.running and self.has(peer)))

    def has(self, peer: Peer) -> bool:
        """Whether a member takes part in the present round; between rounds, in the last one."""
        return peer.name in self._launchers

    # The next round.

    def hear_of(self, number: int) -> bool:
        """Note a round that a member knows of; whether it is news and this launcher has begun no round yet."""
        news = number > self.number and not self._launchers
        self.number = max(self.number, number)
        return news

    def hear_of_departure(self, at: float) -> None:
        """Note when a member that knows of earlier rounds left its chief's launcher."""
        self._departed = max(self._departed, at)

    def next(self, now: float) -> list[Peer]:
        """The members of the next round; empty if it cannot start now."""
        return [] if self.running or now < self._not_before or self._in_doubt(now) else self._lineup(now)

    def _in_doubt(self, now: float) -> bool:
        """Whether a launcher unknown to us, the chief's earlier one or a lost member's, may still run the last round.

        It cannot if all others were in that round and the chief's launcher said goodbye to them. Otherwise enough time
        must pass since the last of them left it: while it hears one of them, it may go on.
        """
        if not self.number or self._launchers:
            return False
        timeout = self._roster.policy.member_timeout_seconds
        others = [peer for peer in self._roster.gang.values() if peer.name != self._roster.chief]
        if all(peer.farewell == self.number for peer in others):
            return False
        if any(peer.farewell == self.number for peer in others):
            return now < self._departed + TAKEN_LEAVE * timeout
        if all(peer.witness == self.number for peer in others):
            return now < self._departed + CLOSED * timeout
        # If it died, the leases of members that are not here yet still ran for one timeout.
        return now < max(self._departed + DARK * timeout, self._born + timeout)

    def leases_end(self, now: float) -> float:
        """The time since which a member must have been heard, else its lease has ended."""
        return now - self._roster.policy.member_timeout_seconds

    def _lineup(self, now: float) -> list[Peer]:
        roster, since = self._roster, self.leases_end(now)
        if self._is_blocked(since) or not all(quorum.quiet(peer, since) for peer in roster.surplus.values()):
            return []
        return quorum.lineup(list(roster.gang.values()), roster.policy.min_replicas or 0, since, self._is_cold)

    def _is_blocked(self, since: float) -> bool:
        """Whether some member blocks the next round.

        Thousands of members join, and each join asks. The search begins at the last blocker, so it walks through the
        gang a few times, not at each join.
        """
        gang = list(self._roster.gang.values())
        for step in range(len(gang)):
            place = (self._blocking + step) % len(gang)
            if quorum.blocks(gang[place], self._optional, since):
                self._blocking = place
                return True
        return False

    def _is_cold(self, peer: Peer) -> bool:
        """Whether this member is optional and has a new launcher that is not prepared yet: the round would wait for it.
        It joins once it is prepared (see `newcomers`)."""
        is_new = bool(self._launchers) and self._launchers.get(peer.name) != peer.incarnation
        return is_new and peer.prepared is None and self._optional(peer)

    def _optional(self, peer: Peer) -> bool:
        """Whether the next round may start without this member of the gang."""
        if not traits_of(peer.name).resizable or peer.name == self._roster.chief:
            return False
        if self._roster.policy.min_replicas and (self.number > 0 or self._overdue):
            return True
        return bool(self._launchers) and not self.has(peer)

    def overdue(self, now: float) -> list[str]:
        """The members missing after the start deadline, if no round can start without them."""
        since = max(self._since, self._not_before)
        if not self.missing or now - since <= self._roster.policy.start_deadline_seconds:
            return []
        self._overdue = True
        return [] if self._lineup(now) else self.missing

    # The present round.

    def begin(self, members: list[Peer], now: float) -> bool:
        """Begin the next round; whether its launchers were all in the last one, or the last one's are all in it."""
        launchers = {peer.name: peer.incarnation for peer in members}
        old = self._launchers.items()
        again = bool(old) and (launchers.items() <= old or old <= launchers.items())
        self._launchers = launchers
        self._earlier = self.progress
        self.number += 1
        self.running, self.trained, self._started, self._came = True, None, now, None
        self._roster.form(members)
        self._stepless = {peer.name for peer in self._roster.trainers}
        self.resized = self.resized and len(members) < len(self._roster.gang)
        return again

    def begin_alone(self, peer: Peer) -> bool:
        """Begin a round for one member, with a number of its own; whether its launcher was there before."""
        again = self._launchers.get(peer.name) == peer.incarnation
        self._launchers[peer.name] = peer.incarnation
        self.number += 1
        return again

    def end(self, now: float, wait: float) -> None:
        """End the round; the next one starts after `wait` seconds at the earliest."""
        self.running, self.trained = False, None
        self._since, self._not_before = now, now + wait

    def newcomers(self, now: float) -> list[Peer]:
        """The ready members outside the round, if it should end now for a round with them.

        It ends after a backup if one is near, and never once a trainer has finished.
        """
        roster = self._roster
        come = quorum.newcomers(roster.gang.values(), self._launchers, now)
        if not come or any(peer.finished for peer in roster.trainers):
            self._came = None
            return []
        since, epoch = self._came = self._came or (now, self.progress.epoch)
        return [] if quorum.soon_backed_up(self.progress, epoch, now - since) else come

    def beginning(self, peer: Peer, now: float) -> bool:
        """Whether a round without this member of the gang is about to make its first steps. The newcomer's imports
        would take processors that the round needs then, and can wait: the others train without it."""
        begins = self.running and self.trained is None and now - self._started < GIVE_WAY
        return begins and peer.name in self._roster.gang and not self.has(peer)

    def note_step(self, peer: Peer, now: float) -> None:
        """Note a member's first step. With the last member's first step the round trains; `note_training` covers the
        cases that depend on time alone."""
        if self._stepless and peer.progress.first_step_time is not None:
            self._stepless.discard(peer.name)
            if not self._stepless:
                self.note_training(now)

    def note_training(self, now: float) -> None:
        """Note when the round began to train: all members have made a step, or will never report one."""
        if not self.running or self.trained is not None:
            return
        trainers = self._roster.trainers
        first = [at for peer in trainers if (at := peer.progress.first_step_time) is not None]
        if first and (len(first) == len(trainers) or now - min(first) > FIRST_STEPS):
            self.trained = max(first)
            self.proven = True
        elif all(silent(peer.progress) for peer in trainers) and now - self._started > QUIET_START:
            self.trained = max(peer.started for peer in trainers)

    def progressed(self, now: float) -> bool:
        """Whether there is a newer epoch or checkpoint than at the last incident; without reports of epochs, whether
        the round ran for QUIET_PROGRESS seconds."""
        self.note_training(now)
        saved = self._newly_saved()
        long = self.trained is not None and now - self._started > QUIET_PROGRESS
        told = [peer.progress for peer in self._roster.trainers if peer.progress.epoch is not None]
        if not told:
            self.proven = self.proven or long
            return long or saved
        newest = max(each.epoch or 0 for each in told)
        mark = self._mark if self._mark is not None else min(each.first_epoch or 0 for each in told) + 1
        self._mark = max(mark, newest)
        return newest > mark or saved

    def _newly_saved(self) -> bool:
        """Whether there is a newer checkpoint than at the last incident. The checkpoint that the first round resumed
        from does not count."""
        told = [peer.progress for peer in self._roster.trainers]
        newest = max((each.checkpoint for each in told if each.checkpoint is not None), default=None)
        first = min((each.first_step for each in told if each.first_step is not None), default=None)
        mark = first if self._saved is None else self._saved
        self._saved = max((step for step in (mark, newest) if step is not None), default=None)
        return newest is not None and newest > (mark or 0)
