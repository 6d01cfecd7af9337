"""Backups in memory as the status has them: the newest one, why there are none, and their end after an OOMKilled.

The launchers make the backups and report them. The operator decides one thing: a container that was killed for its
memory takes the volume for backups away from all pods that the job gets from then on.
The condition MemoryBackup remembers which event was published: a definition of the resource that is older than the
operator drops the other fields, but no condition.
"""

import msgspec

from tftraining_api.manifests.memory_backup import has_volume
from tftraining_api.model.names import Replica, member_of
from tftraining_api.model.status import MEMORY_BACKUP, OOM_KILLED, Backup, ConditionStatus, Status
from tftraining_operator.model.conditions import with_condition, without_condition
from tftraining_operator.plan.context import Context, Draft
from tftraining_operator.plan.step import Event

ON, OFF = "MemoryBackupOn", "MemoryBackupOff"


def without_backup(status: Status) -> Status:
    """The status of a job whose pods all end: their memory ends with them."""
    if status.condition(MEMORY_BACKUP) is not None and status.no_more_backups is None:
        status = without_condition(status, MEMORY_BACKUP)
    if status.progress is None or status.progress.backup is None:
        return status
    return msgspec.structs.replace(status, progress=msgspec.structs.replace(status.progress, backup=None))


def turn_off_after_oom(context: Context, draft: Draft) -> Draft:
    """The draft that keeps in the status which member was OOMKilled; its pods from then on have no volume."""
    status = draft.status
    killed = [each for each in _oom_killed(context, draft) if has_volume(status, context.spec, each)]
    if not killed:
        return draft
    reason = f"{killed[0]} was {OOM_KILLED}"
    progress = status.progress and msgspec.structs.replace(status.progress, backup_reason=reason)
    event = Event("Warning", OFF, f"{reason}: new pods make no backups in memory")
    draft = draft.with_status(memory_backup_off=reason, progress=progress)
    return _with_condition(context, draft, "False", (OOM_KILLED, reason)).with_events(event)


def announce_backups(context: Context, draft: Draft) -> Draft:
    """The draft with the condition and, once, the event of the first backup in memory, or of their end for a reason of
    the launchers. A status of an earlier version has backups and no condition."""
    status, report = draft.status, draft.report and draft.report.backup
    if not report or status.progress is None or status.no_more_backups is not None:
        return draft
    before, told = context.status.progress, status.condition(MEMORY_BACKUP)
    had_backups = before is not None and before.backup is not None
    backup, reason = status.progress.backup, status.progress.backup_reason
    if report.on:
        if backup is None or status.is_true(MEMORY_BACKUP):
            return draft
        event = Event("Normal", ON, f"backups in memory: {_described(backup)}")
        draft = _with_condition(context, draft, "True", (ON, _described(backup)))
        return draft if told is None and had_backups else draft.with_events(event)
    is_told = told is not None and (told.status, told.message) == ("False", reason)
    if not reason or is_told or (told is None and not had_backups):
        return draft
    event = Event("Warning", OFF, f"no more backups in memory: {reason}")
    return _with_condition(context, draft, "False", (OFF, reason)).with_events(event)


def _with_condition(context: Context, draft: Draft, value: ConditionStatus, why: tuple[str, str]) -> Draft:
    return draft.but(status=with_condition(draft.status, MEMORY_BACKUP, value, why, context.now))


def _described(backup: Backup) -> str:
    """`the first at step 400, 76.0 MB a member`."""
    size = "" if backup.bytes is None else f", {backup.bytes / 1e6:.1f} MB a member"
    return f"the first at step {backup.step}{size}"


def _oom_killed(context: Context, draft: Draft) -> list[Replica]:
    """The replicas whose training container has been killed for its memory: by the ends of their pods, and by the
    launchers' account of a restart that no status has yet."""
    members, before, last = draft.gang.members, context.status.last_restart, draft.status.last_restart
    killed = [each for each, pod in members.items() if pod.exit is not None and pod.exit.reason == OOM_KILLED]
    is_news = last is not None and (before is None or before.time != last.time)
    if last is None or last.reason != OOM_KILLED or not is_news:
        return killed
    job = context.job.key.name
    return [*killed, *(each for each in context.spec.gang if str(each) == member_of(job, last.pod or ""))]
