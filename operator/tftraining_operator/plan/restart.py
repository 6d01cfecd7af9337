"""The answer to an incident: new pods for the whole gang or for the lost members, or the end of the job.

* restartPolicy.mode InPlace: launchers restart the program inside the pods. The operator replaces only pods that are
  lost, under the same attempt, while the other launchers wait (or train on, with minReplicas or restartPolicy.scope
  Pod). The whole gang restarts where its shape changes.
* A new value of the annotation tftraining.dev/restartedAt restarts the whole gang in new pods, in either mode.
* restartPolicy.mode Recreate: there is no launcher. The operator restarts the whole gang as a new attempt, except for
  members that restart alone.

The attempt rises here, or the UID of a lost pod is noted, in the status, before any pod is deleted: from then on a pod
of an older attempt or with that UID is garbage, so a crash of the operator in between loses nothing.
"""

from datetime import datetime

import msgspec

from tftraining.launch.failure.incident import LOSSES
from tftraining.launch.failure.same_member import NEW_POD
from tftraining.launch.roles import GANG_ROLES, is_outside_gang
from tftraining_api.model.names import Replica, member_of
from tftraining_api.model.spec import Frozen, JobSpec
from tftraining_api.model.status import Counts, LastRestart, Restarts, Status
from tftraining_operator.model.launcher_report import Report
from tftraining_operator.model.observed import Pod
from tftraining_operator.model.times import is_ahead
from tftraining_operator.plan.auxiliary_objects import find_missing_secret
from tftraining_operator.plan.avoided_nodes import with_avoided
from tftraining_operator.plan.context import Context, Draft
from tftraining_operator.plan.end import fail
from tftraining_operator.plan.gang import SortedPods, count, was_disrupted
from tftraining_operator.plan.incident import (
    RESIZED,
    Incident,
    answers,
    find_change,
    find_incident,
    find_loss,
    incident_of,
    log_tail,
    needs_replacement,
)
from tftraining_operator.plan.kueue_successors import admits_successors, find_unreplaceable, next_successors
from tftraining_operator.plan.launcher_report import merged
from tftraining_operator.plan.memory_backup import without_backup
from tftraining_operator.plan.messages import recreating_pod, restarting_gang, with_failure
from tftraining_operator.plan.node_loss import REASON as NODE_LOST
from tftraining_operator.plan.restart_policy import apply_rules, charge_member, count_restart, wait, why_no_restart
from tftraining_operator.plan.step import Event


def restart_what_failed(context: Context, draft: Draft) -> Draft:
    """Restart the gang or its lost members, or fail the job when no restarts are left."""
    spec, gang = context.spec, draft.gang
    if spec.in_place:
        change = _find_change(draft, spec.gang_shape, context.missing_secret)
        incident = change or find_loss(gang, launched=True)
    else:
        change, incident = find_change(gang), find_incident(gang)
        draft = _refund(draft) if incident is None else draft
    queued = bool(context.job.queue_labels)
    if incident is None:
        return _restart_unreplaceable(context, draft) if queued else draft
    lost = _find_lost(gang)
    needs_queue = change is None and _needs_queue(queued, gang, lost)
    if change is None and not needs_queue and (spec.in_place or _all_restart_alone(spec, lost)):
        loss = find_loss(gang, spec.in_place)
        return _restart(context, draft, incident) if loss is None else _restart(context, draft, loss, lost)
    if needs_queue:
        is_part = _is_part_of_running_restart(incident, draft.status, lost, context.job.key.name, context.now)
        incident = msgspec.structs.replace(incident, part_of_running_restart=is_part)
    return _restart(context, draft, incident)


class Lost(Frozen, frozen=True):
    """The pods of the gang that have to be replaced, and the replicas without a pod: None for an unknown one."""

    pods: tuple[Pod, ...]
    replicas: tuple[Replica | None, ...]


def _find_lost(gang: SortedPods) -> Lost:
    pods = tuple(pod for pod in gang.pods if needs_replacement(pod))
    return Lost(pods, (*gang.vanished, *(pod.replica for pod in pods)))


def _find_change(draft: Draft, shape: str, missing_secret: str) -> Incident | None:
    """A change that takes new pods for the whole gang, where launchers train: of the spec, or of their Secret."""
    report, gang = draft.report, draft.gang
    # The launcher of an older image cannot be told of another number of workers.
    cannot_resize = report is not None and report.gang is None and any(pod.gang != shape for pod in gang.pods)
    return find_change(gang) or (RESIZED if cannot_resize else None) or find_missing_secret(missing_secret, gang)


