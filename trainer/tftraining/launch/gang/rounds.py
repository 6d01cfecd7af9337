"""The rounds of a gang: their numbers, the members of the next one, when it can start, and when the present one trains.
While the chief's launcher runs, also whether a round starts too late (startDeadlineSeconds).

Pure. A round starts only when every member of the gang has reported that its program does not run, and round numbers
only rise. So there are never two rounds at once, whatever frames are lost, late or repeated.
"""

from __future__ import annotations

from tftraining.launch.failure.restart_budget import Reached, has_progressed, newest
from tftraining.launch.gang import quorum
from tftraining.launch.gang.earlier_rounds import EarlierRounds
from tftraining.launch.gang.membership import Membership
from tftraining.launch.gang.memory_backups import (
    common_resumption,
    has_only_resumed_from_copy,
    makes_copies,
    newest_common_step,
)
from tftraining.launch.gang.peer import Peer
from tftraining.launch.progress import QUIET_PROGRESS, Snapshot, carry_over, has_reports, is_training
from tftraining.launch.roles import traits_of

WARMUP_PAUSE_SECONDS = 5.0  # seconds for which a newcomer leaves the processors to a round that begins
FIRST_STEP_WAIT_SECONDS = 2.0  # seconds to wait for the other members' first steps after the first one


