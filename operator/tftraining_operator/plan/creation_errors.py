"""Errors of the API server when a child is created: whether to try again, or to fail the job."""

import re
from datetime import datetime, timedelta
from typing import TypeGuard

import msgspec

from tftraining_api.kube.denials import is_denial
from tftraining_api.model.job import Job, Problem
from tftraining_api.model.names import CLEANUP, cleanup_pod_name, member_of
from tftraining_api.model.status import Status
from tftraining_operator.model.observed import LONGEST_MESSAGE, Refusal
from tftraining_operator.plan.context import Context, Draft
from tftraining_operator.plan.end import fail

LONGEST = timedelta(seconds=60)
EARLIER = "still belongs to an earlier job of this name"
KEY_GONE = "was deleted while launchers with its key run"
# Objects of an earlier job of the same name are being removed: a job that was created again waits for nothing else.
SOON = timedelta(seconds=2)
# The API server's message about an exceeded quota, and the part of it that changes with the use by others.
_QUOTA = "exceeded quota: "
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
    return asked_for_a_pod(refusal) and _QUOTA in refusal.message


def only_one(refusal: Refusal | None) -> bool:
    """Whether one pod is enough to see whether others would be accepted: a quota or a policy treats all pods alike."""
    return asked_for_a_pod(refusal) and (_QUOTA in refusal.message or is_denial(refusal.message))


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
    return fail(context, draft, Problem("InvalidPodTemplate", f"{refusal.child}: {refusal.message}"))


def _accepted_before(job: Job, status: Status, child: str) -> bool:
    """Whether a pod of the child's role was accepted."""
    member = member_of(job.key.name, child.removeprefix("pod/"))
    accepted = status.accepted_templates.get(member.rpartition("-")[0])
    return job.spec is not None and accepted == job.spec.fingerprint
