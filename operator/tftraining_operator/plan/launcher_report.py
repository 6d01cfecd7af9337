"""The report of the chief's launcher, merged into the status: restarts in place, their cost, progress.

The launchers restart programs by themselves; the operator only records it. A restart is news when the count of restarts
in place has risen, whatever the clocks of the pods say; the failure of a program is news before that, because the next
round may wait for a back-off or a missing member. The operator does not trust pods: a report changes the status of its
own job only.
"""

from datetime import datetime, timedelta

import msgspec

from tftraining.launch.failure.incident import LOSSES
from tftraining.launch.failure.restart_budget import merge
from tftraining.launch.failure.restart_rules import REASONS
from tftraining.launch.failure.same_member import NEW_POD
from tftraining_api.model.job import Job
from tftraining_api.model.names import member_of, pod_name
from tftraining_api.model.status import LastRestart, Progress, Restarts, Status
from tftraining_operator.model.history import with_history
from tftraining_operator.model.launcher_report import Report, ReportedLedger, ReportedProgress, ReportedRestart
from tftraining_operator.plan.context import Context, Draft
from tftraining_operator.plan.messages import account, with_failure, with_resumed
from tftraining_operator.plan.no_progress import NO_PROGRESS, TOLD, no_progress_events, with_stall
from tftraining_operator.plan.step import Event

# How far apart the launcher's time of a lost pod and the operator's may be: a lost node is given up late.
SAME_INCIDENT = timedelta(minutes=10)
# The same where launcher and operator name different pods of several that were lost together.
TOGETHER = timedelta(seconds=5)
# The back-off goes by these times; a clock that is further ahead is wrong.
CREDIBLE = timedelta(minutes=5)


def merge_report(context: Context, draft: Draft) -> Draft:
    """The draft with the launcher's account of restarts and progress in its status."""
    before, report = draft.status, draft.report
    if report is None:
        return draft
    status = with_latest(_merged(context.job, before, report, context.now), report)
    stands = no_progress_events(before, status) if report.reason in TOLD else ()
    return draft.with_fields(status=status).with_events(*_restarted_in_place(context, before, status), *stands)


def _restarted_in_place(context: Context, before: Status, status: Status) -> tuple[Event, ...]:
    """The event of a restart in place: when its failure is known, otherwise when the count of these restarts rises."""
    last, job, known = status.last_restart, context.job.key.name, before.last_restart
    is_same = known is not None and last is not None and known.time == last.time
    is_failure = last is not None and last.reason in REASONS
    has_risen = status.restarts.in_place > before.restarts.in_place
    if last is None or (is_same if is_failure else not has_risen):
        return ()
    given_up = member_of(job, last.pod or "") in status.replaced
    harmless = given_up or last.reason not in REASONS
    return (Event("Normal" if harmless else "Warning", last.reason or "Error", account(job, last)),)


def _merged(job: Job, status: Status, report: Report, now: datetime) -> Status:
    """The status with the launcher's account of its restarts."""
    last, is_news = report.last_restart, report.ledger.in_place > status.restarts.in_place
    status = msgspec.structs.replace(status, restarts=merged(status.restarts, report.ledger))
    reported = restart_record(job.key.name, last, status) if last else None
    if reported is not None or status.is_true(NO_PROGRESS) or report.reason in TOLD:
        status = with_stall(status, report, reported, now)
    if reported is None or reported.time > now + CREDIBLE:
        return status
    is_news = is_news or _is_new_failure(status.last_restart, reported, report)
    trains = status.phase == "Running"
    record = _merged_record(job.key.name, status.last_restart, reported, is_news, trains)
    if record is None:
        return status
    status = msgspec.structs.replace(status, last_restart=record)
    if is_news:
        status = _with_failure(job, status, report)
    restarting = reported.down_seconds is None and not reported.alone
    if is_news and restarting and status.phase in ("Starting", "Running"):
        message = account(job.key.name, reported)
        status = msgspec.structs.replace(status, phase="Restarting", reason=reported.reason, message=message)
    return _with_resumed(status, record, now)


def _is_new_failure(old: LastRestart | None, reported: LastRestart, report: Report) -> bool:
    """Whether the launchers wait before they restart a program whose failure the status does not have. Lost members are
    left out, because the operator knows more about them than the launchers, and so is a failure that ends the job,
    because it restarts nothing."""
    waits = reported.down_seconds is None and report.phase != "Failed"
    return waits and reported.reason in REASONS and (old is None or reported.time > old.time)


def restart_record(job: str, reported: ReportedRestart, status: Status) -> LastRestart | None:
    """status.lastRestart as the launchers report it; None if it has no time."""
    if reported.time is None:
        return None
    down = reported.down_seconds
    return LastRestart(
        time=reported.time,
        pod=present_pod(job, reported.member, status) if reported.member else None,
        exit_code=reported.exit_code,
        signal=reported.signal,
        reason=reported.reason or "Error",
        down_seconds=None if down is None else round(down, 2),
        resumed_from_epoch=reported.resumed_from_epoch,
        resumed_from_step=reported.resumed_from_step,
        resumed_from=reported.resumed_from or None,
        lost_steps=reported.lost_steps,
        lost_seconds=reported.lost_seconds,
        backup_skipped=reported.backup_skipped or None,
        alone=reported.alone,
        exception=reported.exception or None,
    )


