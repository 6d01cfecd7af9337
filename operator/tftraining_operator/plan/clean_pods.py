"""runPolicy.cleanPodPolicy for a job that has ended: which pods are deleted and when, and the Service.

With runPolicy.evaluatorGraceSeconds the evaluator may evaluate the last checkpoint of a job that has succeeded.
"""

from datetime import datetime, timedelta

import msgspec

from tftraining_api.model.status import Counts, Status
from tftraining_api.model.times import saturated
from tftraining_operator.model.observed import Observed, Pod
from tftraining_operator.model.times import duration
from tftraining_operator.plan.context import Context, Draft

# The job ended by runPolicy.activeDeadlineSeconds: its launchers do not know that, and would keep training.
TOO_LATE = "DeadlineExceeded"
# A launcher that knows of the job's end ends its program, with a grace of its own, and then itself.
LEAVING = timedelta(seconds=10)


def clean_pods(context: Context, draft: Draft) -> Draft:
    """The draft with the deletion of the pods that cleanPodPolicy does not keep, and then of the Service."""
    observed, policy = context.observed, context.run_policy.clean_pod_policy
    draft = draft.with_fields(status=_count_down(draft.status, observed))
    writers = [pod for pod in observed.replicas if not pod.ended]
    leaving = {pod.uid: until for pod in writers if (until := _leaves_by(context, draft.status, pod)) is not None}
    unwanted = _unwanted(policy, observed, draft.status)
    draft = draft.with_deletions(tuple(pod for pod in unwanted if pod.uid not in leaving))
    return draft.with_fields(delete_service=observed.service and policy != "None" and not writers).with_requeue(
        *leaving.values()
    )


def evaluator_grace(context: Context, status: Status) -> timedelta:
    """How long the evaluator's pod is left alone after the job's end."""
    if context.job.spec is None or not context.spec.evaluators or status.phase != "Succeeded":
        return timedelta()
    own = duration(context.run_policy.evaluator_grace_seconds)
    termination = duration(context.spec.launcher.termination_grace_seconds)
    return own + LEAVING + termination if context.spec.in_place else own


def is_evaluator(pod: Pod) -> bool:
    """Whether the pod is that of a replica outside the gang."""
    return pod.replica is not None and not pod.replica.traits.in_gang


def _leaves_by(context: Context, status: Status, pod: Pod) -> datetime | None:
    """Until when the program in the pod may end by itself; None if it may not, or the time is over."""
    ended, current = status.completion_time, pod.attempt == status.attempt or is_evaluator(pod)
    if context.job.spec is None or ended is None or not pod.running or not current or status.reason == TOO_LATE:
        return None
    # Launchers know of the job's end, so their pods end by themselves. Waiting for that lets cleanPodPolicy Running
    # keep them, and their logs.
    patience = LEAVING if context.spec.in_place else timedelta()
    until = saturated(ended) + max(patience, evaluator_grace(context, status) if is_evaluator(pod) else patience)
    return until if context.now < until else None


def _unwanted(policy: str, observed: Observed, status: Status) -> tuple[Pod, ...]:
    if policy == "None":
        # What somebody has deleted goes, although its node is lost: the cleanup waits for it.
        return tuple(pod for pod in observed.replicas if pod.deleting)
    # Pods of an older attempt are left over from a restart under both other policies. A side-car may run for ever.
    return tuple(
        pod
        for pod in observed.replicas
        if policy == "All" or not pod.ended or pod.any_container_running or _is_of_older_attempt(pod, status)
    )


def _is_of_older_attempt(pod: Pod, status: Status) -> bool:
    return pod.attempt < status.attempt and not is_evaluator(pod)


def _count_down(status: Status, observed: Observed) -> Status:
    """The status with `active` and `ready` of the pods that are left; the other counts stay true without pods."""
    active = dict.fromkeys(status.replicas, 0)
    for pod in observed.replicas:
        if pod.replica and not pod.ended and pod.replica.role in active:
            active[pod.replica.role] += 1
    replicas: dict[str, Counts] = {
        role: msgspec.structs.replace(old, active=active[role], ready=min(old.ready, active[role]))
        for role, old in status.replicas.items()
    }
    return msgspec.structs.replace(status, replicas=replicas)
