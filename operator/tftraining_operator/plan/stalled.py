"""The condition Stalled: whether the training stands still because a member made no step for stallTimeoutSeconds.

The launchers' watchdog finds it out and restarts the gang; the condition tells of it until all train again.
"""

from datetime import datetime

from tftraining_operator.model.status import LastRestart, Status
from tftraining_operator.plan.conditions import with_condition

STALLED = "Stalled"


def with_stall(status: Status, record: LastRestart, now: datetime) -> Status:
    """The status with the condition as the last restart leaves it; a job that never stalled does not have it."""
    stands = record.reason == STALLED and record.down_seconds is None
    if stands:
        why = (STALLED, f"{record.pod or 'a member'} made no step for stallTimeoutSeconds; the gang restarts")
        return with_condition(status, STALLED, "True", why, now)
    if status.is_true(STALLED):
        return with_condition(status, STALLED, "False", ("Training", "all make steps again"), now)
    return status
