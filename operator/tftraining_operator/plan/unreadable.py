"""A job whose spec, status, pod or Service this version of the operator cannot read.

A newer version may have written it, or somebody else.

Nothing is ended, started or deleted then, and nothing in the status is changed but the condition Unreadable, which says
so: a version that can read the job goes on where it was left. Only a new job that no version could run fails.
"""

from datetime import datetime

import msgspec

from tftraining_api.model.job import Job, Problem
from tftraining_operator.model.conditions import with_condition
from tftraining_operator.model.observed import LONGEST_MESSAGE, Observed
from tftraining_operator.plan.step import Event, Step

UNREADABLE = "Unreadable"
LEFT_ALONE = "the operator ignores the job: correct it, or run an operator version that can read it"


def unreadable(job: Job, observed: Observed) -> Problem | None:
    """Why this version cannot read the job or one of its children; None if it can."""
    if observed.unreadable:
        return Problem("ChildUnreadable", f"cannot read {observed.unreadable}")
    begun = job.status.start_time is not None or bool(observed.replicas)
    if job.unreadable is None and job.problem is not None and begun and job.status.reason != job.problem.reason:
        # A CRD of this version would have refused such a spec: another version's CRD is installed.
        return msgspec.structs.replace(job.problem, reason="SpecUnreadable")
    return job.unreadable


def leave_alone(job: Job, problem: Problem, now: datetime) -> Step:
    """The step that only sets the condition Unreadable, with an event if the condition changes."""
    why = (problem.reason, f"{problem.message[:LONGEST_MESSAGE]}; {LEFT_ALONE}")
    status = with_condition(job.status, UNREADABLE, "True", why, now)
    if status == job.status:
        return Step(status=status)
    return Step(status=status, patch_condition=status.condition(UNREADABLE), events=(Event("Warning", *why),))
