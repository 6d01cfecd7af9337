"""The planner: from the job, what is observed of it and the time, to the one next step.

Level-triggered: it asks what is and what should be, never what just happened. Invariants that its tests hold:
a pod is wanted only when no other of its name or of an older attempt is left; the charged restarts never exceed the
budget; Succeeded and Failed are never left; a job whose observation matches its status needs no write.
"""

from datetime import datetime

import msgspec

from tftraining_operator.model.job import Job, Problem
from tftraining_operator.model.names import selector
from tftraining_operator.model.observed import Observed
from tftraining_operator.model.spec import JobSpec
from tftraining_operator.model.status import Status
from tftraining_operator.plan import restart
from tftraining_operator.plan.assemble import assemble
from tftraining_operator.plan.conditions import with_condition
from tftraining_operator.plan.finish import finish
from tftraining_operator.plan.gang import Gang, attempt_of, classify, count, finished
from tftraining_operator.plan.incident import Incident, find_incident
from tftraining_operator.plan.support import unsupported
from tftraining_operator.plan.types import Note, Plan


def plan(job: Job, seen: Observed, now: datetime, image: str) -> Plan:
    """The next step. `image` is the operator's own image, which helper pods run."""
    if job.deleting or not job.ours:
        return Plan(status=job.status)
    if job.status.terminal:
        return finish(job, seen, image, now)
    job = _with_status(job, _begun(job, seen))
    if job.spec is None or (problem := job.problem or unsupported(job.spec) or _refused(seen)):
        return _fail(job, seen, image, now, job.problem or problem)
    gang = classify(job.spec, job.status, seen)
    if _succeeded(gang):
        return _succeed(job, gang, seen, image, now)
    incident = find_incident(gang)
    if incident is not None:
        return _answer(job, job.spec, gang, incident, (seen, image, now))
    return assemble(job, job.spec, gang, seen, now)


def _with_status(job: Job, status: Status) -> Job:
    return msgspec.structs.replace(job, status=status)


def _begun(job: Job, seen: Observed) -> Status:
    return msgspec.structs.replace(
        job.status,
        attempt=attempt_of(job.status, seen),
        observed_generation=job.generation,
        selector=selector(job.key.name),
    )


def _refused(seen: Observed) -> Problem | None:
    """A pod that the API server will never accept as it is written."""
    if seen.refusal is None or not seen.refusal.permanent:
        return None
    return Problem("InvalidPodTemplate", f"{seen.refusal.child}: {seen.refusal.message}")


def _succeeded(gang: Gang) -> bool:
    """Success policy Chief: the chief has done its work. The others only wait for it, or are about to end."""
    chief = gang.members.get(gang.wanted[0])
    return chief is not None and finished(chief)


def _succeed(job: Job, gang: Gang, seen: Observed, image: str, now: datetime) -> Plan:
    message = f"{gang.wanted[0]} (the chief) has finished"
    status = msgspec.structs.replace(job.status, replicas=count(gang, job.status.replicas), ready=gang.ready)
    status = _end(status, "Succeeded", Problem("ChiefSucceeded", message), now)
    return _finished(job, status, seen, image, now)


def _fail(job: Job, seen: Observed, image: str, now: datetime, problem: Problem | None) -> Plan:
    why = problem or Problem("InvalidSpec", "the spec cannot be read")
    return _finished(job, _end(job.status, "Failed", why, now), seen, image, now)


def _end(status: Status, phase: str, why: Problem, now: datetime) -> Status:
    seconds = now.replace(microsecond=0)
    succeeded = phase == "Succeeded"
    status = msgspec.structs.replace(
        status,
        phase="Succeeded" if succeeded else "Failed",
        reason=why.reason,
        message=why.message,
        completion_time=seconds,
        start_time=status.start_time or seconds,
    )
    status = with_condition(status, "Ready", "False", (why.reason, "the job is done"), now)
    return with_condition(status, "Succeeded" if succeeded else "Failed", "True", (why.reason, why.message), now)


def _finished(job: Job, status: Status, seen: Observed, image: str, now: datetime) -> Plan:
    """The first step after the end, with the event that tells of it."""
    step = finish(_with_status(job, status), seen, image, now)
    kind = "Normal" if status.phase == "Succeeded" else "Warning"
    note = Note("Normal" if kind == "Normal" else "Warning", status.phase, status.message or "")
    return msgspec.structs.replace(step, notes=(note, *step.notes))


def _answer(job: Job, spec: JobSpec, gang: Gang, incident: Incident, world: tuple[Observed, str, datetime]) -> Plan:
    """Restart the gang after the incident, or fail the job when its budget is used up."""
    seen, image, now = world
    status = msgspec.structs.replace(job.status, replicas=count(gang, job.status.replicas), ready=gang.ready)
    restarts = restart.charge(spec, status, incident, now)
    status = restart.record_failure(status, incident)
    if problem := restart.exhausted(spec, restarts, incident):
        return _finished(job, _end(status, "Failed", problem, now), seen, image, now)
    status = restart.next_attempt(status, restarts, incident, now)
    step = assemble(_with_status(job, status), spec, classify(spec, status, seen), seen, now)
    note = Note("Warning" if incident.charged else "Normal", incident.reason, status.message or "")
    return msgspec.structs.replace(step, notes=(note, *step.notes))
