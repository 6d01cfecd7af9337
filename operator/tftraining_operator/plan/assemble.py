"""The pods of the present attempt: create the missing ones, delete those in their way, and say how far the gang is.

Pods are created only when no pod of an older attempt, or of an earlier job of the same name, is left: two programs that
write the same backup would spoil it.
Where launchers report, the gang trains when its pods are ready and the chief's launcher says so too.
"""

from datetime import datetime
from itertools import filterfalse

import msgspec

from tftraining.launch.failure.incident import ASKED_FOR
from tftraining.launch.failure_and_restart_messages import exited_early
from tftraining.launch.roles import OUTSIDE_GANG
from tftraining_api.manifests.pod import PodManifests
from tftraining_api.manifests.service import service
from tftraining_api.model.keras import has_begun
from tftraining_api.model.names import Replica
from tftraining_api.model.status import Status
from tftraining_operator.model.conditions import with_condition
from tftraining_operator.model.launcher_report import Report
from tftraining_operator.model.observed import Refusal
from tftraining_operator.plan import messages
from tftraining_operator.plan.auxiliary_objects import with_secret
from tftraining_operator.plan.avoided_nodes import avoided_now
from tftraining_operator.plan.context import Context, Draft
from tftraining_operator.plan.gang import count
from tftraining_operator.plan.launcher_report import restart_record
from tftraining_operator.plan.member_warnings import why_members
from tftraining_operator.plan.no_progress import why_no_step
from tftraining_operator.plan.quota_request import LOOK_AGAIN, WAITING_FOR_QUOTA, asked_quota, without_pods
from tftraining_operator.plan.refused_writes import CREATION_REFUSED, only_one
from tftraining_operator.plan.restart_policy import restart_due
from tftraining_operator.plan.resumption import with_place
from tftraining_operator.plan.spec_updates import departing, fewer_train, with_fewer
from tftraining_operator.plan.step import Event
from tftraining_operator.plan.storage_warning import STORAGE_IN_USE


def assemble(context: Context, draft: Draft) -> Draft:
    """The writes that bring the gang together, and the status of the gang."""
    before, observed = draft.status, context.observed
    if observed.quota is not None and observed.quota.gives_back:
        draft = without_pods(context, draft)
    gang = draft.gang
    status = _describe(context, draft)
    wait = _wait_until(context, draft)
    wanted = _wanted(context, draft, wait)
    avoided = avoided_now(context, status)
    named = msgspec.structs.replace(status, successors=gang.successors, avoided_nodes=avoided)
    draft = draft.with_fields(
        status=status,
        create_service=None if observed.service or wait or observed.leftovers else service(context.job, context.spec),
        create_pods=PodManifests(context.job_with(named), context.spec, wanted, context.image),
    )
    surplus = departing(context, draft) if gang.surplus else ()
    # Pods that an earlier job of the name has left on lost nodes.
    earlier = tuple(pod for pod in observed.earlier if pod.node_lost)
    # A pod that leaves its node has its own grace period, in which the copy is made.
    draft = draft.with_deletions(tuple(filter(context.condition_to_leave, gang.given_up)), grace=None)
    given_up = filterfalse(context.condition_to_leave, gang.given_up)
    draft = draft.with_deletions((*gang.stale, *given_up, *surplus, *earlier))
    draft = draft.with_events(*_events(before, status, draft.report))
    draft = draft.with_fields(quota=asked_quota(context, draft)) if gang.missing and not gang.stale else draft
    draft = draft.with_requeue(context.now + LOOK_AGAIN if observed.quota else None)
    draft = draft.with_requeue(wait or _evaluator_due(context) or messages.look_again(gang, observed, context.now))
    needs_secret = context.spec.in_place and (wanted or any(pod.preparing for pod in gang.members.values()))
    return with_secret(context, draft, wanted) if needs_secret else draft


