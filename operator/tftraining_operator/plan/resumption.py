"""The condition Resumed where the operator has to find out by itself that the training went on from a backup.

* After the operator has created the whole gang anew (a change of the spec, a suspension, the loss of every pod): those
  launchers know of no restart, only of the epochs that were done before they began.
* In a job that goes on from the backup of an earlier run. Deleting a job cleans no storage, so a job of the same
  directory resumes there, and says so once: nobody may take the training for a new one. The work is an earlier run's
  as long as this job has never restarted and was never suspended.
"""

from datetime import datetime

import msgspec

from tftraining.launch.failure_and_restart_messages import earlier_run
from tftraining.launch.progress import lost_seconds, lost_steps
from tftraining_api.model.status import LastRestart, Progress, Status
from tftraining_operator.model.conditions import with_condition
from tftraining_operator.model.launcher_report import Report, ReportedProgress
from tftraining_operator.plan.context import Context, Draft
from tftraining_operator.plan.goodput import with_repeated
from tftraining_operator.plan.launcher_report import other_fit
from tftraining_operator.plan.messages import resumed, resumption, with_resumed
from tftraining_operator.plan.step import Event

EARLIER_RUN = "EarlierRun"
AFTER_SUSPENSION = ", after the suspension"


def with_place(status: Status, before: Progress | None, report: Report | None, now: datetime) -> Status:
    """The status of a gang that trains, with the epoch or step from which it went on, if that is news.

    `before`: the progress as the last pass knew it, so that of the earlier pods when the new ones tell for the first
    time.
    """
    began = _began(report)
    if report is None or report.last_restart is not None or began is None:
        return status
    last = status.latest_restart
    if last is not None and not last.alone and (_is_open(last) or _resumes_later(last, began)):
        last = _with_lost(_at(last, began), before, began) if _is_open(last) else _with_less_lost(last, began)
        return with_resumed(msgspec.structs.replace(status, last_restart=last), last, now)
    if last is None and status.attempt > 1:
        return _after_suspension(status, before, began, now)
    return status


def _after_suspension(status: Status, before: Progress | None, began: ReportedProgress, now: datetime) -> Status:
    """The status with the place, and with the steps lost: they are known while the progress is that of the pods before
    the suspension, and stay."""
    record, told = _at(LastRestart(time=now), began), status.condition("Resumed")
    if before is not None and before.updated_time and status.start_time and before.updated_time < status.start_time:
        record = _with_lost(record, before, began)
        status = with_repeated(status, record.lost_seconds)
    elif told is not None and told.message.startswith(resumption(record) + AFTER_SUSPENSION):
        return status
    return with_resumed(status, record, now, AFTER_SUSPENSION)


def announce_earlier_run(context: Context, draft: Draft) -> Draft:
    """The draft with the event and the condition where the training began with the work of an earlier run."""
    report, began = draft.report, _began(draft.report)
    if report is None or began is None or not _is_first(context, draft, report):
        return draft
    if not (message := earlier_run(began.first_epoch, began.first_step)):
        return draft
    status = with_condition(draft.status, "Resumed", "True", (EARLIER_RUN, message), context.now)
    return draft.with_fields(status=status).with_events(Event("Normal", EARLIER_RUN, message))


def _is_first(context: Context, draft: Draft, report: Report) -> bool:
    """Whether the programs that train are the first that this job has started."""
    status = draft.status
    restarted = status.last_restart is not None or report.last_restart is not None or status.attempt > 1
    return status.phase == "Running" and not restarted and context.status.condition("Resumed") is None


def _began(report: Report | None) -> ReportedProgress | None:
    """The progress of programs that train, and tell where they began."""
    began = report.progress if report is not None and report.phase == "Training" else None
    return None if began is None or (began.first_epoch, began.first_step) == (None, None) else began


def _is_open(last: LastRestart) -> bool:
    return (last.resumed_from_epoch, last.resumed_from_step) == (None, None)


def _resumes_later(last: LastRestart, began: ReportedProgress) -> bool:
    """Whether a later `fit` of the programs has resumed, behind earlier ones that began again."""
    return last.resumed_from == "Start" and bool(began.first_epoch or began.first_step)


def _at(last: LastRestart, began: ReportedProgress) -> LastRestart:
    """The record of a restart with new pods only: their memory is empty, so what they resumed from is storage."""
    last = msgspec.structs.replace(last, resumed_from_epoch=began.first_epoch, resumed_from_step=began.first_step)
    return msgspec.structs.replace(last, resumed_from="Storage" if resumed(last) else "Start")


def _with_lost(last: LastRestart, before: Progress | None, began: ReportedProgress) -> LastRestart:
    """The record with the lost steps: those between the last one that the earlier pods reported and the first one of
    the new pods. Each `fit` counts its own steps, so without the total of all `fit`s the steps of two different ones
    are not compared."""
    if before is None or before.step is None or began.first_step is None:
        return last
    if before.total_steps is not None and began.first_total_steps is not None:
        steps = lost_steps(before.total_steps, before.total_steps - before.step, began.first())
    elif other_fit(before.fit, began.fit):
        steps = None
    else:
        steps = max(0, before.step - began.first_step)
    return _losing(last, steps, before.steps_per_second)


def _with_less_lost(last: LastRestart, began: ReportedProgress) -> LastRestart:
    """The record when a later `fit` has resumed, so that fewer steps are lost than the record says: it counted all
    steps of the earlier pods. Only the record still knows how many these were."""
    lost, rate = None, None
    if last.lost_steps is not None and began.first_total_steps is not None:
        lost = lost_steps(last.lost_steps, last.lost_steps, began.first())
        rate = last.lost_steps / last.lost_seconds if last.lost_seconds else None
    return _losing(_at(last, began), lost, rate)


def _losing(last: LastRestart, steps: int | None, rate: float | None) -> LastRestart:
    return msgspec.structs.replace(last, lost_steps=steps, lost_seconds=lost_seconds(steps, rate))
