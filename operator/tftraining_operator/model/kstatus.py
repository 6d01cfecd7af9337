"""The conditions Ready and Stalled for kstatus, by which Helm, Flux and others decide whether to wait.

kstatus reads Stalled=True as failed, otherwise Ready=False as in progress, and a job with neither as current. A job is
current while it trains (with or without all members), while it is suspended, and after success. Both conditions follow
from the phase alone.
"""

from datetime import datetime

from tftraining_api.model.status import Status
from tftraining_operator.model.conditions import with_condition, without_condition

READY = "Ready"
STALLED = "Stalled"


def with_ready_and_stalled(status: Status, now: datetime) -> Status:
    """The status with both conditions set according to its phase."""
    return _with_ready(_with_stalled(status, now), now)


def _with_stalled(status: Status, now: datetime) -> Status:
    """Stalled is True if the job has failed, otherwise absent."""
    if status.phase != "Failed":
        return without_condition(status, STALLED)
    return with_condition(status, STALLED, "True", _why(status), now)


def _with_ready(status: Status, now: datetime) -> Status:
    """Ready is False only while there is something to wait for. A True of the planner (a complete gang) stays."""
    if status.phase in ("Suspended", "Succeeded") or (status.phase == "Running" and not status.is_true(READY)):
        return without_condition(status, READY)
    return status if status.phase == "Running" else with_condition(status, READY, "False", _why(status), now)


def _why(status: Status) -> tuple[str, str]:
    return status.reason or status.phase, status.message or ""