def _wanted(context: Context, draft: Draft, wait: datetime | None) -> tuple[Replica, ...]:
    """The pods to create now: one, if that is enough to see whether the API server accepts more. The evaluator comes
    last, so a refusal of the evaluator delays nobody else."""
    gang, observed = draft.gang, context.observed
    if gang.stale or observed.leftovers or observed.storage.held or observed.quota is not None:
        return ()
    if not _is_keras_stored(context, draft):
        return ()
    evaluators = gang.missing_evaluators if _evaluator_due(context) is None else ()
    wanted = (*(gang.missing if wait is None else ()), *evaluators)
    return wanted[:1] if observed.refusal and only_one(observed.refusal) else wanted


def _is_keras_stored(context: Context, draft: Draft) -> bool:
    """Whether the API server's answer has status.keras, or the job has begun without it (see plan/keras.py)."""
    stored = context.job.status
    return stored.keras == draft.status.keras or has_begun(stored, context.observed.replicas)


def _evaluator_due(context: Context) -> datetime | None:
    """When the evaluator may be created after a refusal of any child; None if that is now.

    Creating the evaluator during the back-off of the gang would apply the NetworkPolicy and the PodGroup at every pass.
    """
    refusal = context.observed.refusal
    return refusal.retry_at if refusal and refusal.retry_at > context.now else None


def _is_of_evaluator(refusal: Refusal) -> bool:
    role = refusal.child.rpartition("-")[0].rpartition("-")[2]
    return refusal.child.startswith("pod/") and role in OUTSIDE_GANG


def _wait_until(context: Context, draft: Draft) -> datetime | None:
    """Until when no pod of the gang may be created: the back-off of a restart, or of a refusal by the API server."""
    refusal = context.observed.refusal
    until = [restart_due(context.spec, draft.status, context.now)] if draft.gang.missing else []
    until += [refusal.retry_at] if refusal and not _is_of_evaluator(refusal) else []
    return max((each for each in until if each is not None and each > context.now), default=None)


def _describe(context: Context, draft: Draft) -> Status:
    """The status of the gang as its pods and its launchers show it."""
    gang, now, before = draft.gang, context.now, draft.status
    status = _phase(context, draft)
    if messages.same_but_for_node_counts(before.message, status.message):
        status = msgspec.structs.replace(status, message=before.message)
    status = msgspec.structs.replace(
        status,
        replicas=count(gang, status.replicas),
        ready=gang.ready,
        # The status of a new job may be written some seconds after its pods are created.
        start_time=status.start_time or min((pod.created for pod in gang.pods), default=now.replace(microsecond=0)),
    )
    why = (status.reason or "Starting", f"{gang.ready} replicas training or finished")
    ready = gang.complete and status.phase == "Running"
    return with_condition(status, "Ready", "True" if ready else "False", why, now)


def _phase(context: Context, draft: Draft) -> Status:
    """The status with phase, reason and message."""
    gang, report, status = draft.gang, draft.report, draft.status
    if gang.complete and _trains(status, report):
        return _running(context, draft)
    if report is not None and report.phase == "Restarting" and status.phase in ("Starting", "Running"):
        return _restarting(context, status, report)
    if gang.complete:  # and the launchers have yet to say that they train
        return _with_skipping(status, report)
    if report is not None and fewer_train(report):
        return with_fewer(context, draft, messages.why_incomplete(gang, context.observed, context.now)[1])
    return _short_of(context, draft) if status.phase == "Running" else _not_yet(context, draft)


def _trains(status: Status, report: Report | None) -> bool:
    """Whether a gang whose pods are ready trains. A report may be older than the state of the pods: it does not turn a
    gang that trains into one that starts."""
    if report is None or report.phase == "Training":
        return True
    return status.phase == "Running" and report.phase != "Restarting"


