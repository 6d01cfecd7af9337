"""status.goodput: what the time of a job went to.

A write of the status brings it up to date, and none is made for its sake: the time since the last write goes to the
cause that held then, also while no operator ran. Some things become known only later, and then seconds that are counted
already move to another cause: how long a restart took (the launchers tell, and an operator that was away has not seen
it), the steps that are done again, the copies, the time without a step. So the sum stays the time from startTime to
updatedTime.
"""

from datetime import datetime, timedelta

import msgspec

from tftraining.launch.failure.incident import LOSSES
from tftraining.launch.failure_and_restart_messages import NO_STEP
from tftraining_api.model.goodput import (
    COPIES,
    IN_PLACE,
    NODE,
    QUEUE,
    RECREATED,
    REPEATED,
    STALLED,
    START,
    SUSPENDED,
    TRAINED,
    Goodput,
    bounded,
    with_more,
)
from tftraining_api.model.job import Job
from tftraining_api.model.status import LastRestart, Phase, Progress, Status
from tftraining_operator.model.launcher_report import Report
from tftraining_operator.model.observed import NODE_REBOOT_REASONS, QUOTA_GATE, UNSCHEDULABLE
from tftraining_operator.plan import no_progress, node_loss
from tftraining_operator.plan.incident import NODE_CONDITION
from tftraining_operator.plan.quota_request import WAITING_FOR_QUOTA
from tftraining_operator.plan.refused_writes import CREATION_REFUSED, EXCEEDED_QUOTA
from tftraining_operator.plan.storage_warning import STORAGE_IN_USE

# The reasons of a lost pod whose node was lost, left, shut down, rebooted or drained.
OF_NODE = NODE_REBOOT_REASONS | {
    node_loss.REASON, NODE_CONDITION, "DeletionByTaintManager", "DeletionByPodGC", "EvictionByEvictionAPI",
    "NodeShutdown", "Shutdown", "TerminationByKubelet",
}  # fmt: skip
CAUSES_OF: dict[Phase, tuple[str, ...]] = {
    "Pending": (START, QUEUE),
    "Starting": (START, QUEUE),
    "Running": (TRAINED, STALLED),
    "Restarting": (IN_PLACE, RECREATED, NODE, QUEUE, TRAINED),
    "Suspended": (SUSPENDED,),
}


