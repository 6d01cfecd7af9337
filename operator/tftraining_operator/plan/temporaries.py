"""Removing the temporary save directories of the non-chief workers, once, when no pod of the job can write any more.

The work is done by a pod (see build/cleanup_pod.py); this policy decides when it runs, how often it is tried again, and
what its end means. It is bounded: three tries, and ten minutes after the job's end at the latest.
"""

import json
from datetime import datetime, timedelta

import msgspec

from tftraining_operator.build.cleanup_pod import CleanupTask, cleanup_pod
from tftraining_operator.model.job import Job
from tftraining_operator.model.observed import Observed, Pod
from tftraining_operator.model.spec import JobSpec
from tftraining_operator.model.status import Cleanup, Counts, Status
from tftraining_operator.plan.assemble import delete
from tftraining_operator.plan.conditions import with_condition
from tftraining_operator.plan.types import Note, Plan

TRIES = 3
PAUSE = timedelta(seconds=5)
LIMIT = timedelta(minutes=10)


def clean(job: Job, seen: Observed, image: str, now: datetime) -> Plan:
    """The next step of the cleanup of a job that is done."""
    status, pod = job.status, seen.cleanup
    if _decided(status):
        return Plan(status=status, delete_pods=delete((pod,)) if pod else ())
    if job.spec is None or job.spec.storage is None or not indices(job.spec, status):
        return _end(status, 0, "nothing to remove", now)
    if pod is not None:
        return _watch(status, pod, now)
    if now - (status.completion_time or now) > LIMIT:
        return _give_up(status, f"not done after {LIMIT.seconds // 60} minutes", now)
    return _try(job, job.spec, seen, image, now)


def indices(spec: JobSpec, status: Status) -> tuple[int, ...]:
    """The indices of the non-chief workers, up to the highest one ever used; TensorFlow names directories by them."""
    highest = status.replicas.get("worker", Counts(highest=-1)).highest
    return tuple(range(0 if spec.chief.role == "chief" else 1, highest + 1))


def _decided(status: Status) -> bool:
    condition = status.condition("Cleaned")
    return condition is not None and condition.status != "Unknown"


def _try(job: Job, spec: JobSpec, seen: Observed, image: str, now: datetime) -> Plan:
    writers = [pod for pod in seen.replicas if not pod.ended]
    if writers or spec.storage is None:
        message = f"waiting for {writers[0].label} to stop" if writers else ""
        return Plan(status=with_condition(job.status, "Cleaned", "Unknown", ("Waiting", message), now))
    message = "removing the temporary save directories"
    if seen.refusal is not None:
        message = f"{seen.refusal.child}: {seen.refusal.message}"
    status = with_condition(job.status, "Cleaned", "Unknown", ("Cleaning", message), now)
    if seen.refusal is not None and seen.refusal.retry_at > now:
        return Plan(status=status, again_at=seen.refusal.retry_at)
    failed = status.cleanup.failed_attempts if status.cleanup else 0
    task = CleanupTask(spec.storage, indices(spec, status), spec.launcher.image or image, failed + 1)
    deadline = (status.completion_time or now) + LIMIT + timedelta(seconds=1)
    return Plan(status=status, create_pods=(cleanup_pod(job, spec, task),), again_at=deadline)


def _watch(status: Status, pod: Pod, now: datetime) -> Plan:
    if pod.succeeded:
        removed, message = _result(pod)
        ended = _end(status, removed, message, now)
        return msgspec.structs.replace(ended, delete_pods=delete((pod,)))
    if pod.failed:
        return _after_failure(status, pod, now)
    deadline = (status.completion_time or now) + LIMIT + timedelta(seconds=1)
    if now >= deadline:
        given_up = _give_up(status, pod.waiting or "the cleanup pod did not end in time", now)
        return msgspec.structs.replace(given_up, delete_pods=delete((pod,)))
    if not pod.waiting:
        return Plan(status=status, again_at=deadline)
    waiting = with_condition(status, "Cleaned", "Unknown", ("Waiting", f"{pod.name}: {pod.waiting}"), now)
    return Plan(status=waiting, again_at=deadline)


def _after_failure(status: Status, pod: Pod, now: datetime) -> Plan:
    """Count a failed try once (its pod's label says which one it was), pause, and make room for the next."""
    _, message = _result(pod)
    cleanup = msgspec.structs.replace(status.cleanup or Cleanup(), failed_attempts=pod.attempt, message=message)
    status = msgspec.structs.replace(status, cleanup=cleanup)
    if pod.attempt >= TRIES:
        given_up = _give_up(status, message, now)
        return msgspec.structs.replace(given_up, delete_pods=delete((pod,)))
    status = with_condition(status, "Cleaned", "Unknown", ("Retrying", message), now)
    ended = (pod.exit.finished_at if pod.exit else None) or pod.created
    again_at = ended + PAUSE * 2 ** (pod.attempt - 1)
    if now < again_at:
        return Plan(status=status, again_at=again_at)
    return Plan(status=status, delete_pods=delete((pod,)))


def _result(pod: Pod) -> tuple[int, str]:
    """How many directories the pod removed, and what it says about it (see tftraining.cleanup)."""
    text = (pod.exit.message if pod.exit else pod.message).strip()
    try:
        result = json.loads(text)
        removed, failed = int(result["removed"]), list(result.get("failed") or ())
    except (ValueError, KeyError, TypeError, AttributeError):
        return 0, text.splitlines()[-1] if text else pod.reason or "the cleanup pod left no message"
    if failed:
        return removed, f"could not remove {failed[0].get('path')}: {failed[0].get('error')}"
    return removed, f"removed {removed} temporary save director{'y' if removed == 1 else 'ies'}"


def _end(status: Status, removed: int, message: str, now: datetime) -> Plan:
    old = status.cleanup or Cleanup()
    status = msgspec.structs.replace(
        status, cleanup=msgspec.structs.replace(old, removed=removed + (old.removed or 0), message=message)
    )
    status = with_condition(status, "Cleaned", "True", ("Cleaned", message), now)
    return Plan(status=status, notes=(Note("Normal", "Cleaned", message),) if removed else ())


def _give_up(status: Status, message: str, now: datetime) -> Plan:
    message = f"{message}; directories named workertemp_<index> may be left in the job's save directories"
    status = msgspec.structs.replace(
        status, cleanup=msgspec.structs.replace(status.cleanup or Cleanup(), message=message)
    )
    status = with_condition(status, "Cleaned", "False", ("CleanupFailed", message), now)
    return Plan(status=status, notes=(Note("Warning", "CleanupFailed", message),))
