"""The end of a job: Succeeded or Failed, which the job never leaves. plan/clean_pods.py has what remains to be done."""

from datetime import datetime

import msgspec

from tftraining_api.model.job import NOBODY_TRAINS, Problem
from tftraining_api.model.status import Phase, Status
from tftraining_operator.model.conditions import with_condition
from tftraining_operator.plan.context import Context, Draft
from tftraining_operator.plan.memory_backup import without_backup
from tftraining_operator.plan.no_progress import no_progress_over
from tftraining_operator.plan.step import Event


def reject_spec(context: Context, draft: Draft) -> Draft:
    """A job whose spec no operator of this version can run has failed."""
    return fail(context, draft, context.job.problem or NOBODY_TRAINS)


def succeed(context: Context, draft: Draft, done: Problem) -> Draft:
    """The job has succeeded; `done` has the reason and the message."""
    return _ended(context, draft, "Succeeded", done)


def fail(context: Context, draft: Draft, problem: Problem) -> Draft:
    """The job has failed for good: the status of the draft stays, its writes go."""
    return _ended(context, draft, "Failed", problem)


def _ended(context: Context, draft: Draft, phase: Phase, why: Problem) -> Draft:
    status = _end(draft.status, phase, why, context.now)
    event = Event("Normal" if phase == "Succeeded" else "Warning", phase, status.message or "")
    return msgspec.structs.replace(draft.sorted_anew_without_writes(context, status).with_events(event), final=True)


def _end(status: Status, phase: Phase, why: Problem, now: datetime) -> Status:
    seconds = now.replace(microsecond=0)
    status = msgspec.structs.replace(
        without_backup(status),
        phase=phase,
        reason=why.reason,
        message=why.message,
        completion_time=seconds,
        start_time=status.start_time or seconds,
    )
    over = (why.reason, "the job has ended")
    status = no_progress_over(status, over, now)
    if status.is_true("Suspended"):
        status = with_condition(status, "Suspended", "False", over, now)
    return with_condition(status, phase, "True", (why.reason, why.message), now)