def present_pod(job: str, member: str, status: Status) -> str:
    """The name of the pod that the member has now."""
    return pod_name(job, member, status.successors.get(member, 0))


def merged(restarts: Restarts, reported: ReportedLedger) -> Restarts:
    """The counters of operator and launchers merged."""
    return restarts.with_ledger(merge(restarts.ledger, reported.ledger()))


def with_latest(status: Status, report: Report | None) -> Status:
    """The status with the progress and the history of the report; status_writes decides when they are written."""
    if report is None:
        return status
    status = with_history(status, report.history)
    return _with_backup(status if report.progress is None else with_reported(status, report.progress), report)


def _with_backup(status: Status, report: Report) -> Status:
    """The status with the newest backup in memory, or with the reason why there is none. Launchers that do not report
    their backups still hold them while they restart the programs."""
    progress, reported = status.progress, report.backup
    if progress is None or (reported is None and report.phase != "Training"):
        return status
    reason = status.no_more_backups or (reported and (reported.reason or reported.resumes_at_reason)) or None
    backup = reported.backup() if reported else None
    return msgspec.structs.replace(
        status, progress=msgspec.structs.replace(progress, backup=backup, backup_reason=reason)
    )


def with_reported(status: Status, reported: ReportedProgress) -> Status:
    """The status with that progress. A restarted program reports only steps until it begins an epoch, and metrics at
    the end of an epoch: until then the status keeps the values of before, unless they are those of another `fit`."""
    old, new = status.progress or Progress(), reported.progress()
    if new.epoch is None and old.epoch is not None:
        new = msgspec.structs.replace(new, epoch=old.epoch, epochs=new.epochs or old.epochs, display=old.display)
    saved = old.checkpoint if new.checkpoint is None else new.checkpoint
    kept = {"backup": old.backup, "backup_reason": old.backup_reason}
    metrics = {} if other_fit(old.fit, new.fit) else old.metrics
    new = msgspec.structs.replace(new, metrics=new.metrics or metrics, checkpoint=saved, **kept)
    return msgspec.structs.replace(status, progress=new)


def other_fit(one: int | None, other: int | None) -> bool:
    """Whether these are numbers of two calls of `fit`."""
    return None not in (one, other) and one != other


def _merged_record(
    job: str, old: LastRestart | None, reported: LastRestart, is_news: bool, trains: bool
) -> LastRestart | None:
    """status.lastRestart with the launcher's account of that restart; None if the launcher reports an earlier one."""
    if (
        old is not None
        and (reported.reason in LOSSES or old.reason in NEW_POD)
        and reported.reason != old.reason
        and _is_same(job, old, reported)
    ):
        # The operator knows better how the lost pod ended, the launcher what came of it.
        cause = {each: getattr(old, each) for each in ("time", "pod", "exit_code", "signal", "reason", "exception")}
        # A report that is older than the readiness of the pods does not make a gang stand still that trains.
        down = old.down_seconds if reported.down_seconds is None and trains else reported.down_seconds
        return msgspec.structs.replace(reported, **cause, down_seconds=down)
    if old is not None and old.time == reported.time and _is_same_member(job, old, reported):
        return msgspec.structs.replace(reported, pod=old.pod)  # its successor may have another name
    return reported if is_news or (old is not None and old.time == reported.time) else None


def _is_same(job: str, old: LastRestart, reported: LastRestart) -> bool:
    """Whether the loss that the launchers report is the recorded one."""
    return abs(old.time - reported.time) < (SAME_INCIDENT if _is_same_member(job, old, reported) else TOGETHER)


def _is_same_member(job: str, old: LastRestart, reported: LastRestart) -> bool:
    return member_of(job, old.pod or "") == member_of(job, reported.pod or "")


def _with_failure(job: Job, status: Status, report: Report) -> Status:
    """The status with status.failure: the failure behind a restart in place."""
    culprit, last = report.failure, report.last_restart
    if culprit is None or last is None or culprit.member is None or culprit.member != last.member:
        return status
    pod, reason = present_pod(job.key.name, culprit.member, status), culprit.reason or last.reason
    return with_failure(status, pod, culprit, reason, culprit.log_tail)


def _with_resumed(status: Status, record: LastRestart, now: datetime) -> Status:
    """The status with the condition Resumed, and with the epoch from which progress counts."""
    if record.resumed_from_epoch is None and record.resumed_from_step is None:
        return status
    restarts = status.restarts
    if record.resumed_from_epoch is not None:
        epoch = max(restarts.epoch or 0, record.resumed_from_epoch + 1)
        restarts = msgspec.structs.replace(restarts, epoch=epoch)
    if record.resumed_from_step:
        checkpoint = max(restarts.checkpoint or 0, record.resumed_from_step)
        restarts = msgspec.structs.replace(restarts, checkpoint=checkpoint)
    return with_resumed(msgspec.structs.replace(status, restarts=restarts), record, now)
