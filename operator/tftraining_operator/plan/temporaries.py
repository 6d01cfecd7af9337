"""Removing the temporary save directories of the non-chief workers, once, when no pod of the job can write any more.

The work is done by a pod (see build/cleanup_pod.py); this policy decides when it runs, how often it is tried again, and
what its end means. It is bounded: three tries, and ten minutes after the job's end at the latest.
"""

from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from tftraining_operator.build.cleanup_pod import CleanupTask, cleanup_pod
from tftraining_operator.model.job import Job
from tftraining_operator.model.observed import Observed, Pod
from tftraining_operator.model.spec import Frozen, JobSpec
from tftraining_operator.model.status import Cleanup, Counts, Status
from tftraining_operator.plan.assemble import delete
from tftraining_operator.plan.conditions import with_condition
from tftraining_operator.plan.last_evaluation import grace
from tftraining_operator.plan.types import Note, Plan

TRIES = 3
PAUSE = timedelta(seconds=5)
LIMIT = timedelta(minutes=10)


def clean(job: Job, seen: Observed, image: str, now: datetime) -> Plan:
    """The next step of the cleanup of a job that is done, or suspended."""
    status, pod = job.status, seen.cleanup
    if decided(status):
        return Plan(status=status, delete_pods=delete((pod,)) if pod else ())
    if job.spec is None or job.spec.storage is None or not indices(job.spec, status):
        return _end(status, "nothing to remove", now)
    if pod is not None:
        return _watch(job, pod, now)
    if now >= _deadline(job, now):
        return _give_up(status, f"not done after {LIMIT.seconds // 60} minutes", now)
    tries = status.cleanup.failed_attempts if status.cleanup else 0
    task = CleanupTask(job.spec.storage, indices(job.spec, status), job.spec.launcher.image or image, tries + 1)
    return _try(job, job.spec, seen, task, now)


def indices(spec: JobSpec, status: Status) -> tuple[int, ...]:
    """The indices of the non-chief workers, up to the highest one ever used; TensorFlow names directories by them."""
    highest = status.replicas.get("worker", Counts(highest=-1)).highest
    return tuple(range(0 if spec.chief.role == "chief" else 1, highest + 1))


def decided(status: Status) -> bool:
    """Whether the cleanup is over, for good or bad."""
    condition = status.condition("Cleaned")
    return condition is not None and condition.status != "Unknown"


def _deadline(job: Job, now: datetime) -> datetime:
    status = job.status
    suspended = status.condition("Suspended")
    paused_at = suspended.last_transition_time if suspended and suspended.status == "True" else now
    return (status.completion_time or paused_at) + LIMIT + grace(job)


def _try(job: Job, spec: JobSpec, seen: Observed, task: CleanupTask, now: datetime) -> Plan:
    deadline = _deadline(job, now)
    writers = [pod for pod in seen.replicas if not pod.ended]
    if writers:
        message = f"waiting for {writers[0].label} to stop"
        waiting = with_condition(job.status, "Cleaned", "Unknown", ("Waiting", message), now)
        return Plan(status=waiting, again_at=deadline)
    message = "removing the temporary save directories"
    if seen.refusal is not None:
        message = f"{seen.refusal.child}: {seen.refusal.message}"
    status = with_condition(job.status, "Cleaned", "Unknown", ("Cleaning", message), now)
    if seen.refusal is not None and seen.refusal.retry_at > now:
        return Plan(status=status, again_at=seen.refusal.retry_at)
    return Plan(status=status, create_pods=(cleanup_pod(job, spec, task),), again_at=deadline)


def _watch(job: Job, pod: Pod, now: datetime) -> Plan:
    status = job.status
    if pod.abandoned:
        # Lost with its node, which says nothing of the task: the next one is no other try.
        return Plan(status=status, delete_pods=delete((pod,)))
    if pod.succeeded:
        removed, trouble = _result(pod)
        status = _count_removed(status, removed)
        ended = _end(status, trouble or _told(status), now)
        return msgspec.structs.replace(ended, delete_pods=delete((pod,)))
    if pod.failed:
        return _after_failure(status, pod, now)
    deadline = _deadline(job, now)
    if now >= deadline:
        given_up = _give_up(status, pod.waiting or "the cleanup pod did not end in time", now)
        return msgspec.structs.replace(given_up, delete_pods=delete((pod,)))
    if not pod.waiting:
        return Plan(status=status, again_at=deadline)
    waiting = with_condition(status, "Cleaned", "Unknown", ("Waiting", f"{pod.name}: {pod.waiting}"), now)
    return Plan(status=waiting, again_at=deadline)


def _after_failure(status: Status, pod: Pod, now: datetime) -> Plan:
    """Count a failed try once (its pod's label says which one it was), pause, and make room for the next."""
    removed, trouble = _result(pod)
    message = trouble or "the cleanup pod failed"
    if status.cleanup is None or status.cleanup.failed_attempts < pod.attempt:
        status = _count_removed(status, removed)
    status = _with_cleanup(status, failed_attempts=pod.attempt, message=message)
    if pod.attempt >= TRIES:
        given_up = _give_up(status, message, now)
        return msgspec.structs.replace(given_up, delete_pods=delete((pod,)))
    status = with_condition(status, "Cleaned", "Unknown", ("Retrying", message), now)
    ended = (pod.exit.finished_at if pod.exit else None) or pod.created
    again_at = ended + PAUSE * 2 ** (pod.attempt - 1)
    if now < again_at:
        return Plan(status=status, again_at=again_at)
    return Plan(status=status, delete_pods=delete((pod,)))


class _Left(Frozen, frozen=True):
    path: str
    error: str


class _Result(Frozen, frozen=True):
    """What tftraining.cleanup writes when it ends."""

    removed: Annotated[int, msgspec.Meta(ge=0, le=10**6)]
    failed: tuple[_Left, ...] = ()


def _result(pod: Pod) -> tuple[int, str]:
    """How many directories the pod removed, and what it could not do."""
    text = (pod.exit.message if pod.exit else pod.message).strip()
    try:
        result = msgspec.json.decode(text, type=_Result)
    except msgspec.DecodeError:
        return 0, text.splitlines()[-1] if text else pod.reason or "the cleanup pod left no message"
    if result.failed:
        return result.removed, f"could not remove {result.failed[0].path}: {result.failed[0].error}"
    return result.removed, ""


def _count_removed(status: Status, removed: int) -> Status:
    before = status.cleanup.removed if status.cleanup else None
    return _with_cleanup(status, removed=removed + (before or 0))


def _with_cleanup(status: Status, **fields: int | str) -> Status:
    return msgspec.structs.replace(status, cleanup=msgspec.structs.replace(status.cleanup or Cleanup(), **fields))


def _told(status: Status) -> str:
    number = status.cleanup.removed if status.cleanup else 0
    return f"removed {number} temporary save director{'y' if number == 1 else 'ies'}"


def _end(status: Status, message: str, now: datetime) -> Plan:
    status = _with_cleanup(_count_removed(status, 0), message=message)
    status = with_condition(status, "Cleaned", "True", ("Cleaned", message), now)
    removed = status.cleanup is not None and status.cleanup.removed
    return Plan(status=status, notes=(Note("Normal", "Cleaned", message),) if removed else ())


def _give_up(status: Status, message: str, now: datetime) -> Plan:
    message = f"{message}; directories named workertemp_<index> may be left in the job's save directories"
    status = _with_cleanup(status, message=message)
    status = with_condition(status, "Cleaned", "False", ("CleanupFailed", message), now)
    return Plan(status=status, notes=(Note("Warning", "CleanupFailed", message),))
