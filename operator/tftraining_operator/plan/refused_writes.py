"""Updates and deletions that the API server refuses: each is tried again, ever more slowly, and named in the status.

The condition ChangeRefused names them, whatever the phase is; reason and message say how the job is otherwise. An
operator of an earlier version has named them at the end of the message, which the first pass removes.
"""

import re
from collections.abc import Iterator

import msgspec

from tftraining_api.model.names import KIND
from tftraining_api.model.status import REFUSED_WRITE, Status
from tftraining_operator.model.conditions import with_condition, without_condition
from tftraining_operator.plan.context import Context, Draft
from tftraining_operator.plan.step import Event, Step

REASON = CONDITION = "ChangeRefused"


def without_earlier_words(status: Status, job: str) -> Status:
    """The status without the words of an earlier version about refused writes to the job's own objects."""
    told = rf"(?:^|; )(?:DELETE|PATCH) [a-z]+/{re.escape(job)}[\w./-]*{REFUSED_WRITE}.*"
    return msgspec.structs.replace(status, message=re.sub(told, "", status.message or "", flags=re.DOTALL) or None)


def hold_refused_writes(context: Context, draft: Draft) -> Draft:
    """The draft without the refused writes whose next try is not due; its condition names the refused writes."""
    known, name = context.observed.refused_changes, context.job.key.name
    refused = {each: known[each] for each in _changes(name, draft.step) if each in known}
    held = tuple(each for each, refusal in refused.items() if refusal.retry_at > context.now)
    if held:
        step = msgspec.structs.replace(_without(name, draft.step, held), held_writes=held)
        draft = msgspec.structs.replace(draft, step=step).requeued(*(refused[each].retry_at for each in held))
    if draft.step.delete_job:
        return draft
    if not refused:
        return draft.but(status=without_condition(draft.status, CONDITION))
    write, refusal = next(iter(refused.items()))
    more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
    words = f"{write}{REFUSED_WRITE}{refusal.message}{more}"
    is_news = draft.status.condition(CONDITION) is None
    draft = draft.but(status=with_condition(draft.status, CONDITION, "True", (REASON, words), context.now))
    return draft.with_events(Event("Warning", REASON, words)) if is_news else draft


def _changes(job: str, step: Step) -> Iterator[str]:
    """The updates and deletions of the step, each in the form in which refused_changes has it."""
    yield from (_deletion("pod", each.name) for each in step.delete_pods)
    yield from (_end(each.name) for each in step.fail_pods)
    if step.annotate_pod is not None:
        yield _annotation(step.annotate_pod.name)
    yield from (_deletion(each["kind"], each["metadata"]["name"]) for each in step.delete_auxiliary_objects)
    if step.delete_service:
        yield _deletion("service", job)
    if step.delete_job:
        yield _deletion(KIND, job)


def _without(job: str, step: Step, held: tuple[str, ...]) -> Step:
    order = step.annotate_pod
    beside = {_deletion(each["kind"], each["metadata"]["name"]): each for each in step.delete_auxiliary_objects}
    # The Service is deleted last: as long as it exists, each pass deletes the auxiliary objects that are left.
    service_waits = _deletion("service", job) in held or any(each in held for each in beside)
    return msgspec.structs.replace(
        step,
        delete_pods=tuple(each for each in step.delete_pods if _deletion("pod", each.name) not in held),
        fail_pods=tuple(each for each in step.fail_pods if _end(each.name) not in held),
        annotate_pod=None if order is not None and _annotation(order.name) in held else order,
        delete_auxiliary_objects=tuple(manifest for write, manifest in beside.items() if write not in held),
        delete_service=step.delete_service and not service_waits,
        delete_job=step.delete_job and _deletion(KIND, job) not in held,
    )


def _deletion(kind: str, name: str) -> str:
    return f"DELETE {kind.lower()}/{name}"


def _annotation(pod: str) -> str:
    return f"PATCH pod/{pod}"


def _end(pod: str) -> str:
    return f"PATCH pod/{pod}/status"