def with_goodput(job: Job, new: Status, report: Report | None, now: datetime) -> Status:
    """The status to write, with the time since the last write added to status.goodput. A status without news stays as
    it is."""
    old = job.status
    if old.terminal or new == old:
        return new
    at = now.replace(microsecond=now.microsecond // 1000 * 1000)
    before = _before(job, new.goodput, at)
    if new.completion_time is not None and before.updated_time is not None:
        at = min(at, max(new.completion_time, before.updated_time))  # completionTime has whole seconds
    found = _Account(before, old, new, at)
    found.pass_time()
    found.settle_restart()
    found.count_stall()
    found.count_copies(report)
    return msgspec.structs.replace(new, goodput=found.result())


def with_repeated(status: Status, seconds: float | None) -> Status:
    """The status with these seconds of training counted as repeated, where no record of a restart has them."""
    if status.goodput is None or not seconds:
        return status
    moved = _moved(status.goodput.seconds, TRAINED, REPEATED, seconds)
    return msgspec.structs.replace(status, goodput=msgspec.structs.replace(status.goodput, seconds=moved))


def _before(job: Job, known: Goodput | None, at: datetime) -> Goodput:
    """The account as it was written last; a new one begins where there is none. An older operator, which keeps none,
    leaves one that does not fit the phase: its time is left out."""
    old = job.status
    if known is None or known.start_time is None or known.updated_time is None or known.since is None:
        start = min(job.created, at) if old.phase == "Pending" else at
        return Goodput(start_time=start, updated_time=start, cause=CAUSES_OF[old.phase][0], since=start)
    if known.cause in CAUSES_OF[old.phase]:
        return known
    start, cause = known.start_time + max(timedelta(), at - known.updated_time), CAUSES_OF[old.phase][0]
    return msgspec.structs.replace(known, start_time=start, updated_time=at, cause=cause, since=at)


def _moved(seconds: dict[str, float], source: str, target: str, amount: float) -> dict[str, float]:
    """The seconds after `amount` of them, or as many as there are, has moved from `source` to `target`; a negative
    `amount` moves back."""
    if amount < 0:
        source, target, amount = target, source, -amount
    amount = min(amount, bounded(seconds.get(source, 0.0)))
    if source == target or not amount:
        return seconds
    left, more = seconds[source] - amount, seconds.get(target, 0.0) + amount
    return {**seconds, source: bounded(left), target: bounded(more)}


def _waits(status: Status) -> bool:
    """Whether the pods wait for room: a quota, a queue, a node, or the storage that another job uses."""
    if status.reason in (WAITING_FOR_QUOTA, STORAGE_IN_USE):
        return True
    message = status.message or ""
    if status.reason == CREATION_REFUSED:
        return EXCEEDED_QUOTA in message
    return status.reason == "PodsNotReady" and (UNSCHEDULABLE in message or QUOTA_GATE in message)


class _Account:
    """The account from one written status to the next. `seconds` is the only state."""

    def __init__(self, before: Goodput, old: Status, new: Status, at: datetime) -> None:
        self.before, self.old, self.new, self.at = before, old, new, at
        self.seconds = before.seconds
        self.last, self.known = new.last_restart, old.last_restart

    def pass_time(self) -> None:
        """The time since the last write goes to the cause that held then."""
        assert self.before.cause is not None and self.before.updated_time is not None
        self.seconds = with_more(self.seconds, self.before.cause, self.at - self.before.updated_time)

    def settle_restart(self) -> None:
        """A restart that is over took as long as its record says, whatever of it this operator has seen."""
        last = self.last
        if last is None or last.alone:
            return
        known = self.known if self._same_record else LastRestart(last.time)
        assert known is not None
        if last.down_seconds is not None and last.down_seconds != known.down_seconds:
            counted = known.down_seconds if known.down_seconds is not None else self._seen
            source = TRAINED if self._interrupted else self.before.cause or TRAINED
            kind = self._kind if known.down_seconds is None else self._of_new_pods
            self._move(source, kind, last.down_seconds - counted)
        self._move(TRAINED, REPEATED, (last.lost_seconds or 0.0) - (known.lost_seconds or 0.0))

    def count_stall(self) -> None:
        """A stall is noticed late: it began with the last step."""
        condition, progress = self.new.condition(no_progress.NO_PROGRESS), self.old.progress
        is_news = self.new.is_true(no_progress.NO_PROGRESS) and not self.old.is_true(no_progress.NO_PROGRESS)
        stalled = is_news and condition is not None and condition.reason in (no_progress.STALLED, NO_STEP)
        if stalled and self.before.cause == TRAINED and progress is not None and progress.updated_time is not None:
            self._move(TRAINED, STALLED, min((self.at - progress.updated_time).total_seconds(), self._since_seconds))

    def count_copies(self, report: Report | None) -> None:
        """The seconds for which copies stopped the training: launchers tell the sum of each round."""
        was, now = (_blocked(each.progress) for each in (self.old, self.new))
        if now is None and was is not None and report is not None and report.backup is not None:
            now = report.backup.blocked_seconds  # the copies have ended: the status has no backup any more
        if now is not None:
            self._move(TRAINED, COPIES, now - (was or 0.0) if now >= (was or 0.0) else now)

    def result(self) -> Goodput:
        """The account to write."""
        cause = self._cause()
        if cause is None:
            since = None
        elif self.new.phase == "Restarting" and self._continues and cause != TRAINED:
            since = self.before.since
            if self.before.cause in (IN_PLACE, RECREATED) and cause in (RECREATED, NODE):
                self._move(self.before.cause, cause, self._since_seconds)
        else:
            since = self.before.since if cause == self.before.cause and not self._interrupted else self.at
        return msgspec.structs.replace(
            self.before, updated_time=self.at, cause=cause, since=since, seconds=self.seconds
        )

    def _cause(self) -> str | None:
        """What the time from now on goes to."""
        status = self.new
        if status.terminal:
            return None
        if status.phase == "Suspended":
            return SUSPENDED
        if status.phase == "Running":
            return STALLED if status.is_true(no_progress.NO_PROGRESS) else TRAINED
        if status.phase == "Restarting" and self._is_over:
            return TRAINED
        if _waits(status):
            return QUEUE
        return START if status.phase in ("Pending", "Starting") else self._kind

    @property
    def _is_over(self) -> bool:
        """Whether the launchers train again though the pods are not known to be ready."""
        last, known = self.last, self.known
        if last is None or last.down_seconds is None or last.alone or self._anew:
            return False
        was_open = known is None or not self._same_record or known.down_seconds is None
        return was_open or (self.old.phase == "Restarting" and self.before.cause == TRAINED)

    @property
    def _kind(self) -> str:
        """Which kind of restart the last one is."""
        anew = self._anew or (self._continues and self.before.cause in (RECREATED, NODE, QUEUE))
        return self._of_new_pods if anew else IN_PLACE

    @property
    def _of_new_pods(self) -> str:
        return NODE if self.last is not None and self.last.reason in OF_NODE else RECREATED

    @property
    def _anew(self) -> bool:
        return self.new.restarts.recreated > self.old.restarts.recreated

    @property
    def _same_record(self) -> bool:
        return self.last is not None and self.known is not None and self.last.time == self.known.time

    @property
    def _interrupted(self) -> bool:
        """Whether the training was interrupted at the last write."""
        return self.old.phase == "Restarting" and self.before.cause != TRAINED

    @property
    def _continues(self) -> bool:
        """Whether the interruption is still that of the last write, because no other incident has come since. A loss
        that the launchers reported, and what the operator learned about it later, are one incident."""
        if not self._interrupted or self.known is None or self.last is None or self._same_record:
            return self._interrupted
        return self.known.down_seconds is not None or self.known.reason in LOSSES

    @property
    def _seen(self) -> float:
        """The seconds of the interruption that are counted already."""
        return self._since_seconds if self._continues else 0.0

    @property
    def _since_seconds(self) -> float:
        assert self.before.since is not None
        return max(0.0, (self.at - self.before.since).total_seconds())

    def _move(self, source: str, target: str, amount: float) -> None:
        self.seconds = _moved(self.seconds, source, target, amount)


def _blocked(progress: Progress | None) -> float | None:
    return progress.backup.blocked_seconds if progress is not None and progress.backup is not None else None
