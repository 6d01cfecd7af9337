"""Bring the gang of the present attempt together, and say how far that is.

New pods are made only when nothing of an older attempt is left: two attempts that write the same backup would spoil it.
"""

from datetime import datetime

import msgspec

from tftraining_operator.build.pod import pod
from tftraining_operator.build.service import service
from tftraining_operator.model.job import Job
from tftraining_operator.model.observed import Observed, Pod
from tftraining_operator.model.spec import JobSpec
from tftraining_operator.model.status import Status
from tftraining_operator.plan import backoff
from tftraining_operator.plan.conditions import with_condition
from tftraining_operator.plan.gang import Gang, count
from tftraining_operator.plan.starting import look_again, why_incomplete
from tftraining_operator.plan.types import Deletion, Note, Plan

# Long enough for the kubelet to send SIGTERM, which TensorFlow swallows; then comes SIGKILL.
GRACE_SECONDS = 1


def assemble(job: Job, spec: JobSpec, gang: Gang, seen: Observed, now: datetime) -> Plan:
    """The next step towards a gang that trains."""
    status = _describe(job.status, gang, seen, now)
    wait = _wait_until(status, gang, seen, now)
    may_create = not gang.stale and wait is None
    attempt = msgspec.structs.replace(job, status=status)
    return Plan(
        status=status,
        create_service=None if seen.service or wait else service(job, spec),
        create_pods=tuple(pod(attempt, spec, each) for each in gang.missing) if may_create else (),
        delete_pods=delete(gang.stale),
        notes=_notes(job.status, status),
        again_at=wait or look_again(gang, now),
    )


def delete(pods: tuple[Pod, ...], grace: int = GRACE_SECONDS) -> tuple[Deletion, ...]:
    """Deletions of those that nobody has asked to go yet."""
    return tuple(Deletion(each.name, each.uid, grace) for each in pods if not each.deleting)


def _wait_until(status: Status, gang: Gang, seen: Observed, now: datetime) -> datetime | None:
    """Until when nothing may be created: the back-off of the restart, or of a refusal by the API server."""
    until = [backoff.due(status)] if gang.missing else []
    until += [seen.refusal.retry_at] if seen.refusal else []
    return max((each for each in until if each is not None and each > now), default=None)


def _describe(status: Status, gang: Gang, seen: Observed, now: datetime) -> Status:
    complete = gang.done_or_ready == len(gang.wanted)
    if complete:
        status = _running(status, len(gang.wanted), now)
    elif status.phase != "Running":
        status = _not_yet(status, why_incomplete(gang, seen, now))
    status = msgspec.structs.replace(
        status,
        replicas=count(gang, status.replicas),
        ready=gang.ready,
        start_time=status.start_time or now.replace(microsecond=0),
    )
    why = (status.reason or "Starting", f"{gang.ready} replicas train or are done")
    return with_condition(status, "Ready", "True" if complete else "False", why, now)


def _running(status: Status, size: int, now: datetime) -> Status:
    last = status.last_restart
    if last is not None and last.down_seconds is None:
        down = round((now - last.time).total_seconds(), 1)
        last = msgspec.structs.replace(last, down_seconds=down)
    message = f"{size} replicas train" if size > 1 else "the replica trains"
    return msgspec.structs.replace(status, phase="Running", reason="Training", message=message, last_restart=last)


def _not_yet(status: Status, why: tuple[str, str]) -> Status:
    reason, message = why
    if status.attempt == 1:
        return msgspec.structs.replace(status, phase="Starting", reason=reason, message=message)
    last = status.last_restart
    if last and status.reason == last.reason and reason in ("CreatingPods", "Stopping", "PodsStarting"):
        # Why it restarts is worth more to a person than that its pods are on their way.
        return msgspec.structs.replace(status, phase="Restarting")
    return msgspec.structs.replace(status, phase="Restarting", reason=reason, message=message)


def _notes(old: Status, new: Status) -> tuple[Note, ...]:
    notes = []
    if old.phase == "Pending":
        notes.append(Note("Normal", "Started", "creating the Service and the pods of the gang"))
    if new.phase == "Running" and old.phase != "Running":
        last = new.last_restart
        again = f", {last.down_seconds:g} s after {last.reason}" if last and last.down_seconds is not None else ""
        notes.append(Note("Normal", "Training", f"{new.ready} replicas train{again}"))
    if new.reason in ("CreationRefused", "PodsNotReady") and (old.reason, old.message) != (new.reason, new.message):
        notes.append(Note("Warning", new.reason, new.message or ""))
    return tuple(notes)
