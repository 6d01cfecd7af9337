"""The planner: from the job, what is observed of it and the time, to the one next step.

Level-triggered: it asks what is and what should be, never what just happened. Invariants that its tests hold:
a pod is wanted only when no other of its name or of an older attempt is left; the charged restarts never exceed the
budget; Succeeded and Failed are never left; a job whose observation matches its status needs no write.
"""

from datetime import datetime

import msgspec

from tftraining_operator.build.network_policy import Asker
from tftraining_operator.model.job import NOBODY_TRAINS, Job
from tftraining_operator.model.names import selector
from tftraining_operator.model.observed import Observed
from tftraining_operator.model.spec import RunPolicy
from tftraining_operator.model.status import Status
from tftraining_operator.plan import node_loss
from tftraining_operator.plan.companions import with_companions
from tftraining_operator.plan.completion import has_succeeded
from tftraining_operator.plan.deadlines import admitted_since, hold_deadlines
from tftraining_operator.plan.end import fail, succeed
from tftraining_operator.plan.evaluator import look_after_evaluator
from tftraining_operator.plan.expiry import expire
from tftraining_operator.plan.finish import finish
from tftraining_operator.plan.gang import attempt_of, classify
from tftraining_operator.plan.health import with_health
from tftraining_operator.plan.in_place import in_place
from tftraining_operator.plan.let_go import with_endings
from tftraining_operator.plan.lost_key import heed
from tftraining_operator.plan.recreate import recreate
from tftraining_operator.plan.refusals import accepted_templates, never_accepted
from tftraining_operator.plan.refused_changes import hold_refused, untold
from tftraining_operator.plan.scene import Scene
from tftraining_operator.plan.suspend import resume, suspend, told
from tftraining_operator.plan.times import earliest
from tftraining_operator.plan.types import Plan
from tftraining_operator.plan.unreadable import leave_alone, readable, unreadable


def plan(job: Job, seen: Observed, now: datetime, image: str, asker: Asker | None = None) -> Plan:
    """The next step. `image` is the operator's own image, which helper pods run and the launcher is copied from;
    NetworkPolicies are made if `asker` says who may ask the launchers."""
    if job.deleting or not job.ours:
        return Plan(status=job.status)
    if (why := unreadable(job, seen)) is not None:
        return leave_alone(job, why, now)
    patience = (job.spec.run_policy if job.spec else RunPolicy()).node_lost_seconds
    troubles = node_loss.find(seen, patience)
    seen_lost = node_loss.mark(seen, troubles, now)
    observed = msgspec.structs.replace(untold(readable(job.status)), observed_generation=job.generation)
    step = _step(msgspec.structs.replace(job, status=observed), seen_lost, now, image)
    step = with_endings(with_companions(job, step, seen_lost, asker), seen_lost)
    if step.delete_job:
        step = msgspec.structs.replace(step, status=job.status)
        return hold_refused(job, step, seen, now)
    step = with_health(hold_refused(job, step, seen, now), now)
    return msgspec.structs.replace(step, again_at=earliest(step.again_at, node_loss.look_again(troubles, now)))


def _step(job: Job, seen: Observed, now: datetime, image: str) -> Plan:
    if job.status.terminal:
        return expire(job, finish(job, seen, image, now), seen, now)
    job = msgspec.structs.replace(job, status=_begun(job, seen, now))
    if job.spec is None:
        return fail(job, job.problem or NOBODY_TRAINS, seen, image, now)
    if (problem := never_accepted(job, seen)) is not None:
        return fail(job, problem, seen, image, now)
    seen, key_gone = heed(seen)
    scene = Scene(job.spec, classify(job.spec, job.status, seen), seen, image, now, key_gone)
    # Of what becomes of the pods of a suspended job on their way out, only a success counts.
    if job.status.phase == "Suspended" and has_succeeded(scene.spec, scene.gang):
        return succeed(job, scene)
    return _pause(job, scene) if job.spec.run_policy.suspend else _go_on(job, scene)


def _run(job: Job, scene: Scene) -> Plan:
    step = in_place(job, scene) if scene.spec.in_place else recreate(job, scene)
    return look_after_evaluator(job, step, scene)


def _pause(job: Job, scene: Scene) -> Plan:
    """No pods, unless the job has come to its end before."""
    if job.status.phase != "Suspended":
        step = _run(job, scene)
        return step if step.status.terminal else suspend(job, scene)
    return suspend(job, scene)


def _go_on(job: Job, scene: Scene) -> Plan:
    if job.status.phase != "Suspended":
        return hold_deadlines(job, _run(job, scene), scene)
    job = resume(job, scene)
    scene = scene.after(job.status)
    return told(hold_deadlines(job, _run(job, scene), scene))


def _begun(job: Job, seen: Observed, now: datetime) -> Status:
    return msgspec.structs.replace(
        job.status,
        attempt=attempt_of(job.status, seen),
        selector=selector(job.key.name),
        admitted_time=admitted_since(job.status, seen, now),
        accepted_templates=accepted_templates(job, seen),
    )