def _running(context: Context, draft: Draft) -> Status:
    status, last = draft.status, draft.status.latest_restart
    if last is not None and last.down_seconds is None:
        down = max(0.0, round((context.now - last.time).total_seconds(), 1))
        status = msgspec.structs.replace(status, last_restart=msgspec.structs.replace(last, down_seconds=down))
    status = with_place(status, context.status.progress, draft.report, context.now)
    last = status.latest_restart
    message = messages.who_trains(draft.gang, draft.report)
    is_news = last is not None and (last.reason not in ASKED_FOR or last.resumed_from_step is not None)
    if last is not None and context.spec.in_place and is_news:
        message = f"{messages.what_happened(context.job.key.name, last)}; {messages.resumption(last)}"
    message += why_no_step(draft.report) or messages.why_skipping(draft.report)
    message += why_members(draft.report)
    message += messages.why_no_evaluator(draft.gang, context.observed)
    return msgspec.structs.replace(status, phase="Running", reason="Training", message=message)


def _short_of(context: Context, draft: Draft) -> Status:
    """The gang trains on without a member whose node is silent or that restarts alone; the message says why."""
    if silent := [pod for pod in draft.gang.pods if pod.running and pod.node_not_ready]:
        message = f"{silent[0].label}: {silent[0].waiting}"
        return msgspec.structs.replace(draft.status, reason="NodeNotReady", message=message)
    reason, message = messages.why_incomplete(draft.gang, context.observed, context.now)
    if reason not in ("PodsNotReady", CREATION_REFUSED, WAITING_FOR_QUOTA):
        return draft.status
    return msgspec.structs.replace(draft.status, message=messages.training_without(draft.gang.ready, message))


def _restarting(context: Context, status: Status, report: Report) -> Status:
    """The launchers restart at the moment; what they report of the restart is kept when they train again."""
    last = restart_record(context.job.key.name, report.last_restart, status) if report.last_restart else None
    what = messages.what_happened(context.job.key.name, last) if last else report.message
    reason = (last.reason if last else report.reason) or "Error"
    return msgspec.structs.replace(status, phase="Restarting", reason=reason, message=f"{what}; {messages.IN_PLACE}")


def _not_yet(context: Context, draft: Draft) -> Status:
    status, report = draft.status, draft.report
    reason, message = messages.why_incomplete(draft.gang, context.observed, context.now)
    if reason == "PodsStarting" and report is not None and report.finished:
        message += f"; {exited_early(report.finished)}"
    starts = report if reason == "PodsStarting" else None
    if status.phase == "Starting" or (status.attempt == 1 and status.phase == "Pending"):
        return _with_skipping(msgspec.structs.replace(status, phase="Starting", reason=reason, message=message), starts)
    restarts = (status.last_restart, report.last_restart if report else None)
    known = [each.reason for each in restarts if each is not None]
    on_the_way = reason in ("CreatingPods", "Stopping", "PodsStarting") and not messages.is_late(message)
    if status.reason in known and on_the_way:
        # Why the gang restarts is worth more to a person than that its pods are on their way.
        return _with_skipping(msgspec.structs.replace(status, phase="Restarting"), starts)
    return msgspec.structs.replace(status, phase="Restarting", reason=reason, message=message)


def _with_skipping(status: Status, report: Report | None) -> Status:
    """The status of programs that start, which says that they skip their input to where they resume."""
    if report is None or report.phase != "Starting" or not report.skipping:
        return status
    return msgspec.structs.replace(status, message=report.message)


def _events(old: Status, new: Status, report: Report | None) -> tuple[Event, ...]:
    events = []
    if old.phase == "Pending":
        events.append(Event("Normal", "Started", "creating the Service and the pods"))
    if new.phase == "Running" and old.phase != "Running":
        events.append(Event("Normal", "Training", messages.training_begins(new, report)))
    is_news = (old.reason, messages.cause(old.message)) != (new.reason, messages.cause(new.message))
    late = messages.is_late(new.message) and not messages.is_late(old.message)
    if late or (new.reason in (CREATION_REFUSED, "PodsNotReady", STORAGE_IN_USE, WAITING_FOR_QUOTA) and is_news):
        events.append(Event("Warning", new.reason or "Stopping", new.message or ""))
    return tuple(events)
