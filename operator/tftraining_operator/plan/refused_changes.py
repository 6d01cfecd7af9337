"""Changes and deletions that the API server refuses: each is tried again by itself, ever more slowly, and told of.

The status tells of them at the end of its message, whatever the phase is; its reason says how the job is otherwise.
That part is taken off before anything is decided, so no policy sees it, and put there anew by what is refused now.
"""

import re
from collections.abc import Iterator
from datetime import datetime

import msgspec

from tftraining_operator.model.job import Job
from tftraining_operator.model.names import KIND
from tftraining_operator.model.observed import Observed, Pod
from tftraining_operator.model.status import Status
from tftraining_operator.plan.times import earliest
from tftraining_operator.plan.types import Note, Plan

REASON = "ChangeRefused"
_TOLD = re.compile(r"(?:^|; )(?:DELETE|PATCH) \S+ was refused: .*", re.DOTALL)


def untold(status: Status) -> Status:
    """The status without what it tells of refused changes."""
    return msgspec.structs.replace(status, message=_TOLD.sub("", status.message)) if status.message else status


def cannot_be_deleted(pod: Pod, seen: Observed) -> bool:
    """Whether the API server has refused to delete the pod."""
    return _deletion("pod", pod.name) in seen.refused_changes


def hold_refused(job: Job, step: Plan, seen: Observed, now: datetime) -> Plan:
    """The step without the changes whose next try is not due, with a word on all that are refused."""
    refused = {each: seen.refused_changes[each] for each in _changes(job, step) if each in seen.refused_changes}
    held = tuple(each for each, refusal in refused.items() if refusal.retry_at > now)
    if held:
        step = _without(job, step, held)
        again_at = earliest(step.again_at, *(refused[each].retry_at for each in held))
        step = msgspec.structs.replace(step, held=held, again_at=again_at)
    if not refused or step.delete_job:
        return step
    write, refusal = next(iter(refused.items()))
    more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
    return _tell(job, step, f"{write} was refused: {refusal.message}{more}")


def _tell(job: Job, step: Plan, words: str) -> Plan:
    """The step with the words in its status, and an event if the status has not told of any refused change before."""
    before = untold(step.status).message
    status = msgspec.structs.replace(step.status, message=f"{before}; {words}" if before else words)
    news = not _TOLD.search(job.status.message or "")
    notes = (*step.notes, Note("Warning", REASON, words)) if news else step.notes
    return msgspec.structs.replace(step, status=status, notes=notes)


def _changes(job: Job, step: Plan) -> Iterator[str]:
    """The changes and deletions of the step."""
    yield from (_deletion("pod", each.name) for each in step.delete_pods)
    yield from (_end(each.name) for each in step.end_pods)
    if step.annotate_pod is not None:
        yield _annotation(step.annotate_pod.name)
    yield from (_deletion(each["kind"], each["metadata"]["name"]) for each in step.delete_companions)
    if step.delete_service:
        yield _deletion("service", job.key.name)
    if step.delete_job:
        yield _deletion(KIND, job.key.name)


def _without(job: Job, step: Plan, held: tuple[str, ...]) -> Plan:
    order = step.annotate_pod
    beside = {_deletion(each["kind"], each["metadata"]["name"]): each for each in step.delete_companions}
    # What stands beside the pods is deleted only as long as the Service is there.
    service_waits = _deletion("service", job.key.name) in held or any(each in held for each in beside)
    return msgspec.structs.replace(
        step,
        delete_pods=tuple(each for each in step.delete_pods if _deletion("pod", each.name) not in held),
        end_pods=tuple(each for each in step.end_pods if _end(each.name) not in held),
        annotate_pod=None if order is not None and _annotation(order.name) in held else order,
        delete_companions=tuple(manifest for write, manifest in beside.items() if write not in held),
        delete_service=step.delete_service and not service_waits,
        delete_job=step.delete_job and _deletion(KIND, job.key.name) not in held,
    )


def _deletion(kind: str, name: str) -> str:
    return f"DELETE {kind.lower()}/{name}"


def _annotation(pod: str) -> str:
    return f"PATCH pod/{pod}"


def _end(pod: str) -> str:
    return f"PATCH pod/{pod}/status"
