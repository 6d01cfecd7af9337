"""The condition ReconcileError: the operator's passes over the job fail, one after the other.

The condition is set in the third failing pass in a row, so that a single error of the API server causes no write, and
the first pass that succeeds removes the condition. Each write of the condition causes one more pass, through the watch:
only every fifth failing pass may write, so that the pauses between failing passes still grow.
"""

from datetime import datetime

from tftraining_api.model.status import Condition, Status
from tftraining_operator.model.conditions import with_condition
from tftraining_operator.model.observed import LONGEST_MESSAGE
from tftraining_operator.plan.step import Event

RECONCILE_ERROR = "ReconcileError"
FIRST, EVERY = 3, 5


def reason_of(code: int | None) -> str:
    """Why a pass failed: the HTTP status of the API server's answer, 0 for no answer, None for any other error."""
    if code is None:
        return "InternalError"
    known = {0: "NoAnswer", 403: "Forbidden", 429: "TooManyRequests"}
    return known.get(code, "ServerError" if code >= 500 else "UnexpectedAnswer")


def event_of(condition: Condition) -> Event:
    """The event that goes with the condition, which may be refused as the status is: that of a job that is too large,
    for example."""
    return Event("Warning", condition.reason, condition.message)


def failing(status: Status, failures: int, why: tuple[str, str], now: datetime) -> Condition | None:
    """The condition to write after so many failing passes in a row; None if there is nothing to write now."""
    if failures % EVERY != FIRST:
        return None
    why = (why[0], why[1][:LONGEST_MESSAGE])
    new = with_condition(status, RECONCILE_ERROR, "True", why, now).condition(RECONCILE_ERROR)
    return new if new != status.condition(RECONCILE_ERROR) else None
