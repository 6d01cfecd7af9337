"""ResourceQuotas: the pods for which a gang needs room before its first pod is created, and what it gives back.

A gang that holds a part of a quota and waits for the rest would keep other gangs from starting, and they it. The pods'
quantities are added up, and the room is looked up, in cluster/quota_admission.py; a queue of Kueue has its own.
"""

from datetime import timedelta

import msgspec

from tftraining.launch.roles import RESIZABLE_ROLES, is_outside_gang
from tftraining_api.model.names import Replica
from tftraining_api.model.status import Counts
from tftraining_operator.plan.context import Context, Draft
from tftraining_operator.plan.refused_writes import is_by_quota
from tftraining_operator.plan.restart_policy import restart_due
from tftraining_operator.plan.step import QuotaAsk

WAITING_FOR_QUOTA = "WaitingForQuota"
# Without the right to watch quotas nothing else wakes a job.
LOOK_AGAIN = timedelta(seconds=30)


def asked_quota(context: Context, draft: Draft) -> QuotaAsk | None:
    """The pods that need room in the quotas now; None if no pod of the gang may be created for another reason."""
    gang, observed, due = draft.gang, context.observed, restart_due(context.spec, draft.status, context.now)
    refusal = observed.refusal
    refused = refusal is not None and refusal.retry_at > context.now and not is_by_quota(refusal)
    if gang.stale or observed.leftovers or observed.storage.held or refused or context.job.queue_labels:
        return None
    replicas = _smallest_gang(context, draft) if due is None or due <= context.now else ()
    return QuotaAsk(replicas, begins=_has_not_begun(context, draft), holds=bool(gang.pods)) if replicas else None


def without_pods(context: Context, draft: Draft) -> Draft:
    """The draft as a new attempt, which gives back the room of the pods of this one: no program has begun."""
    status = draft.status
    given_back = msgspec.structs.replace(
        status,
        attempt=status.attempt + 1,
        successors={},
        replaced={member: uid for member, uid in status.replaced.items() if is_outside_gang(member)},
        replicas={role: Counts(desired=old.desired, highest=old.highest) for role, old in status.replicas.items()},
    )
    return draft.sorted_anew_without_writes(context, given_back)


def _smallest_gang(context: Context, draft: Draft) -> tuple[Replica, ...]:
    """The missing replicas without which the gang cannot train."""
    missing, least = draft.gang.missing, context.spec.min_replicas
    if least is None:
        return missing
    there = sum(1 for each in draft.gang.members if each.role in RESIZABLE_ROLES)
    workers = [each for each in missing if each.role in RESIZABLE_ROLES]
    return (*(each for each in missing if each not in workers), *workers[: max(0, least - there)])


def _has_not_begun(context: Context, draft: Draft) -> bool:
    """Whether no program of the attempt has begun to train, as far as status and pods prove it."""
    gang, status, last = draft.gang, draft.status, draft.status.last_restart
    lost = gang.vanished or gang.given_up or any(not is_outside_gang(each) for each in status.replaced)
    if lost or any(pod.ready or pod.ended or pod.gang != context.spec.gang_shape for pod in gang.pods):
        return False
    if status.phase in ("Pending", "Starting"):
        return True
    if status.phase != "Restarting" or last is None or last.down_seconds is not None:
        return False
    return all(pod.created >= last.time.replace(microsecond=0) for pod in gang.pods)
