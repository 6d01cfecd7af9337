"""The condition Stalled: whether the training stands still because a member made no step for stallTimeoutSeconds.

The launchers' watchdog finds it out and restarts the gang; the condition tells of it until all train again, or the job
ends or is suspended. A job that never stalled does not have it.
"""

from datetime import datetime

from tftraining_operator.model.report import Report
from tftraining_operator.model.status import LastRestart, Status
from tftraining_operator.plan.conditions import with_condition

STALLED = "Stalled"


def with_stall(status: Status, said: Report, record: LastRestart | None, now: datetime) -> Status:
    """The status with the condition as the launchers' last restart, if there was one, leaves it."""
    if record is not None and record.reason == STALLED and record.down_seconds is None:
        why = (STALLED, f"{record.pod or 'a member'} made no step for stallTimeoutSeconds; the gang restarts")
        return with_condition(status, STALLED, "True", why, now)
    # A new launcher of the chief knows of no restart, and another incident on the way back is no step yet.
    return stall_over(status, ("Training", "all make steps again"), now) if said.phase == "Training" else status


def stall_over(status: Status, why: tuple[str, str], now: datetime) -> Status:
    """The status of a job that does not stand still any more; `why` is the condition's reason and message."""
    return with_condition(status, STALLED, "False", why, now) if status.is_true(STALLED) else status
