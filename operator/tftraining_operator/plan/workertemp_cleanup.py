"""Removing the temporary save directories (workertemp_<index>) of the non-chief workers: of whom, and when.

A pod does the work (tftraining_api/manifests/cleanup_pod.py) once no pod of the job can write any more: after the
job's end, or during a suspension. Three tries are made, and none later than ten minutes after the job's end.
"""

from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from tftraining.launch.roles import WORKER
from tftraining_api.manifests.cleanup_pod import CleanupTask, cleanup_pod
from tftraining_api.model.spec import Frozen, JobSpec, Storage
from tftraining_api.model.status import Cleanup, Counts, Status
from tftraining_api.model.times import saturated
from tftraining_operator.model.conditions import with_condition
from tftraining_operator.model.observed import Pod
from tftraining_operator.model.times import is_ahead
from tftraining_operator.plan.clean_pods import evaluator_grace
from tftraining_operator.plan.context import Context, Draft
from tftraining_operator.plan.step import Event

TRIES = 3
PAUSE = timedelta(seconds=5)
LIMIT = timedelta(minutes=10)
# The definition allows 10,000 workers.
LARGEST_INDEX = 9_999
BY_HAND = "remove directories named workertemp_<index> from the save directories by hand"


def remember_storage(context: Context, draft: Draft) -> Draft:
    """The draft that notes in status.cleanup the storage that the job's pods write, or are about to write. It is needed
    because spec.storage may change in a suspension before a pass sees the suspension. For a job that trains already no
    write is made for this note: it comes with the next restart."""
    spec, known = context.spec, draft.status.cleanup or Cleanup()
    if known.storage == spec.storage or context.status.phase == "Running":
        return draft
    made_from = {pod.template_hash for pod in context.observed.replicas} - {""}
    begins = draft.status.keras != context.job.status.keras  # the pods come once that is stored: one write for both
    if made_from - {spec.fingerprint} or not (made_from or begins or draft.step.create_pods):
        return draft
    return draft.with_status_fields(cleanup=msgspec.structs.replace(known, storage=spec.storage))


def remove_workertemp(context: Context, draft: Draft) -> Draft:
    """The draft with the next step of the cleanup of a job that has ended, or is suspended."""
    spec, status, pod = context.job.spec, draft.status, context.observed.cleanup
    if is_decided(status):
        return draft.with_deletions((pod,)) if pod else draft
    storage = cleaned_storage(spec, status)
    if spec is None or storage is None or not indices(spec, status):
        return _end(context, draft, "nothing to remove")
    if pod is not None:
        return _watch(context, draft, pod)
    if context.now >= _deadline(context, status):
        return _give_up(context, draft, f"not finished after {LIMIT.seconds // 60} minutes")
    tries = status.cleanup.failed_attempts if status.cleanup else 0
    task = CleanupTask(storage, indices(spec, status), spec.launcher.image or context.image, tries + 1)
    return _try(context, draft, spec, task)


def indices(spec: JobSpec, status: Status) -> tuple[int, ...]:
    """The indices of the non-chief workers, up to the highest one ever used; TensorFlow names directories by them. The
    status may name any number, and the list of these indices would not fit into memory."""
    highest = min(status.replicas.get(WORKER, Counts(highest=-1)).highest, LARGEST_INDEX)
    return tuple(range(1 if spec.chief.role == WORKER else 0, highest + 1))


def cleaned_storage(spec: JobSpec | None, status: Status) -> Storage | None:
    """The storage that the pods have written."""
    known = status.cleanup.storage if status.cleanup else None
    return known or (spec.storage if spec else None)


def is_decided(status: Status) -> bool:
    """Whether the cleanup is over: done, or given up."""
    condition = status.condition("Cleaned")
    return condition is not None and condition.status != "Unknown"


def _deadline(context: Context, status: Status) -> datetime:
    suspended = status.condition("Suspended")
    paused_at = suspended.last_transition_time if suspended and suspended.status == "True" else context.now
    return saturated(status.completion_time or paused_at) + LIMIT + evaluator_grace(context, status)


