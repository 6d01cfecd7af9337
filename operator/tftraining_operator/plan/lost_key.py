"""The Secret with the key by which the launchers know each other, when somebody has deleted it.

Launchers read the key once and show it to nobody, and the operator may not read Secrets: nobody can make the same one
again, and a launcher with another key is turned away. So a pod that joins launchers that run is made only while their
Secret is there. If it is not, all are made anew, with a new key, once; until a new pod is needed nobody misses it.
"""

import msgspec

from tftraining_operator.build.launcher import secret
from tftraining_operator.model.job import Job
from tftraining_operator.model.names import Replica
from tftraining_operator.model.observed import Observed
from tftraining_operator.plan.incident import Incident
from tftraining_operator.plan.refusals import KEY_GONE, asked_for_a_pod
from tftraining_operator.plan.scene import Scene
from tftraining_operator.plan.starting import held_up
from tftraining_operator.plan.types import Plan

REASON = "KeyLost"


def heed(seen: Observed) -> tuple[Observed, str]:
    """What was seen but for the refusal that tells of it, and the Secret that is gone; "" if none is known to be."""
    if seen.refusal is None or seen.refusal.message != KEY_GONE:
        return seen, ""
    return msgspec.structs.replace(seen, refusal=None), seen.refusal.child


def find_lost_key(scene: Scene) -> Incident | None:
    """The incident, if there are launchers with the old key."""
    if not scene.key_gone or not _in_use(scene):
        return None
    message = f"{scene.key_gone}, the key of the launchers, was deleted: no new one can join those that run"
    # Missed: the back-off has counted the loss that made it known.
    return Incident(reason=REASON, message=message, charged=False, missed=True)


def with_secret(step: Plan, job: Job, scene: Scene, wanted: tuple[Replica, ...]) -> Plan:
    """The step with its part for the Secret when these pods are wanted: to make it, or to see that it is there. It was
    before a pod was refused; if it has gone since, that pod is stuck for want of it."""
    first = bool(wanted) and not asked_for_a_pod(scene.seen.refusal)
    if scene.spec.in_place and _in_use(scene):
        stuck = any(pod.preparing and held_up(pod, scene.now) for pod in scene.gang.members.values())
        return msgspec.structs.replace(step, expect_secret=secret(job)) if first or stuck else step
    return msgspec.structs.replace(step, create_secret=secret(job)) if scene.spec.in_place and first else step


def _in_use(scene: Scene) -> bool:
    """Whether a pod may have the key already: it reads it as soon as it is placed."""
    return any((pod.node or pod.running) and not pod.ended for pod in scene.gang.members.values())
