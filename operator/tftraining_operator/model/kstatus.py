"""What kstatus reads (Helm, Flux and others decide by it whether they have to wait): the conditions Ready and Stalled.

kstatus takes a Stalled that is True for a failure, otherwise a Ready that is False for work in progress, and a job with
neither for one that is as it should be. That is so while the job trains, with all its members or without some, while it
is suspended, and when it has succeeded. Both follow from the phase alone, whatever an earlier version has written:
its Stalled told of the watchdog, and its Ready was False in a job that was done.
"""

from datetime import datetime

from tftraining_operator.model.conditions import with_condition, without_condition
from tftraining_operator.model.status import Status

READY = "Ready"
STALLED = "Stalled"


def with_ready_and_stalled(status: Status, now: datetime) -> Status:
    """The status with both conditions as its phase has them."""
    return _with_ready(_with_stalled(status, now), now)


def _with_stalled(status: Status, now: datetime) -> Status:
    """True when the job has failed for good, otherwise not there."""
    if status.phase != "Failed":
        return without_condition(status, STALLED)
    return with_condition(status, STALLED, "True", _why(status), now)


def _with_ready(status: Status, now: datetime) -> Status:
    """Never False where nothing is left to be waited for; True where it was decided that the gang is complete."""
    if status.phase in ("Suspended", "Succeeded") or (status.phase == "Running" and not status.is_true(READY)):
        return without_condition(status, READY)
    return status if status.phase == "Running" else with_condition(status, READY, "False", _why(status), now)


def _why(status: Status) -> tuple[str, str]:
    return status.reason or status.phase, status.message or ""
