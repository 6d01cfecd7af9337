"""What a refusal by the API server to create a child means: try again, or tell the user that it never will."""

import re
from datetime import datetime, timedelta
from typing import TypeGuard

import msgspec

from tftraining_operator.model.job import Job, Problem
from tftraining_operator.model.names import CLEANUP, ROLES, Role, cleanup_pod_name, pod_name
from tftraining_operator.model.observed import LONGEST_MESSAGE, Observed, Refusal
from tftraining_operator.model.status import Status

LONGEST = timedelta(seconds=60)
EARLIER = "still belongs to an earlier job of this name"
KEY_GONE = "was deleted while launchers with its key run"
# What is left of an earlier job is on its way out: who deletes a job and creates it again waits for nothing else.
SOON = timedelta(seconds=2)
# How the API server words what a quota holds, and what others use of it.
_QUOTA = "exceeded quota: "
_USED = re.compile(r", used: .*?(?=, limited: )")
# How it words the denial of a webhook, and of an admission policy, whatever code they choose.
_DENIAL = re.compile(r'^admission webhook "[^"]*" denied the request|with binding \'[^\']*\' denied request')


def judge(child: str, status: int, message: str, tries: int, now: datetime) -> Refusal:
    """Judge the answer to the creation of `child` (`pod/x`): `status` is the HTTP status, `tries` counts from 1.

    400 and 422 name a wrong field, a 413 says that the pod is too large, a 403 of Pod Security that it may do too much:
    only another template helps. What a webhook or an admission policy denies it may allow later, whatever code it
    chooses; a quota (403), a conflict and the server's own trouble may pass.
    """
    # What is wrong with a PodGroup is the state of the cluster, such as a queue that is closed: its schema was kept to.
    permanent = not child.startswith("podgroup/") and _never(status, message)
    longest = SOON if message == EARLIER else LONGEST
    wait = min(longest, timedelta(seconds=2.0 ** min(tries - 1, 10)))
    message = message[:LONGEST_MESSAGE]
    return Refusal(child=child, message=message, permanent=permanent, retry_at=now + wait, tries=tries)


def reworded(before: Refusal | None, refusal: Refusal) -> Refusal:
    """The refusal in the words of the one before it, if nothing has changed but what others use of a quota: a new
    message would be one more write of the status, and an event."""
    if before is None or before.child != refusal.child or _unused(before.message) != _unused(refusal.message):
        return refusal
    return msgspec.structs.replace(refusal, message=before.message)


def _unused(message: str) -> str:
    return _USED.sub("", message)


def only_one(refusal: Refusal | None) -> bool:
    """Whether one pod is enough to try whether others would be accepted: what a quota holds, or a policy denies, it
    does of all pods alike."""
    return asked_for_a_pod(refusal) and (_QUOTA in refusal.message or is_denial(refusal.message))


def asked_for_a_pod(refusal: Refusal | None) -> TypeGuard[Refusal]:
    """Whether the last creation came as far as a pod of a replica: whatever pods need was there, or was made."""
    return refusal is not None and refusal.child.startswith("pod/") and not refusal.child.endswith(f"-{CLEANUP}")


def _never(status: int, message: str) -> bool:
    wrong = status in (400, 413, 422) or (status == 403 and "violates PodSecurity" in message)
    return wrong and not is_denial(message)


def is_denial(message: str) -> bool:
    """Whether a webhook or an admission policy has denied the request, by the server's words."""
    return _DENIAL.search(message) is not None


def accepted_templates(job: Job, seen: Observed) -> dict[str, str]:
    """By role, what its pods were made from when the API server last accepted one: that of the status, and of the pods
    that are seen."""
    if job.spec is None:
        return job.status.accepted_templates
    present = job.spec.fingerprint
    there = {pod.replica.role for pod in seen.replicas if pod.replica and pod.made_from in ("", present)}
    return {**job.status.accepted_templates, **{role: present for role in ROLES if role in there}}


def never_accepted(job: Job, seen: Observed) -> Problem | None:
    """A pod that the API server will never accept as it is written. One of its template that was accepted before proves
    that the cluster has changed, not the pod; the cleanup has its own way to give up."""
    refusal = seen.refusal
    if refusal is None or not refusal.permanent or refusal.child == f"pod/{cleanup_pod_name(job.key.name)}":
        return None
    if _accepted_before(job, job.status, refusal.child):
        return None
    return Problem("InvalidPodTemplate", f"{refusal.child}: {refusal.message}")


def _accepted_before(job: Job, status: Status, child: str) -> bool:
    """Whether the like of the child was accepted: a pod of its role, or any pod where it is none itself."""
    present = job.spec.fingerprint if job.spec else None
    accepted = {role for role, made_from in status.accepted_templates.items() if made_from == present}
    role = _role_of(job, child)
    return role in accepted if role else bool(accepted)


def _role_of(job: Job, child: str) -> Role | None:
    """The role of a pod by its name; None for what is no pod of a replica."""
    stem = child.rpartition("-")[0]
    return next((role for role in ROLES if stem == f"pod/{pod_name(job.key.name, role)}"), None)
