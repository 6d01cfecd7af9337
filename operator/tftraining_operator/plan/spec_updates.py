"""Updates of the spec that a running gang takes with the pods that it has, above all another number of workers.

Only launchers can take such an update, and of the roles only workers may change their number: the operator annotates
the chief's pod (see tftraining_api/manifests/spec_updates.py), new workers join, and surplus workers are deleted when
the launchers know. The whole gang restarts where there is no launcher, or a pod without that annotation (see
incident.RESIZED), and where another role changes its size (see incident.SPEC_CHANGED): restart.py makes that attempt.
"""

import msgspec

from tftraining.launch.roles import WORKER
from tftraining_api.manifests.spec_updates import changed_annotation
from tftraining_api.model.names import ANNOTATION_ORDERS
from tftraining_api.model.status import Status
from tftraining_operator.model.launcher_report import Report
from tftraining_operator.model.observed import Pod
from tftraining_operator.plan.context import Context, Draft
from tftraining_operator.plan.incident import RESIZED
from tftraining_operator.plan.messages import training_with_fewer
from tftraining_operator.plan.step import Event, PodAnnotation


def update_launchers(context: Context, draft: Draft) -> Draft:
    """The draft with the annotation that the chief's launcher reads, and the event of a changed number of workers."""
    chief, gang = draft.gang.chief, draft.gang
    if chief is None or chief.ended or chief.deleting:
        return draft
    # A gang that cannot change its size can still take other limits, unless it is about to restart.
    update = changed_annotation(context.spec, chief.spec_updates) if chief.spec_updates and not gang.resized else None
    if update is not None:
        annotation = PodAnnotation(chief.name, chief.uid, chief.version, {ANNOTATION_ORDERS: update})
        draft = draft.with_fields(annotate_pod=annotation)
    return draft.with_events(*_resize_events(context.status, draft.status)) if gang.elastic else draft


def departing(context: Context, draft: Draft) -> tuple[Pod, ...]:
    """The surplus pods to delete now: the launchers go on without them, or no launcher is there to wait for. After a
    start of the operator the launchers' report is waited for too."""
    report, chief = draft.report, draft.gang.chief
    if report is not None:
        knows = report.gang is None or report.gang.full <= len(context.spec.trainers)
    else:
        knows = context.observed.launcher_silent or chief is None or not chief.running or chief.deleting
    return draft.gang.surplus if knows else ()


def fewer_train(report: Report) -> bool:
    """Whether the launchers train with fewer members than the spec has."""
    return report.phase == "Training" and report.gang is not None and report.gang.size < report.gang.full


def with_fewer(context: Context, draft: Draft, why: str) -> Status:
    """The status of a gang that trains while other members are on their way; `why` is what keeps them."""
    assert draft.report is not None and draft.report.gang is not None
    message = training_with_fewer(draft.report.gang.size, len(context.spec.trainers), why)
    return msgspec.structs.replace(draft.status, phase="Running", reason="FewerWorkers", message=message)


def _resize_events(old: Status, new: Status) -> tuple[Event, ...]:
    before, after = (status.replicas.get(WORKER) for status in (old, new))
    if before is None or after is None or before.desired == after.desired:
        return ()
    return (
        Event("Normal", RESIZED.reason, f"changing the number of workers from {before.desired} to {after.desired}"),
    )