def _restart(context: Context, draft: Draft, incident: Incident, lost: Lost | None = None) -> Draft:
    """The draft with new pods for the lost ones, or with a new attempt of the whole gang if `lost` is None; with the
    job's end if no restarts are left. All pods that are lost now are one incident."""
    spec, now, job = context.spec, context.now, context.job.key.name
    draft = _with_failure(_with_last_account(draft, incident), incident)
    incident, problem = apply_rules(spec, draft.status, incident)
    if lost is not None:
        incident = msgspec.structs.replace(
            incident,
            part_of_running_restart=_is_part_of_running_restart(incident, draft.status, lost, job, now),
            already_backed_off=_has_backed_off(draft.report, incident, job),
        )
    copy = _surviving_copy(spec, draft, lost) if lost is not None else None
    restarts = count_restart(spec, draft.status, incident, now, copy)
    if problem := problem or why_no_restart(spec, restarts, incident):
        return fail(context, draft, problem)
    restarts, why = charge_member(spec, restarts, incident, _are_others_well(draft.gang, incident))
    pause = wait(spec, restarts, incident.exception if incident.failed else "", now)
    if lost is None:
        answer = restarting_gang(draft.status.attempt + 1, pause)
        status = _with_next_attempt(_restarting(draft.status, restarts, incident, answer, now), incident)
    else:
        answer = recreating_pod(_others_train(spec, lost), pause)
        status = with_replaced(_restarting(draft.status, restarts, incident, answer, now), *lost.pods)
        status = _with_successors(status, draft.gang, lost, context.observed.replicas)
        if draft.status.phase == "Running" and _all_restart_alone(spec, lost):
            status = _training_on(status, incident)
    status = with_avoided(context, status, incident.pod, why) if why else status
    event = Event("Warning" if incident.failed else "Normal", incident.reason, status.message or "")
    return draft.sorted_anew_without_writes(context, status).with_events(event)


def _are_others_well(gang: SortedPods, incident: Incident) -> bool:
    """Whether no pod but that of the incident has failed of its own."""
    failed = (pod for pod in gang.pods if pod.failed and pod is not incident.pod)
    return all(was_disrupted(pod) or answers(pod) for pod in failed)


def _with_next_attempt(status: Status, incident: Incident) -> Status:
    """The status that starts a new attempt of the gang."""
    restarts = status.restarts
    if incident.part_of_running_restart:  # that restart is charged and counted already; it has only become larger
        restarts = msgspec.structs.replace(restarts, recreated=restarts.recreated + 1)
    return msgspec.structs.replace(
        without_backup(status),
        restarts=restarts,
        attempt=status.attempt + 1,
        successors={},
        # An evaluator without a launcher does not go with the attempt.
        replaced={member: uid for member, uid in status.replaced.items() if is_outside_gang(member)},
        replicas={role: Counts(desired=old.desired, highest=old.highest) for role, old in status.replicas.items()},
        ready=f"0/{sum(old.desired for role, old in status.replicas.items() if role in GANG_ROLES)}",
    )


def with_replaced(status: Status, *pods: Pod) -> Status:
    """The status that gives these pods up, each by its UID."""
    return msgspec.structs.replace(status, replaced={**status.replaced, **{pod.label: pod.uid for pod in pods}})


def _training_on(status: Status, incident: Incident) -> Status:
    """The status of a job whose other members train on, while the lost ones restart alone."""
    alone = status.last_restart and msgspec.structs.replace(status.last_restart, alone=True)
    message = f"{incident.message}; {recreating_pod(others_train=True)}"
    return msgspec.structs.replace(status, phase="Running", message=message, last_restart=alone)


def _with_successors(status: Status, gang: SortedPods, lost: Lost, pods: tuple[Pod, ...]) -> Status:
    """The status with the numbers in the names of the new pods, in a queue; `pods` are all of the job."""
    if not any(pod.queue_group for pod in gang.pods):
        return status
    named = [each for each in lost.replicas if each is not None]
    return msgspec.structs.replace(status, successors=next_successors(gang.successors, named, pods))


def _restarting(status: Status, restarts: Restarts, incident: Incident, answer: str, now: datetime) -> Status:
    """The status of a job that restarts after the incident; `answer` says what the operator does."""
    return msgspec.structs.replace(
        status,
        phase="Restarting",
        reason=incident.reason,
        message=f"{incident.message}; {answer}",
        restarts=restarts,
        last_restart=status.last_restart if incident.part_of_running_restart else _last_restart(incident, now),
    )


def _with_last_account(draft: Draft, incident: Incident) -> Draft:
    """The draft with the restarts that a launcher had counted when it left its pod for a new one: its last report may
    be unread."""
    result = incident.pod.exit.result if incident.reason in NEW_POD and incident.pod and incident.pod.exit else None
    return (
        draft.with_status_fields(restarts=merged(draft.status.restarts, result.ledger)) if result is not None else draft
    )


def _with_failure(draft: Draft, incident: Incident) -> Draft:
    """The draft with the counts of this moment, and with status.failure: the failed pod is about to be deleted."""
    draft = draft.with_status_fields(replicas=count(draft.gang, draft.status.replicas), ready=draft.gang.ready)
    if not incident.charged or incident.pod is None:
        return draft
    failed = with_failure(draft.status, incident.pod.name, incident, incident.reason, log_tail(incident.pod))
    return draft.with_fields(status=failed)


