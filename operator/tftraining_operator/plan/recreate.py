"""restartPolicy.mode Recreate: the operator restarts, by new pods of the whole gang. There is no launcher."""

import msgspec

from tftraining_operator.model.job import Job
from tftraining_operator.plan import restart
from tftraining_operator.plan.assemble import assemble
from tftraining_operator.plan.completion import has_succeeded
from tftraining_operator.plan.end import fail, succeed
from tftraining_operator.plan.excuse import excuse
from tftraining_operator.plan.gang import count
from tftraining_operator.plan.incident import Incident, find_change, find_incident, find_loss
from tftraining_operator.plan.replace import held_by_queue, nobody_waits, replace, told
from tftraining_operator.plan.rules import judged
from tftraining_operator.plan.scene import Scene
from tftraining_operator.plan.types import Plan


def recreate(job: Job, scene: Scene) -> Plan:
    """The next step. Under the success policy Chief the others wait for the chief, or will end soon."""
    if has_succeeded(scene.spec, scene.gang):
        return succeed(job, scene)
    incident = find_incident(scene.gang)
    if incident is None:
        job, notes = excuse(job, scene)
        step = assemble(job, scene)
        return msgspec.structs.replace(step, notes=(*notes, *step.notes))
    loss = find_loss(scene.gang)
    if loss is not None and find_change(scene.gang) is None and nobody_waits(scene) and not held_by_queue(job, scene):
        return replace(job, scene, loss)
    return begin_again(job, scene, incident)


def begin_again(job: Job, scene: Scene, incident: Incident) -> Plan:
    """Restart the whole gang after the incident, or fail the job when its budget is used up."""
    gang, now = scene.gang, scene.now
    status = msgspec.structs.replace(job.status, replicas=count(gang, job.status.replicas), ready=gang.ready)
    status = restart.record_failure(status, incident)
    incident, problem = judged(scene.spec, job.status, incident)
    restarts = restart.charge(scene.spec, status, incident, now)
    if problem := problem or restart.exhausted(scene.spec, restarts, incident):
        return fail(msgspec.structs.replace(job, status=status), problem, scene.seen, scene.image, now)
    status = restart.next_attempt(status, restarts, incident, now)
    return told(assemble(msgspec.structs.replace(job, status=status), scene.after(status)), incident, status.message)
