"""When a change of the status is written: at once, or later together with further changes.

A write of the status costs the API server as much as four pods: it evaluates every rule of the schema. Jobs that train
have news of their progress at every poll, so all of them together get PROGRESS_WRITES writes a second for it. Anything
else is never held up by that budget.
"""

import zlib
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from tftraining_api.model.job import Job, dump_status
from tftraining_api.model.keras import LEGACY
from tftraining_api.model.status import Progress, Status

COUNTS_INTERVAL = timedelta(seconds=1)
PROGRESS_INTERVAL = timedelta(seconds=10)
# Status writes a second that change only the progress, for all jobs together.
PROGRESS_WRITES = 15
# The names that lead to a field of a status; ITEM stands for every item of a list.
Path = tuple[str, ...]
ITEM = "*"
KERAS: Path = ("keras",)
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


def is_written(old: Status, new: Status, dropped: frozenset[Path] = frozenset()) -> bool:
    """Whether there is nothing to write, not counting the `dropped` fields. The history is written with the progress
    and never alone, the account of the time with anything else; the last answered request for a restart, which the pods
    tell, too, and so is the Keras of a job that an earlier version has begun."""
    restarts = msgspec.structs.replace(new.restarts, restarted_at=old.restarts.restarted_at)
    keras = old.keras if old.replicas and new.keras == LEGACY else new.keras
    new = msgspec.structs.replace(new, history=old.history, goodput=old.goodput, restarts=restarts, keras=keras)
    return new == old or (bool(dropped) and _without(dump_status(new), dropped) == _without(dump_status(old), dropped))


def dropped_fields(sent: Any, kept: Any, path: Path = ()) -> Iterator[Path]:
    """The fields of a written status that the API server has not kept: its definition of the resource is older than the
    field. To write them again would change nothing, and each pass would write."""
    if isinstance(sent, dict) and isinstance(kept, dict):
        for name, value in sent.items():
            yield from dropped_fields(value, kept[name], (*path, name)) if name in kept else ((*path, name),)
    elif isinstance(sent, list) and isinstance(kept, list):
        for before, after in zip(sent, kept, strict=False):
            yield from dropped_fields(before, after, (*path, ITEM))


def _without(value: Any, dropped: Collection[Path], path: Path = ()) -> Any:
    """The value without these fields, and without what is empty then."""
    if isinstance(value, list):
        return [_without(each, dropped, (*path, ITEM)) for each in value]
    if not isinstance(value, dict):
        return value
    fields = {name: (*path, name) for name in value}
    kept = {name: _without(value[name], dropped, where) for name, where in fields.items() if where not in dropped}
    return {name: each for name, each in kept.items() if each != {}}


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

    A new job gets its children first and its status later, because a crash in between loses nothing. A job with
    launchers is an exception: status.keras is stored before its pods are created.
    """
    if new.reason == "PodsNotReady" != old.reason:
        return False  # this tells the waiting user why the training does not start
    begins = (old.phase, new.phase) == ("Pending", "Starting") and old.keras == new.keras
    return begins or _only_counts(old, new)


def _only_counts(old: Status, new: Status) -> bool:
    """Whether only numbers changed: these may wait, so that 200 pods do not cost 200 writes."""
    waiting = ("replicas", "ready", "message", "reason", "progress", "accepted_templates", "history", "goodput")
    numbers = {name: getattr(old, name) for name in waiting}
    values = [(each.type, each.status) for each in old.conditions]
    return values == [(each.type, each.status) for each in new.conditions] and (
        msgspec.structs.replace(new, **numbers, conditions=old.conditions) == old
    )