def _last_restart(incident: Incident, now: datetime) -> LastRestart:
    """status.lastRestart. Only a failure has an exit code: how a disrupted program ended does not matter."""
    last = LastRestart(time=now, pod=incident.pod_name, reason=incident.reason)
    if incident.pod is None or not incident.failed:
        return last
    exception = incident.exception or None
    return msgspec.structs.replace(last, exit_code=incident.exit_code, signal=incident.signal, exception=exception)


def _surviving_copy(spec: JobSpec, draft: Draft, lost: Lost) -> int | None:
    """The step of the newest backup in memory, if a member that is not lost holds it: beside parameter servers only the
    chief makes backups."""
    backup = draft.status.progress.backup if draft.status.progress else None
    if backup is None:
        return None
    copiers = spec.trainers if len(spec.trainers) == len(spec.gang) else (spec.chief,)
    return backup.step if draft.gang.members.keys() & set(copiers) - set(lost.replicas) else None


def _has_backed_off(report: Report | None, incident: Incident, job: str) -> bool:
    """Whether the launchers stopped because the pod went silent, and wait for its successor: their back-off has counted
    that."""
    last = report.last_restart if report else None
    if last is None or last.member is None or last.down_seconds is not None or last.reason not in LOSSES:
        return False
    return last.member == member_of(job, incident.pod_name or "")


def _is_part_of_running_restart(incident: Incident, status: Status, lost: Lost, job: str, now: datetime) -> bool:
    """Whether the gang is down for another disruption already, and every pod that it loses now existed before that. A
    pod that was created for the restart and is lost again is a new incident."""
    last = status.last_restart
    if status.phase != "Restarting" or last is None or last.exit_code is not None:
        return False
    replaced = member_of(job, last.pod or "") in status.replaced
    if incident.charged or incident.pod is None or last.reason in LOSSES or not replaced:
        return False
    if is_ahead(last.time, now):  # pods created since would seem older than the restart
        return False
    return all(pod.created < last.time.replace(microsecond=0) for pod in lost.pods)  # pods tell seconds only


def _others_train(spec: JobSpec, lost: Lost) -> bool:
    """Whether the other members keep training until the lost ones are back."""
    workers = all(each is not None and each.traits.resizable for each in lost.replicas)
    return workers and spec.chief not in lost.replicas and spec.min_replicas is not None


def _all_restart_alone(spec: JobSpec, lost: Lost) -> bool:
    """Whether the other members train on while the lost ones restart."""
    return all(each is not None and spec.restarts_alone(each) for each in lost.replicas)


def _needs_queue(queued: bool, gang: SortedPods, lost: Lost) -> bool:
    """Whether the whole gang has to queue anew, because Kueue would admit no successor of a lost pod."""
    if not any(each is None or each.traits.in_gang for each in lost.replicas):
        return False
    if not queued and not any(pod.queue_group for pod in lost.pods):
        return False
    return not (queued and admits_successors(gang.pods, lost.pods))


def _restart_unreplaceable(context: Context, draft: Draft) -> Draft:
    """The draft with a new attempt if the successor of a lost pod can never join the group of the others. That is part
    of the restart that is under way."""
    pod = find_unreplaceable(draft.gang.pods, draft.gang.given_up)
    if pod is None:
        return draft
    last = draft.status.last_restart
    message = f"the queue has no place for a successor of {pod.label}"
    reason = (last.reason if last else None) or "PodDeleted"
    incident = Incident(reason=reason, message=message, charged=False, part_of_running_restart=last is not None)
    return _restart(context, draft, incident)


def _refund(draft: Draft) -> Draft:
    """Refund the last charge if a lost node had caused the failure.

    Without launchers the first sign of a dead node is that the programs on other nodes fail, a minute before the node
    counts as lost. By then a restart is waiting for a previous-attempt pod that no kubelet will delete; refund the
    charge and record NodeLost. `counted` stays: a program did fail.
    """
    status, last = draft.status, draft.status.last_restart
    pod = next((each for each in draft.gang.stale if _was_lost_before(each, status.attempt)), None)
    if pod is None or last is None or last.exit_code is None:
        return draft
    message = f"{incident_of(pod, launched=False).message}: the charge for the failure that followed is refunded"
    restarts = msgspec.structs.replace(
        status.restarts,
        budget_used=max(0, status.restarts.budget_used - 1),
        disruptions=status.restarts.disruptions + 1,
    )
    record = msgspec.structs.replace(last, pod=pod.name, exit_code=None, signal=None, reason=NODE_LOST, exception=None)
    draft = draft.with_status_fields(restarts=restarts, last_restart=record, reason=NODE_LOST, message=message)
    return draft.with_events(Event("Normal", NODE_LOST, message))


def _was_lost_before(pod: Pod, attempt: int) -> bool:
    """Whether the pod is of the attempt before, and was lost with its node rather than deleted in time."""
    return pod.node_lost and pod.disruption == NODE_LOST and pod.attempt == attempt - 1
