"""What remains to be done for a job that is done: pods by cleanPodPolicy, the Service, the temporary directories."""

from datetime import datetime, timedelta

import msgspec

from tftraining_operator.model.job import Job
from tftraining_operator.model.observed import Observed, Pod
from tftraining_operator.model.spec import RunPolicy
from tftraining_operator.model.status import Counts, Status
from tftraining_operator.plan.assemble import delete
from tftraining_operator.plan.last_evaluation import LEAVING, evaluates, grace
from tftraining_operator.plan.temporaries import clean
from tftraining_operator.plan.times import earliest
from tftraining_operator.plan.types import Plan

# An end that they do not know of: they would train on.
TOO_LATE = "DeadlineExceeded"


def finish(job: Job, seen: Observed, image: str, now: datetime) -> Plan:
    """The next step of a terminal job. Its phase never changes again."""
    policy = (job.spec.run_policy if job.spec else RunPolicy()).clean_pod_policy
    status = _count_down(job.status, seen)
    plan = clean(msgspec.structs.replace(job, status=status), seen, image, now)
    writers = [pod for pod in seen.replicas if not pod.ended]
    patience = {pod.uid: until for pod in writers if (until := _patience(job, pod, now)) is not None}
    unwanted = _unwanted(policy, seen, status)
    return msgspec.structs.replace(
        plan,
        delete_pods=plan.delete_pods + delete(tuple(pod for pod in unwanted if pod.uid not in patience)),
        delete_service=seen.service and policy != "None" and not writers,
        again_at=earliest(plan.again_at, *patience.values()),
    )


def _patience(job: Job, pod: Pod, now: datetime) -> datetime | None:
    """Until when a member may leave by itself; None if there is nothing, or no longer anything, to wait for."""
    ended, current = job.status.completion_time, pod.attempt == job.status.attempt or evaluates(pod)
    if job.spec is None or ended is None or not pod.running or not current or job.status.reason == TOO_LATE:
        return None
    # Launchers know of the end by themselves: a pod that ends so is kept, and its log with it.
    patience = LEAVING if job.spec.in_place else timedelta()
    until = ended + max(patience, grace(job) if evaluates(pod) else patience)
    return until if now < until else None


def _unwanted(policy: str, seen: Observed, status: Status) -> tuple[Pod, ...]:
    if policy == "None":
        return ()
    # Pods of an older attempt are leftovers of a restart under every other policy. A side-car may run on for ever.
    return tuple(
        pod for pod in seen.replicas if policy == "All" or not pod.ended or pod.busy or _is_of_the_past(pod, status)
    )


def _is_of_the_past(pod: Pod, status: Status) -> bool:
    return pod.attempt < status.attempt and not evaluates(pod)


def _count_down(status: Status, seen: Observed) -> Status:
    """Only `active` and `ready` still change: what succeeded or failed stays true when the pods are gone."""
    active = dict.fromkeys(status.replicas, 0)
    for pod in seen.replicas:
        if pod.replica and not pod.ended and pod.replica.role in active:
            active[pod.replica.role] += 1
    replicas: dict[str, Counts] = {
        role: msgspec.structs.replace(old, active=active[role], ready=min(old.ready, active[role]))
        for role, old in status.replicas.items()
    }
    return msgspec.structs.replace(status, replicas=replicas)
