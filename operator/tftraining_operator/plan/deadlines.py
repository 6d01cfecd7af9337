"""How long a job may take to start, and to run: after that it has failed, with the reason that held it up.

All times come from the status and the pods, so a deadline that passed while the operator was down is kept when it is
back, and only what is still not done then fails. What has ended by itself was decided before this is asked.
"""

from datetime import datetime

import msgspec

from tftraining_operator.model.job import Job, Problem
from tftraining_operator.model.names import GANG_ROLES
from tftraining_operator.model.observed import Observed, Pod
from tftraining_operator.model.spec import JobSpec
from tftraining_operator.model.status import Status
from tftraining_operator.plan import backoff
from tftraining_operator.plan.end import fail
from tftraining_operator.plan.finish import TOO_LATE
from tftraining_operator.plan.gang import count
from tftraining_operator.plan.refused_changes import cannot_be_deleted
from tftraining_operator.plan.reported import with_latest
from tftraining_operator.plan.scene import Scene
from tftraining_operator.plan.starting import why_incomplete
from tftraining_operator.plan.times import earliest, later
from tftraining_operator.plan.types import Plan

START = "StartDeadlineExceeded"


def hold_deadlines(job: Job, step: Plan, scene: Scene) -> Plan:
    """The step, or the job's end in its place if it has taken too long; with a look at the next deadline."""
    if step.status.terminal:
        return step
    now, run = scene.now, scene.spec.run_policy
    done_by, start_by = _active_deadline(scene.spec, step.status), _start_deadline(step.status, scene)
    if done_by is not None and now >= done_by:
        limit = f"{run.active_deadline_seconds} s (spec.runPolicy.activeDeadlineSeconds)"
        return _too_late(job, scene, Problem(TOO_LATE, f"not done after {limit}"))
    if start_by is not None and now >= start_by:
        limit = f"{run.start_deadline_seconds} s (spec.runPolicy.startDeadlineSeconds)"
        why = why_incomplete(scene.gang, scene.seen, now)[1]
        return _too_late(job, scene, Problem(START, f"not training after {limit}: {why}"))
    return msgspec.structs.replace(step, again_at=earliest(step.again_at, done_by, start_by))


def _too_late(job: Job, scene: Scene, problem: Problem) -> Plan:
    gang, status = scene.gang, with_latest(job.status, scene.said)
    status = msgspec.structs.replace(status, replicas=count(gang, status.replicas), ready=gang.ready)
    return fail(msgspec.structs.replace(job, status=status), problem, scene.seen, scene.image, scene.now)


def _active_deadline(spec: JobSpec, status: Status) -> datetime | None:
    """When the job has run too long. As in a batch/v1 Job the clock begins anew when a suspended job goes on."""
    if spec.run_policy.active_deadline_seconds is None or status.start_time is None:
        return None
    return later(status.start_time, spec.run_policy.active_deadline_seconds)


def _start_deadline(status: Status, scene: Scene) -> datetime | None:
    """When the gang has waited too long; None if it trains, or if the chief's launcher holds this deadline."""
    gang = scene.gang
    held = scene.spec.in_place and gang.chief is not None and gang.chief.running
    if held or status.phase not in ("Starting", "Restarting") or gang.done_or_ready == len(gang.wanted):
        return None
    return later(_waiting_since(status, scene), scene.spec.run_policy.start_deadline_seconds)


def _waiting_since(status: Status, scene: Scene) -> datetime:
    """Since when nothing but the cluster keeps the gang from being there: neither the back-off, nor we ourselves."""
    gang, now = scene.gang, scene.now
    in_the_way = (*gang.stale, *gang.leaving)
    marks = [each for each in (status.start_time, backoff.due(status)) if each is not None]
    marks += [_could_start(pod, status, now) for pod in gang.pods]
    # Where the API server refuses their deletion that is no time of our own, and passes.
    marks += [pod.deleted_at or now for pod in in_the_way if not cannot_be_deleted(pod, scene.seen)]
    if gang.missing and not in_the_way and not scene.seen.leftovers and scene.seen.refusal is None:
        marks.append(now)
    return max(marks, default=now)


def _could_start(pod: Pod, status: Status, now: datetime) -> datetime:
    """Since when the pod could start: however long a queue takes, that is no fault of the job."""
    if not pod.queued:
        return pod.created
    return pod.placed_at or (pod.created if pod.node else status.admitted_time or now)


def admitted_since(status: Status, seen: Observed, now: datetime) -> datetime | None:
    """Since when the gang's pods have had their quota and waited for nodes; None if they do not. Pods do not tell: what
    says why they have no node keeps the time of its first reason."""
    waiting = [pod for pod in seen.replicas if pod.queued and not pod.node and not pod.deleting]
    waiting = [pod for pod in waiting if pod.replica is not None and pod.replica.role in GANG_ROLES]
    if not waiting or any(pod.gated for pod in waiting):
        return None
    return status.admitted_time or now.replace(microsecond=0)
