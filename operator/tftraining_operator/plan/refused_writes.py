"""Writes that the API server refuses: each is tried again, ever more slowly, and named in the status.

A refused creation of a child is the reason CreationRefused (see plan/messages.py), or ends the job (InvalidPodTemplate)
where only another template helps. Refused updates and deletions are named by the condition ChangeRefused, whatever the
phase is; reason and message say how the job is otherwise.
"""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TypeGuard

import msgspec

from tftraining_api.kube.denials import is_denial
from tftraining_api.model.job import Job, Problem
from tftraining_api.model.names import CLEANUP, KIND, cleanup_pod_name, member_of
from tftraining_api.model.status import Status
from tftraining_operator.model.conditions import with_condition, without_condition
from tftraining_operator.model.observed import LONGEST_MESSAGE, Refusal
from tftraining_operator.plan.context import Context, Draft
from tftraining_operator.plan.end import fail
from tftraining_operator.plan.step import Event, Step

CREATION_REFUSED = "CreationRefused"  # a reason
CHANGE_REFUSED = "ChangeRefused"  # a condition, and its reason
LONGEST = timedelta(seconds=60)
EARLIER = "still belongs to an earlier job of this name"
KEY_GONE = "was deleted while launchers with its key run"
# Objects of an earlier job of the same name are being removed: a job that was created again waits for nothing else.
SOON = timedelta(seconds=2)
# The API server's message about an exceeded quota, and the part of it that changes with the use by others.
EXCEEDED_QUOTA = "exceeded quota: "
_USED = re.compile(r", used: .*?(?=, limited: )")


def judge(child: str, status: int, message: str, tries: int, now: datetime, retry_after: float = 0.0) -> Refusal:
    """Judge the answer to the creation of `child` (`pod/x`): `status` is the HTTP status, `tries` counts from 1,
    `retry_after` is the seconds that the server asks to wait.

    400 and 422 name a wrong field, 413 a pod that is too large, a 403 of Pod Security a pod with too many rights: only
    another template helps. A webhook or an admission policy may allow later what it denies now, whatever code it
    chooses; a quota (403), a conflict and trouble of the server itself may pass. Only pods are made from the template:
    what is wrong with another object is due to the cluster (a closed queue), or to the operator and its settings.
    """
    permanent = child.startswith("pod/") and _is_permanent(status, message)
    longest = SOON if message == EARLIER else LONGEST
    wait = max(min(longest, timedelta(seconds=2.0 ** min(tries - 1, 10))), timedelta(seconds=retry_after))
    message = message[:LONGEST_MESSAGE]
    return Refusal(child=child, message=message, permanent=permanent, retry_at=now + wait, tries=tries)


def reworded(before: Refusal | None, refusal: Refusal) -> Refusal:
    """The refusal in the words of the one before it, if only the use of a quota by others has changed: a new message
    would be one more write of the status, and an event."""
    if before is None or before.child != refusal.child or _unused(before.message) != _unused(refusal.message):
        return refusal
    return msgspec.structs.replace(refusal, message=before.message)


def _unused(message: str) -> str:
    return _USED.sub("", message)


def is_by_quota(refusal: Refusal) -> bool:
    """Whether a quota has refused the pod of a replica."""
    return asked_for_a_pod(refusal) and EXCEEDED_QUOTA in refusal.message


def only_one(refusal: Refusal | None) -> bool:
    """Whether one pod is enough to see whether others would be accepted: a quota or a policy treats all pods alike."""
    return asked_for_a_pod(refusal) and (EXCEEDED_QUOTA in refusal.message or is_denial(refusal.message))


def in_words(refusal: Refusal) -> str:
    """`pod/digits-worker-1: exceeded quota: gpus`."""
    return f"{refusal.child}: {refusal.message}"


def asked_for_a_pod(refusal: Refusal | None) -> TypeGuard[Refusal]:
    """Whether the refused child is a pod of a replica: all objects that pods need exist then."""
    return refusal is not None and refusal.child.startswith("pod/") and not refusal.child.endswith(f"-{CLEANUP}")


def _is_permanent(status: int, message: str) -> bool:
    wrong = status in (400, 413, 422) or (status == 403 and "violates PodSecurity" in message)
    return wrong and not is_denial(message)


def reject_pod_template(context: Context, draft: Draft) -> Draft:
    """Fail the job if the API server will never accept a pod as the template has it.

    An accepted pod of the same template proves that the cluster has changed, not the template. The cleanup pod has its
    own way to give up.
    """
    job, refusal = context.job, context.observed.refusal
    if refusal is None or not refusal.permanent or refusal.child == f"pod/{cleanup_pod_name(job.key.name)}":
        return draft
    if _accepted_before(job, draft.status, refusal.child):
        return draft
    return fail(context, draft, Problem("InvalidPodTemplate", in_words(refusal)))


def _accepted_before(job: Job, status: Status, child: str) -> bool:
    """Whether a pod of the child's role was accepted."""
    member = member_of(job.key.name, child.removeprefix("pod/"))
    accepted = status.accepted_templates.get(member.rpartition("-")[0])
    return job.spec is not None and accepted == job.spec.fingerprint


def hold_refused_writes(context: Context, draft: Draft) -> Draft:
    """The draft without the refused writes whose next try is not due; its condition names the refused writes."""
    known, name = context.observed.refused_changes, context.job.key.name
    refused = {each: known[each] for each in _changes(name, draft.step) if each in known}
    held = tuple(each for each, refusal in refused.items() if refusal.retry_at > context.now)
    if held:
        step = msgspec.structs.replace(_without(name, draft.step, held), held_writes=held)
        draft = msgspec.structs.replace(draft, step=step).with_requeue(*(refused[each].retry_at for each in held))
    if draft.step.delete_job:
        return draft
    if not refused:
        return draft.with_fields(status=without_condition(draft.status, CHANGE_REFUSED))
    write, refusal = next(iter(refused.items()))
    more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
    words = f"{write} was refused: {refusal.message}{more}"
    is_news = draft.status.condition(CHANGE_REFUSED) is None
    draft = draft.with_fields(
        status=with_condition(draft.status, CHANGE_REFUSED, "True", (CHANGE_REFUSED, words), context.now)
    )
    return draft.with_events(Event("Warning", CHANGE_REFUSED, words)) if is_news else draft


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
