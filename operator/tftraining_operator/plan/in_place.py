"""restartPolicy.mode InPlace: launchers restart the program inside the pods; the operator replaces pods, each alone.

A pod that ends without a verdict, or that somebody ends, is made anew under the same attempt, while the launchers of
the others wait for it at the rendezvous. The whole gang is made anew only where its shape changes. The job ends by the
verdict that its launchers leave.
"""

import msgspec

from tftraining.launch.rules import REASONS
from tftraining_operator.model.job import Job
from tftraining_operator.plan import verdicts
from tftraining_operator.plan.assemble import assemble
from tftraining_operator.plan.completion import has_succeeded
from tftraining_operator.plan.earlier import announce
from tftraining_operator.plan.end import fail, succeed
from tftraining_operator.plan.incident import find_loss
from tftraining_operator.plan.lost_key import find_lost_key
from tftraining_operator.plan.no_gpu import warn_of_no_gpu
from tftraining_operator.plan.recreate import begin_again
from tftraining_operator.plan.replace import held_by_queue, replace
from tftraining_operator.plan.reported import take, with_progress
from tftraining_operator.plan.resize import change_of, with_orders
from tftraining_operator.plan.scene import Scene
from tftraining_operator.plan.types import Note, Plan
from tftraining_operator.plan.words import resumption, what_happened


def in_place(job: Job, scene: Scene) -> Plan:
    """The next step."""
    before, said = job.status, scene.said
    if said is not None:
        job = msgspec.structs.replace(job, status=take(job, said, scene.now))
    step = _next(job, scene)
    if note := _restarted(job, before.restarts.in_place):
        step = msgspec.structs.replace(step, notes=(note, *step.notes))
    step = warn_of_no_gpu(announce(before, step, said, scene.now), said, scene.now)
    step = msgspec.structs.replace(step, status=with_progress(before, step.status, said))
    return with_orders(step, msgspec.structs.replace(job, status=before), scene)


def _next(job: Job, scene: Scene) -> Plan:
    gang = scene.gang
    if has_succeeded(scene.spec, gang):
        return succeed(msgspec.structs.replace(job, status=verdicts.last_progress(gang, job.status)), scene)
    if (problem := verdicts.without_python(scene.spec, gang)) is not None:
        return fail(job, problem, scene.seen, scene.image, scene.now)
    if (pod := verdicts.failed(gang)) is not None:
        status, problem = verdicts.failure(job, pod, scene)
        return fail(msgspec.structs.replace(job, status=status), problem, scene.seen, scene.image, scene.now)
    if (cause := change_of(scene) or find_lost_key(scene)) is not None:
        return begin_again(job, scene, cause)
    incident = find_loss(gang)
    if incident is None:
        return assemble(job, scene)
    return begin_again(job, scene, incident) if held_by_queue(job, scene) else replace(job, scene, incident)


def _restarted(job: Job, before: int) -> Note | None:
    """The event of a restart in place, told once: when their count rises."""
    last = job.status.last_restart
    if job.status.restarts.in_place <= before or last is None:
        return None
    what = what_happened(job.key.name, last)
    restarting = "it is restarted alone, the others train on" if last.alone else "restarting in place"
    message = f"{what}; {restarting if last.down_seconds is None else resumption(last)}"
    given_up = (last.pod or "").removeprefix(f"{job.key.name}-") in job.status.replaced
    harmless = given_up or last.reason not in REASONS
    return Note("Normal" if harmless else "Warning", last.reason or "Error", message)
