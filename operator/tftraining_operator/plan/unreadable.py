"""A job whose spec or status this version of the operator cannot read, such as one that a newer version has written.

Nothing is ended, started or deleted then, and nothing in the status is changed but the condition Unreadable, which says
so: a version that can read the job goes on where it was left. Only a new job that no version could run fails.
"""

from datetime import datetime

import msgspec

from tftraining_operator.model.job import Job, Problem
from tftraining_operator.model.observed import LONGEST_MESSAGE, Observed
from tftraining_operator.model.status import Status
from tftraining_operator.plan.conditions import with_condition, without_condition
from tftraining_operator.plan.types import Note, Plan

UNREADABLE = "Unreadable"
LEFT_ALONE = "nothing is done with the job until that is corrected, or an operator runs that can read it"


def unreadable(job: Job, seen: Observed) -> Problem | None:
    """Why nothing may be done with the job; None if it can be read."""
    begun = job.status.start_time is not None or bool(seen.replicas)
    if job.unreadable is None and job.problem is not None and begun and job.status.reason != job.problem.reason:
        # The definition of the resource refuses that: it is not the one of this version.
        return msgspec.structs.replace(job.problem, reason="SpecUnreadable")
    return job.unreadable


def leave_alone(job: Job, problem: Problem, now: datetime) -> Plan:
    """The step that only says so, with an event when that is news."""
    why = (problem.reason, f"{problem.message[:LONGEST_MESSAGE]}; {LEFT_ALONE}")
    status = with_condition(job.status, UNREADABLE, "True", why, now)
    if status == job.status:
        return Plan(status=status)
    return Plan(status=status, patch_condition=status.condition(UNREADABLE), notes=(Note("Warning", *why),))


def readable(status: Status) -> Status:
    """The status of a job that can be read (again)."""
    return without_condition(status, UNREADABLE)