class Rounds:
    """The rounds since this launcher of the chief began, at `now`; `earlier` are those before."""

    def __init__(self, membership: Membership, now: float) -> None:
        self._membership = membership
        self.number = 0
        self.running = False
        self.training_since: float | None = None  # when the last member of this round made its first step
        self.has_stepped = membership.job.has_stepped  # some round made a step
        self.resized = False  # the gang has changed since the last round
        self._previous_progress = Snapshot()  # the progress of the last round
        self.earlier = EarlierRounds(membership, now)
        self._gathering_since = now  # when the gang began to gather
        self._not_before = 0.0
        self.wait = 0.0  # the back-off of the last round, seconds
        self._started_at = 0.0
        self._incarnations: dict[str, str] = {}  # the incarnation of each member of the last round
        self._blocker_index = 0  # the index in the gang of the member that blocked the next round at the last check
        self._members_without_step: set[str] = set()  # members without a step in the present round
        self._reached = Reached()  # at the last incident; the backup in memory at the last charge
        self._newcomers_since: tuple[float, int | None] | None = None  # the time and epoch in which they came
        self._start_deadline_over = False  # the start deadline is over: the available members may be enough

    @property
    def progress(self) -> Snapshot:
        """The progress of the first trainer, in the order of ranks, that reports.

        Epoch and metrics come from the last round while they are unreported. With successPolicy AllWorkers, members
        that still work come before finished ones, which say nothing about the job.
        """
        reporter = self.reporter
        return self._previous_progress if reporter is None else carry_over(self._previous_progress, reporter.progress)

    @property
    def reporter(self) -> Peer | None:
        """The trainer whose progress is that of the gang; None before the first report of the round."""
        trainers = self._membership.trainers
        if self._membership.policy.all_workers:
            trainers = sorted(trainers, key=lambda peer: peer.has_succeeded)
        return next((peer for peer in trainers if has_reports(peer.progress)), None)

    @property
    def missing(self) -> list[str]:
        """The members of the gang that are not in the running round; between rounds, those that are not available."""
        gang = self._membership.gang
        if self.running:
            return [name for name in gang if name not in self._incarnations]
        return [name for name, peer in gang.items() if not quorum.is_available(peer)]

    def is_done(self, peer: Peer) -> bool:
        """Whether a member's program has finished and, unless the round ends, does not run again."""
        return peer.has_succeeded and (
            peer.name in self._membership.evaluators or (self.running and self.includes(peer))
        )

    def includes(self, peer: Peer) -> bool:
        """Whether a member takes part in the present round; between rounds, in the last one."""
        return peer.name in self._incarnations

    # The next round.

    def learn_number(self, number: int) -> bool:
        """Note a round that a member knows of; whether it is news and this launcher has begun no round yet."""
        is_news = number > self.number and not self._incarnations
        self.number = max(self.number, number)
        return is_news

    def next_members(self, now: float) -> list[Peer]:
        """The members of the next round; empty if it cannot start now. The cheapest questions come first: each of
        thousands of members that join asks them."""
        if self.running or now < self._not_before or self._is_blocked(self.lease_cutoff(now)):
            return []
        is_first = not self._incarnations
        return [] if is_first and self.earlier.may_run(self.number, now) else self._select_members(now)

    def lease_cutoff(self, now: float) -> float:
        """The time since which a member must have been heard, else its lease has ended."""
        return now - self._membership.policy.member_timeout_seconds

    def _select_members(self, now: float) -> list[Peer]:
        membership, cutoff = self._membership, self.lease_cutoff(now)
        leaving = membership.scaled_down.values()
        if self._is_blocked(cutoff) or not all(quorum.is_stopped(peer, cutoff) for peer in leaving):
            return []
        gang, least = list(membership.gang.values()), membership.policy.min_replicas or 0
        return quorum.select_members(gang, least, cutoff, self._is_cold)

    def _is_blocked(self, cutoff: float) -> bool:
        """Whether some member blocks the next round.

        Thousands of members join, and each join asks. The search begins at the last blocker, so it walks through the
        gang a few times, not at each join.
        """
        gang = list(self._membership.gang.values())
        for step in range(len(gang)):
            index = (self._blocker_index + step) % len(gang)
            if quorum.blocks_round(gang[index], self._is_optional, cutoff):
                self._blocker_index = index
                return True
        return False

    def _is_cold(self, peer: Peer) -> bool:
        """Whether this member is optional and has a new launcher that is not prepared yet: the round would wait for it.
        It joins once it is prepared (see `find_newcomers`)."""
        is_new = bool(self._incarnations) and self._incarnations.get(peer.name) != peer.hello.incarnation
        return is_new and peer.prepared_at is None and self._is_optional(peer)

    def _is_optional(self, peer: Peer) -> bool:
        """Whether the next round may start without this member of the gang."""
        if not traits_of(peer.name).resizable or peer.name == self._membership.chief:
            return False
        if self._membership.policy.min_replicas and (self.number > 0 or self._start_deadline_over):
            return True
        return bool(self._incarnations) and not self.includes(peer)

    def find_overdue(self, now: float) -> list[str]:
        """The members missing after the start deadline, if no round can start without them."""
        if not self.missing or not self._start_is_late(now):
            return []
        self._start_deadline_over = True
        return [] if self._select_members(now) else self.missing

    def is_overdue(self, now: float) -> bool:
        """Whether programs run, but have not begun to train by the start deadline."""
        return self.running and self.training_since is None and self._start_is_late(now)

    def _start_is_late(self, now: float) -> bool:
        since = max(self._gathering_since, self._not_before)
        return now - since > self._membership.policy.start_deadline_seconds

    # The present round.

    def begin(self, members: list[Peer], now: float) -> bool:
        """Begin the next round. Returns whether no launcher was replaced: all of this round were in the last one, or
        all of the last one are in this one.

        Its number exceeds those of all copies: launchers that have all been replaced may have copies from storage.
        """
        incarnations = {peer.name: peer.hello.incarnation for peer in members}
        previous = self._incarnations.items()
        same_launchers = bool(previous) and (incarnations.items() <= previous or previous <= incarnations.items())
        self._incarnations = incarnations
        self._previous_progress = self.progress
        copied = max((number for peer in members for number, _ in peer.memory_copies or ()), default=0)
        self.number = max(self.number, copied) + 1
        self.running, self.training_since, self._started_at, self._newcomers_since = True, None, now, None
        self._membership.set_round_members(members)
        self._members_without_step = {peer.name for peer in self._membership.trainers}
        self.resized = self.resized and len(members) < len(self._membership.gang)
        return same_launchers

    def begin_for_member(self, peer: Peer) -> bool:
        """Begin a round for one member, with a number of its own; whether its launcher was there before."""
        same_launchers = self._incarnations.get(peer.name) == peer.hello.incarnation
        self._incarnations[peer.name] = peer.hello.incarnation
        self.number += 1
        return same_launchers

    def end(self, now: float, wait: float) -> None:
        """End the round; the next one starts after `wait` seconds at the earliest."""
        self.running, self.training_since = False, None
        self._gathering_since, self._not_before, self.wait = now, now + wait, wait

    def find_newcomers(self, now: float) -> list[Peer]:
        """The ready members outside the round, if it should end now for a round with them.

        Without copies in memory it ends after a backup if one is near; it never ends once a trainer has finished.
        """
        membership = self._membership
        newcomers = quorum.find_newcomers(membership.gang.values(), self._incarnations, now)
        if not newcomers or any(peer.has_succeeded for peer in membership.trainers):
            self._newcomers_since = None
            return []
        since, epoch = self._newcomers_since = self._newcomers_since or (now, self.progress.epoch)
        is_near = quorum.is_backup_near(self.progress, epoch, now - since)
        return [] if is_near and not makes_copies(membership.copiers) else newcomers

    def should_pause_warmup(self, peer: Peer, now: float) -> bool:
        """Whether a round without this member of the gang is about to make its first steps. The newcomer's imports
        would take processors that the round needs then, and can wait: the others train without it."""
        begins = self.running and self.training_since is None and now - self._started_at < WARMUP_PAUSE_SECONDS
        return begins and peer.name in self._membership.gang and not self.includes(peer)

    def record_first_step(self, peer: Peer, now: float) -> None:
        """Note a member's first step. With the last member's first step the round trains; `update_training` covers the
        cases that depend on time alone."""
        if self._members_without_step and peer.progress.first_step_time is not None:
            self._members_without_step.discard(peer.name)
            if not self._members_without_step:
                self.update_training(now)

    def update_training(self, now: float) -> None:
        """Note when the round began to train: all members have made a step, or will never report one."""
        if not self.running or self.training_since is not None:
            return
        trainers = self._membership.trainers
        first = [at for peer in trainers if (at := peer.progress.first_step_time) is not None]
        if first and (len(first) == len(trainers) or now - min(first) > FIRST_STEP_WAIT_SECONDS):
            self.training_since = max(first)
            self.has_stepped = True
        elif not first and all(is_training(peer.progress, self._started_at, now) for peer in trainers):
            self.training_since = max(peer.started_at for peer in trainers)

    def check_progress(self, now: float, charged: bool) -> bool:
        """Whether the training has come further than at the last incident, at one that is `charged` or not."""
        self.update_training(now)
        since = self.training_since
        trained, ran = (None, None) if since is None else (now - since, now - self._started_at)
        before, reached = self._reached_before(), self._find_reached()
        self.has_stepped = self.has_stepped or (reached.epoch is None and (ran or 0.0) >= QUIET_PROGRESS)
        progressed = has_progressed(before, reached, trained, ran)
        counts_copy = reached.copy is not None and (charged or progressed)
        copy = newest(before.copy, reached.copy) if counts_copy else self._reached.copy
        epoch, checkpoint = newest(before.epoch, reached.epoch), newest(before.checkpoint, reached.checkpoint)
        self._reached = Reached(epoch, checkpoint, copy)
        return progressed

    def _find_reached(self) -> Reached:
        """How far the members of this round have come. The restored backup in memory does not count as a checkpoint."""
        trainers = self._membership.trainers
        epochs = [peer.progress.epoch for peer in trainers]
        saved = [peer.progress.checkpoint for peer in trainers if not has_only_resumed_from_copy(peer)]
        return Reached(newest(*epochs), newest(*saved), newest_common_step(self._membership.copiers))

    def _reached_before(self) -> Reached:
        """How far the training had come at the last incident. What the first round has resumed from is no progress."""
        trainers, known = [peer.progress for peer in self._membership.trainers], self._reached
        epochs = [each.first_epoch or 0 for each in trainers if each.epoch is not None]
        steps = [each.first_step for each in trainers if each.first_step is not None]
        return Reached(
            min(epochs) + 1 if known.epoch is None and epochs else known.epoch,
            min(steps, default=None) if known.checkpoint is None else known.checkpoint,
            common_resumption(self._membership.copiers) if known.copy is None else known.copy,
        )
