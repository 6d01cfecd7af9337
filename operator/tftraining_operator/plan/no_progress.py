"""The condition NoProgress: whether the training has stalled because a member made no step for stallTimeoutSeconds, or
for unusually long (NoStep), or has not begun ten minutes after the start in a job that has set no startDeadlineSeconds.

The chief's launcher detects the stall, and restarts the gang for the first of these reasons; the condition is True
until all members make steps again, or the job ends or is suspended. A job that never stalled does not have the
condition. Its name is not Stalled, the reason of the restart, because kstatus reads Stalled=True as a failed job (see
model/kstatus.py).
"""

from datetime import datetime

from tftraining.launch.failure_and_restart_messages import NO_STEP, SLOW_START
from tftraining_api.model.status import LastRestart, Status
from tftraining_operator.model.conditions import with_condition
from tftraining_operator.model.launcher_report import Report
from tftraining_operator.plan.step import Event

NO_PROGRESS = "NoProgress"
STALLED = "Stalled"
TOLD = (SLOW_START, NO_STEP)  # the reasons for which nothing restarts; the launchers report their messages


def with_stall(status: Status, report: Report, record: LastRestart | None, now: datetime) -> Status:
    """The status with the condition that follows from the launchers' last restart."""
    if record is not None and record.reason == STALLED and record.down_seconds is None:
        how = "made no step for spec.runPolicy.stallTimeoutSeconds; restarting the gang"
        return with_condition(status, NO_PROGRESS, "True", (STALLED, f"{record.pod or 'a member'} {how}"), now)
    if report.reason in TOLD:
        return with_condition(status, NO_PROGRESS, "True", (report.reason, report.message), now)
    # Only the phase Training ends the condition: a new launcher of the chief knows of no restart, and another incident
    # may delay the next step.
    over = ("Training", "all members make steps again")
    return no_progress_over(status, over, now) if report.phase == "Training" else status


def no_progress_events(before: Status, status: Status) -> tuple[Event, ...]:
    """The event of a gang that makes no step, or has not begun to train; once until it does."""
    old, new = before.condition(NO_PROGRESS), status.condition(NO_PROGRESS)
    if new is None or new.status != "True" or new.reason not in TOLD:
        return ()
    is_known = old is not None and (old.status, old.reason) == ("True", new.reason)
    return () if is_known else (Event("Warning", new.reason, new.message or ""),)


def why_no_step(report: Report | None) -> str:
    """The members that make no step, as an addition to the message of a gang that trains."""
    return f"; {report.message} ({NO_STEP})" if report is not None and report.reason == NO_STEP else ""


def no_progress_over(status: Status, why: tuple[str, str], now: datetime) -> Status:
    """The status of a job that makes progress again; `why` is the reason and the message of the condition."""
    return with_condition(status, NO_PROGRESS, "False", why, now) if status.is_true(NO_PROGRESS) else status
