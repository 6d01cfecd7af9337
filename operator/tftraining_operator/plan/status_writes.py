"""When a change of the status is written: at once, or later together with further changes.

A write of the status costs the API server as much as four pods: it evaluates every rule of the schema. Jobs that train
have news of their progress at every poll, so all of them together get PROGRESS_WRITES writes a second for it. Anything
else is never held up by that budget.
"""

import zlib
from datetime import UTC, datetime, timedelta

import msgspec

from tftraining_api.model.job import Job
from tftraining_api.model.status import Progress, Status

COUNTS_INTERVAL = timedelta(seconds=1)
PROGRESS_INTERVAL = timedelta(seconds=10)
# Status writes a second that change only the progress, for all jobs together.
PROGRESS_WRITES = 15
_EPOCH = datetime.min.replace(tzinfo=UTC)


def due(job: Job, new: Status, written: datetime, training: int) -> datetime:
    """When the new status of the job, which was last written at `written`, is to be written.

    `training` is the number of jobs whose launchers tell of progress.
    """
    if is_progress(job.status, new):
        return _progress_due(job, new.progress, written, _turn(training))
    return written + COUNTS_INTERVAL if can_wait(job.status, new) else written


def longest_delay(training: int) -> timedelta:
    """How long a status whose only news is the step of an epoch may wait, as `due` lets it wait."""
    return max(PROGRESS_INTERVAL, _turn(training))


def _turn(training: int) -> timedelta:
    """The time in which each of so many jobs has one write of its progress."""
    return timedelta(seconds=training / PROGRESS_WRITES)


def is_written(old: Status, new: Status) -> bool:
    """Whether there is nothing to write. The history is written with the progress and never alone: an API server whose
    definition of the resource is older drops it from every write. So is the place where a restart resumes, which the
    condition MemoryBackup tells too; and the last answered request for a restart, which the pods tell."""
    before = old.progress.backup if old.progress is not None else None
    progress = new.progress
    if before is not None and progress is not None and progress.backup is not None:
        backup = msgspec.structs.replace(progress.backup, resumes_at=before.resumes_at)
        progress = msgspec.structs.replace(progress, backup=backup)
    restarts = msgspec.structs.replace(new.restarts, restarted_at=old.restarts.restarted_at)
    return msgspec.structs.replace(new, history=old.history, progress=progress, restarts=restarts) == old


def is_progress(old: Status, new: Status) -> bool:
    """Whether nothing but the progress, and the history with it, has changed."""
    return is_written(old, msgspec.structs.replace(new, progress=old.progress))


def _progress_due(job: Job, new: Progress | None, written: datetime, share: timedelta) -> datetime:
    """When a write that changes only the progress is due. Each job has its own moment in every `share` of time, so that
    jobs that are written together once do not stay together."""
    old = job.status.progress
    new_epoch = old is None or new is None or old.epoch != new.epoch
    least = written + (COUNTS_INTERVAL if new_epoch else PROGRESS_INTERVAL)
    if not share:
        return least
    moment = zlib.crc32(job.uid.encode()) / 2**32 * share
    return max(least, written + share - (written - _EPOCH - moment) % share)


def can_wait(old: Status, new: Status) -> bool:
    """Whether nothing is lost if the new status is not written now.

    A new job has no past that a crash could lose: it gets its children first, and is described after them.
    """
    if new.reason == "PodsNotReady" != old.reason:
        return False  # this tells the waiting user why the training does not start
    return (old.phase, new.phase) == ("Pending", "Starting") or _only_counts(old, new)


def _only_counts(old: Status, new: Status) -> bool:
    """Whether only numbers changed: these may wait, so that 200 pods do not cost 200 writes."""
    waiting = ("replicas", "ready", "message", "reason", "progress", "accepted_templates", "history")
    numbers = {name: getattr(old, name) for name in waiting}
    values = [(each.type, each.status) for each in old.conditions]
    return values == [(each.type, each.status) for each in new.conditions] and (
        msgspec.structs.replace(new, **numbers, conditions=old.conditions) == old
    )
