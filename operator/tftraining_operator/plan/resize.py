"""A running gang is told that the job's spec has changed, and changes its size with the pods that it has.

Only launchers can do that, and only to the number of workers: they are told through the chief's pod (see
build/orders.py), new workers join them, and those that are too many are deleted when the launchers know it. Without
launchers, or with some that were made before they could be told, the whole gang is made anew (see incident.SCALED); and
so it is where another role has changed its size (see incident.CHANGED).
"""

import msgspec

from tftraining_operator.build.orders import changed
from tftraining_operator.model.job import Job
from tftraining_operator.model.names import ANNOTATION_ORDERS
from tftraining_operator.model.observed import Pod
from tftraining_operator.model.status import Status
from tftraining_operator.plan.incident import SCALED, Incident, find_change
from tftraining_operator.plan.scene import Scene
from tftraining_operator.plan.types import Annotation, Note, Plan


def with_orders(step: Plan, job: Job, scene: Scene) -> Plan:
    """The step with what the chief's launcher has to be told, and the event of a change of the gang's size."""
    chief, gang = scene.gang.chief, scene.gang
    if step.status.terminal or chief is None or chief.ended or chief.deleting:
        return step
    # A gang that cannot change its size can still be told of limits, unless it is about to be made anew.
    told = changed(scene.spec, chief.orders) if chief.orders and not gang.resized else None
    order = None if told is None else Annotation(chief.name, chief.uid, chief.version, {ANNOTATION_ORDERS: told})
    news = _resized(job.status, step.status) if gang.elastic else ()
    return msgspec.structs.replace(step, annotate_pod=order, notes=(*news, *step.notes))


def change_of(scene: Scene) -> Incident | None:
    """A change that takes new pods: also another size, where the launcher (of an older image) knows of none."""
    said, size = scene.said, scene.spec.gang_size
    deaf = said is not None and said.gang is None and any(pod.gang != size for pod in scene.gang.pods)
    return find_change(scene.gang) or (SCALED if deaf else None)


def departing(scene: Scene) -> tuple[Pod, ...]:
    """The surplus pods whose time has come: the launchers go on without them, or there are none to wait for. What is
    not known yet, because the operator has just been started, is waited for too."""
    said, chief = scene.said, scene.gang.chief
    if said is not None:
        knows = said.gang is None or said.gang.full <= len(scene.spec.trainers)
    else:
        knows = scene.seen.silent or chief is None or not chief.running or chief.deleting
    return scene.gang.surplus if knows else ()


def fewer_train(scene: Scene) -> bool:
    """Whether the launchers train with fewer than all."""
    said = scene.said
    return said is not None and said.phase == "Training" and said.gang is not None and said.gang.size < said.gang.full


def with_fewer(status: Status, scene: Scene, why: str) -> Status:
    """The status of a gang that trains while others are on their way; `why` is what keeps them."""
    assert scene.said is not None and scene.said.gang is not None
    message = f"running with {scene.said.gang.size} of {len(scene.spec.trainers)} workers; {why}"
    return msgspec.structs.replace(status, phase="Running", reason="FewerWorkers", message=message)


def _resized(old: Status, new: Status) -> tuple[Note, ...]:
    before, after = (status.replicas.get("worker") for status in (old, new))
    if before is None or after is None or before.desired == after.desired:
        return ()
    return (Note("Normal", SCALED.reason, f"from {before.desired} to {after.desired} workers"),)
