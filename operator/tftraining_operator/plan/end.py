"""The end of a job, for good or bad: it is never left again. What remains to be done after it is in plan/finish.py."""

from datetime import datetime

import msgspec

from tftraining_operator.model.job import Job, Problem
from tftraining_operator.model.observed import Observed
from tftraining_operator.model.status import Phase, Status
from tftraining_operator.plan.completion import why
from tftraining_operator.plan.conditions import with_condition
from tftraining_operator.plan.finish import finish
from tftraining_operator.plan.gang import count
from tftraining_operator.plan.no_progress import no_progress_over
from tftraining_operator.plan.scene import Scene
from tftraining_operator.plan.types import Note, Plan


def succeed(job: Job, scene: Scene) -> Plan:
    """The first step after those have done their work who had to."""
    gang = scene.gang
    status = msgspec.structs.replace(job.status, replicas=count(gang, job.status.replicas), ready=gang.ready)
    done = why(scene.spec, gang)
    return _finished(job, _end(status, "Succeeded", done, scene.now), scene.seen, scene.image, scene.now)


def fail(job: Job, problem: Problem, seen: Observed, image: str, now: datetime) -> Plan:
    """The first step after what cannot be tried again."""
    return _finished(job, _end(job.status, "Failed", problem, now), seen, image, now)


def _end(status: Status, phase: Phase, said: Problem, now: datetime) -> Status:
    seconds = now.replace(microsecond=0)
    status = msgspec.structs.replace(
        status,
        phase=phase,
        reason=said.reason,
        message=said.message,
        completion_time=seconds,
        start_time=status.start_time or seconds,
    )
    over = (said.reason, "the job is done")
    status = no_progress_over(status, over, now)
    if status.is_true("Suspended"):
        status = with_condition(status, "Suspended", "False", over, now)
    return with_condition(status, phase, "True", (said.reason, said.message), now)


def _finished(job: Job, status: Status, seen: Observed, image: str, now: datetime) -> Plan:
    """The first step after the end, with the event that tells of it."""
    step = finish(msgspec.structs.replace(job, status=status), seen, image, now)
    note = Note("Normal" if status.phase == "Succeeded" else "Warning", status.phase, status.message or "")
    return msgspec.structs.replace(step, notes=(note, *step.notes))