def _try(context: Context, draft: Draft, spec: JobSpec, task: CleanupTask) -> Draft:
    """Create the cleanup pod when no pod writes any more and no refusal is waited for."""
    refusal, deadline = context.observed.refusal, _deadline(context, draft.status)
    writers = [pod for pod in context.observed.replicas if not pod.ended]
    if writers:
        return _unknown(context, draft, "Waiting", f"waiting for {writers[0].label} to stop").with_requeue(deadline)
    if context.observed.storage.held or context.observed.storage.shared:
        why = context.observed.storage.held or context.observed.storage.shared
        return _unknown(context, draft, "Waiting", why).with_requeue(deadline)
    if refusal is None:
        draft = _unknown(context, draft, "Cleaning", "removing the temporary save directories")
    else:
        draft = _unknown(context, draft, "Cleaning", f"{refusal.child}: {refusal.message}")
        if refusal.retry_at > context.now:
            return draft.with_requeue(refusal.retry_at)
    job = context.job_with(draft.status)
    return draft.with_fields(create_pods=(cleanup_pod(job, spec, task),)).with_requeue(deadline)


def _unknown(context: Context, draft: Draft, reason: str, message: str) -> Draft:
    """The draft with a condition Cleaned that is not decided yet."""
    return draft.with_fields(status=with_condition(draft.status, "Cleaned", "Unknown", (reason, message), context.now))


def _watch(context: Context, draft: Draft, pod: Pod) -> Draft:
    """The next step while the cleanup pod exists."""
    if pod.node_lost:
        # A lost node says nothing about the cleanup, so the next pod does not count as another attempt.
        return draft.with_deletions((pod,))
    if pod.succeeded:
        removed, trouble = _result(pod)
        draft = draft.with_fields(status=_count_removed(draft.status, removed))
        return _end(context, draft, trouble or _in_words(draft.status)).with_deletions((pod,))
    if pod.failed:
        return _after_failure(context, draft, pod)
    deadline = _deadline(context, draft.status)
    if context.now >= deadline:
        why = pod.waiting or "the cleanup pod did not finish in time"
        return _give_up(context, draft, why).with_deletions((pod,))
    if pod.waiting:
        draft = _unknown(context, draft, "Waiting", f"{pod.name}: {pod.waiting}")
    return draft.with_requeue(deadline)


def _after_failure(context: Context, draft: Draft, pod: Pod) -> Draft:
    """Count a failed try once (the pod's label says which one it was), pause, and make room for the next."""
    removed, trouble = _result(pod)
    message, status = trouble or "the cleanup pod failed", draft.status
    if status.cleanup is None or status.cleanup.failed_attempts < pod.attempt:
        status = _count_removed(status, removed)
    draft = draft.with_fields(status=_with_cleanup(status, failed_attempts=pod.attempt, message=message))
    if pod.attempt >= TRIES:
        return _give_up(context, draft, message).with_deletions((pod,))
    draft = _unknown(context, draft, "Retrying", message)
    finished = pod.exit.finished_at if pod.exit else None
    # The time of its end is of the node's clock.
    ended = pod.created if finished is None or is_ahead(finished, context.now) else finished
    next_try = ended + PAUSE * 2 ** (pod.attempt - 1)
    return draft.with_requeue(next_try) if context.now < next_try else draft.with_deletions((pod,))


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


def _with_cleanup(status: Status, **fields: int | str | None) -> Status:
    return msgspec.structs.replace(status, cleanup=msgspec.structs.replace(status.cleanup or Cleanup(), **fields))


def _in_words(status: Status) -> str:
    number = status.cleanup.removed if status.cleanup else 0
    return f"removed {number} temporary save director{'y' if number == 1 else 'ies'}"


def _end(context: Context, draft: Draft, message: str) -> Draft:
    status = _with_cleanup(_count_removed(draft.status, 0), message=message, storage=None)  # nothing is left in it
    draft = draft.with_fields(status=with_condition(status, "Cleaned", "True", ("Cleaned", message), context.now))
    removed = status.cleanup is not None and status.cleanup.removed
    return draft.with_events(Event("Normal", "Cleaned", message)) if removed else draft


def _give_up(context: Context, draft: Draft, message: str) -> Draft:
    message = f"{message}; {BY_HAND}"
    status = _with_cleanup(draft.status, message=message)
    draft = draft.with_fields(
        status=with_condition(status, "Cleaned", "False", ("CleanupFailed", message), context.now)
    )
    return draft.with_events(Event("Warning", "CleanupFailed", message))
