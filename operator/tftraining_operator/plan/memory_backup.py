"""Backups in memory as the status has them: the newest one, why there are none, and their end after an OOMKilled.

The launchers make the backups and report them. The operator decides one thing: a container that was killed for its
memory takes the volume for backups away from all pods that the job gets from then on.
"""

import msgspec

from tftraining_api.manifests.memory_backup import has_volume
from tftraining_api.model.names import Replica, pod_name
from tftraining_api.model.status import Backup, Progress, Status
from tftraining_operator.plan.context import Context, Draft
from tftraining_operator.plan.step import Event

OOM_KILLED = "OOMKilled"


def without_backup(status: Status) -> Status:
    """The status of a job whose pods all end: their memory ends with them."""
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
    event = Event("Warning", "MemoryBackupOff", f"{reason}: new pods make no backups in memory")
    return draft.with_status(memory_backup_off=reason, progress=progress).with_events(event)


def announce_backups(context: Context, draft: Draft) -> Draft:
    """The draft with the event of the first backup in memory, or of their end for a reason of the launchers."""
    old, new = context.status.progress or Progress(), draft.status.progress or Progress()
    on = draft.report is not None and draft.report.backup is not None and draft.report.backup.on
    if on and new.backup and not old.backup:
        return draft.with_events(Event("Normal", "MemoryBackupOn", f"backups in memory: {_described(new.backup)}"))
    is_news = new.backup_reason != old.backup_reason and draft.status.memory_backup_off is None
    if on or not old.backup or not new.backup_reason or not is_news:
        return draft
    return draft.with_events(Event("Warning", "MemoryBackupOff", f"no more backups in memory: {new.backup_reason}"))


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
    return [*killed, *(each for each in context.spec.gang if pod_name(job, each) == last.pod)]
