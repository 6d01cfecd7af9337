"""Backups in memory as the status has them: the newest one, why there are none, and where a restart resumes.

The launchers make the backups and report them. The operator decides one thing: a container that was killed for its
memory, or a resumed training that was found to differ from the undisturbed one, takes the volume for backups away from
all pods that the job gets from then on.
The condition MemoryBackup says where the next restart resumes, and remembers which event was published: a definition
of the resource that is older than the operator drops the other fields, but no condition.
"""

import msgspec

from tftraining.launch.failure_and_restart_messages import differs, was_oom_killed
from tftraining.launch.in_user_process.shared.copy_reasons import ENDED, WAITS
from tftraining_api.manifests.memory_backup import has_volume
from tftraining_api.model import resumes_at
from tftraining_api.model.names import Replica, member_of
from tftraining_api.model.status import (
    INPUT_NOT_REPRODUCIBLE,
    MEMORY_BACKUP,
    OOM_KILLED,
    REPLICAS_DIFFER,
    RESUMED_TRAINING_DIFFERS,
    Backup,
    ConditionStatus,
    Status,
)
from tftraining_operator.model.conditions import with_condition, without_condition
from tftraining_operator.model.launcher_report import ReportedBackup
from tftraining_operator.plan.context import Context, Draft
from tftraining_operator.plan.step import Event

ON, OFF, NOT_YET = "MemoryBackupOn", "MemoryBackupOff", "NoBackupYet"
SEPARATOR = "; "  # in the message of the condition
REQUIRE = "; spec.launcher.memoryBackup.exactness: Required forbids it"
EQUAL = "the copies of all replicas have compared equal since"
REPRODUCIBLE = ("Training", "no backup is made inside an epoch of an input that is not known to be reproducible")


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
    reason = was_oom_killed(killed[0])
    event = Event("Warning", OFF, f"{reason}: new pods make no backups in memory")
    return _turned_off(context, draft, (OOM_KILLED, reason)).with_events(event)


def turn_off_after_violation(context: Context, draft: Draft) -> Draft:
    """The draft with the condition ResumedTrainingDiffers and its event, at the first violation of the job. The
    launchers have ended the backups; its new pods have no volume."""
    found = draft.report.violation if draft.report is not None else ""
    if not found or draft.status.is_true(RESUMED_TRAINING_DIFFERS):
        return draft
    message = differs(found)
    why, event = (RESUMED_TRAINING_DIFFERS, message), f"{message}; no more backups in memory"
    status = with_condition(draft.status, RESUMED_TRAINING_DIFFERS, "True", why, context.now)
    draft = draft.with_fields(status=status).with_events(Event("Warning", RESUMED_TRAINING_DIFFERS, event))
    return draft if status.no_more_backups is not None else _turned_off(context, draft, why)


def warn_of_input(context: Context, draft: Draft) -> Draft:
    """The draft with the condition InputNotReproducible while such backups are made."""
    report, known = draft.report, draft.status.is_true(INPUT_NOT_REPRODUCIBLE)
    if report is None or not (report.input_not_reproducible or (known and report.phase == "Training")):
        return draft
    if not report.input_not_reproducible:
        return _with_condition(context, draft, "False", REPRODUCIBLE, INPUT_NOT_REPRODUCIBLE)
    why = (INPUT_NOT_REPRODUCIBLE, resumes_at.NOT_REPRODUCIBLE + REQUIRE)
    return _with_condition(context, draft, "True", why, INPUT_NOT_REPRODUCIBLE)


def warn_of_replicas(context: Context, draft: Draft) -> Draft:
    """The draft with the condition ReplicasDiffer, and its event where replicas begin to differ. It becomes False where
    copies of a later round have compared equal, and tells differences of rounding."""
    report, known = draft.report and draft.report.backup, draft.status.condition(REPLICAS_DIFFER)
    if not report:
        return draft
    if not report.replicas_differ:
        told = report.replicas or EQUAL
        is_news = report.replicas_compared and (report.replicas or known is not None)
        return _with_condition(context, draft, "False", ("Training", told), REPLICAS_DIFFER) if is_news else draft
    why = (REPLICAS_DIFFER, report.replicas)
    event = [] if known and known.status == "True" else [Event("Warning", REPLICAS_DIFFER, report.replicas)]
    return _with_condition(context, draft, "True", why, REPLICAS_DIFFER).with_events(*event)


def announce_backups(context: Context, draft: Draft) -> Draft:
    """The draft with the condition and, once, the event of the first backup in memory, or of their end for a reason of
    the launchers."""
    status, report = draft.status, draft.report and draft.report.backup
    if not report or status.progress is None or status.no_more_backups is not None:
        return draft
    if report.on:
        return _with_backups(context, draft, report)
    # A program that starts has no backups yet, and may have told why it will not resume at the step.
    why = report.reason or (report.resumes_at_reason if report.resumes_at == "Storage" else "")
    told, was_on = status.condition(MEMORY_BACKUP), status.is_true(MEMORY_BACKUP)
    # Launchers of the version before say nothing of a job that has never had a backup.
    if not why or not (told or was_on or report.resumes_at) or (was_on and why.startswith((WAITS, ENDED))):
        return draft
    draft = _with_condition(context, draft, "False", (OFF, resumes_at.where(report.resumes_at, why) or why))
    return draft.with_events(Event("Warning", OFF, f"no more backups in memory: {why}")) if was_on else draft


def _with_backups(context: Context, draft: Draft, report: ReportedBackup) -> Draft:
    """The draft of a job that makes backups in memory, with the event of the first one."""
    told, progress = draft.status.condition(MEMORY_BACKUP), draft.status.progress
    if told is not None and told.status == "True":
        told_before, _, _ = told.message.partition(SEPARATOR)
        message = _with_place(told_before, report)
        return _with_condition(context, draft, "True", (ON, message)) if report.resumes_at else draft
    backup = progress.backup if progress is not None else None
    if backup is None:
        message = _with_place("no backup yet", report)
        return _with_condition(context, draft, "Unknown", (NOT_YET, message)) if report.resumes_at else draft
    draft = _with_condition(context, draft, "True", (ON, _with_place(_describe(backup), report)))
    return draft.with_events(Event("Normal", ON, f"backups in memory: {_describe(backup)}"))


def _with_place(first: str, report: ReportedBackup) -> str:
    """The words about the first backup, and where a restart resumes, as far as the launchers tell it."""
    where = resumes_at.where(report.resumes_at, report.resumes_at_reason)
    return SEPARATOR.join(filter(None, (first, where, resumes_at.begins_anew(report.begins_anew))))


def _turned_off(context: Context, draft: Draft, why: tuple[str, str]) -> Draft:
    """The draft whose later pods have no volume; `why` is the reason and the message of the condition."""
    progress = draft.status.progress and msgspec.structs.replace(draft.status.progress, backup_reason=why[1])
    draft = draft.with_status_fields(memory_backup_off=why[1], progress=progress)
    return _with_condition(context, draft, "False", why)


def _with_condition(
    context: Context, draft: Draft, value: ConditionStatus, why: tuple[str, str], kind: str = MEMORY_BACKUP
) -> Draft:
    return draft.with_fields(status=with_condition(draft.status, kind, value, why, context.now))


def _describe(backup: Backup) -> str:
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
