"""runPolicy.suspend: no pods, the checkpoints stay; and the way back from there.

Pods are given their own grace, and whatever becomes of them on the way is no incident. The temporary save directories
are removed as soon as nobody can write any more, and the next gang waits until that is over. It is a new attempt: what
is left of the old pods is in its way, never part of it.
"""

import msgspec

from tftraining_operator.model.job import Job
from tftraining_operator.model.names import ROLES
from tftraining_operator.model.status import Cleanup, Counts, Status
from tftraining_operator.plan.assemble import delete
from tftraining_operator.plan.conditions import with_condition, without_condition
from tftraining_operator.plan.no_progress import no_progress_over
from tftraining_operator.plan.reported import with_latest
from tftraining_operator.plan.scene import Scene
from tftraining_operator.plan.temporaries import clean
from tftraining_operator.plan.types import Note, Plan

PAUSED = ("Suspended", "spec.runPolicy.suspend is true: there are no pods until it is false again")
RESUMED = ("Resumed", "spec.runPolicy.suspend is false")


def suspend(job: Job, scene: Scene) -> Plan:
    """The next step of a job that is to have no pods."""
    status, seen = _suspended(job, scene), scene.seen
    step = Plan(status=status)
    if status.replicas:
        step = clean(msgspec.structs.replace(job, status=status), seen, scene.image, scene.now)
    begun = () if job.status.phase == "Suspended" else (Note("Normal", "Suspended", status.message or ""),)
    going = delete(seen.replicas, grace=None)
    return msgspec.structs.replace(step, delete_pods=step.delete_pods + going, notes=(*begun, *step.notes))


def resume(job: Job, scene: Scene) -> Job:
    """The job as it goes on: a new attempt if it has ever had pods, and a new start time, as in a batch/v1 Job."""
    old = job.status
    status = msgspec.structs.replace(
        old,
        phase="Starting",
        reason=RESUMED[0],
        message=RESUMED[1],
        attempt=old.attempt + bool(old.replicas),
        start_time=scene.now.replace(microsecond=0),
        # An evaluator without a launcher does not go with the attempt, but with the suspension it does.
        replaced={pod.label: pod.uid for pod in scene.seen.replicas if pod.replica in scene.gang.aside},
        replicas={role: Counts(desired=each.desired, highest=each.highest) for role, each in old.replicas.items()},
        # The program may have been corrected.
        restarts=msgspec.structs.replace(old.restarts, same_failure=None),
        cleanup=Cleanup(removed=old.cleanup.removed) if old.cleanup else None,
    )
    status = without_condition(with_condition(status, "Suspended", "False", RESUMED, scene.now), "Cleaned")
    return msgspec.structs.replace(job, status=status)


def told(step: Plan) -> Plan:
    """The first step of a job that goes on, with the event of it before its own."""
    note = Note("Normal", "Resumed", "the job goes on: making its pods")
    return msgspec.structs.replace(step, notes=(note, *step.notes))


def _suspended(job: Job, scene: Scene) -> Status:
    reason, message = PAUSED
    if scene.seen.replicas:
        message = f"suspended: waiting for {scene.seen.replicas[0].label} to stop"
    status = msgspec.structs.replace(
        with_latest(job.status, scene.said),
        phase="Suspended",
        reason=reason,
        message=message,
        replicas=_counts(job.status, scene),
        ready=f"0/{len(scene.spec.gang)}",
    )
    return with_condition(no_progress_over(status, PAUSED, scene.now), "Suspended", "True", PAUSED, scene.now)


def _counts(status: Status, scene: Scene) -> dict[str, Counts]:
    """Only the pods that are still there, of those that the job will have; none for a job that never had any."""
    wanted = [each.role for each in (*scene.gang.wanted, *scene.gang.aside)]
    counts: dict[str, Counts] = {}
    for role in ROLES:
        there = {pod.replica.index: pod for pod in scene.seen.replicas if pod.replica and pod.replica.role == role}
        if there or role in status.replicas:
            counts[role] = Counts(
                desired=wanted.count(role),
                active=sum(1 for pod in there.values() if not pod.ended),
                highest=max(status.replicas.get(role, Counts()).highest, *there, 0),
            )
    return counts
