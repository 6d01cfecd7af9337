"""runPolicy.activeDeadlineSeconds and startDeadlineSeconds: how long a job may run, and how long a gang may start.

All times come from the status and the pods, so a deadline that passes while the operator is down is kept when the
operator is back. A job that has ended never reaches this stage. While the chief's launcher runs, it keeps the start
deadline (tftraining/launch/gang/rounds.py), and members keep it that find no chief (rendezvous/chief_contact.py).
"""

from datetime import datetime

from tftraining.launch.failure import restart_budget
from tftraining.launch.roles import GANG_ROLES
from tftraining_api.model.job import Problem
from tftraining_api.model.status import Status
from tftraining_operator.model.observed import Observed, Pod
from tftraining_operator.model.times import later
from tftraining_operator.plan.clean_pods import TOO_LATE
from tftraining_operator.plan.context import Context, Draft
from tftraining_operator.plan.end import fail
from tftraining_operator.plan.gang import count
from tftraining_operator.plan.launcher_report import with_latest
from tftraining_operator.plan.messages import why_incomplete
from tftraining_operator.plan.restart_policy import restart_due


def check_deadlines(context: Context, draft: Draft) -> Draft:
    """Fail the job if it has taken too long; otherwise look again at the next deadline."""
    now, run = context.now, context.run_policy
    done_by, start_by = _active_deadline(context, draft.status), _start_deadline(context, draft)
    if done_by is not None and now >= done_by:
        limit = f"{run.active_deadline_seconds} s (spec.runPolicy.activeDeadlineSeconds)"
        return _too_late(context, draft, Problem(TOO_LATE, f"not finished after {limit}"))
    if start_by is not None and now >= start_by:
        limit = restart_budget.start_limit(run.start_deadline_seconds)
        why = why_incomplete(draft.gang, context.observed, now)[1]
        return _too_late(context, draft, Problem(restart_budget.START_DEADLINE, f"not training after {limit}: {why}"))
    return draft.with_requeue(done_by, start_by)


def _too_late(context: Context, draft: Draft, problem: Problem) -> Draft:
    """The failed job. An incident of the same pass is not charged, because the job fails for the deadline anyway."""
    draft = Draft.of(context, with_latest(context.status, draft.report))
    replicas = count(draft.gang, draft.status.replicas)
    return fail(context, draft.with_status_fields(replicas=replicas, ready=draft.gang.ready), problem)


def _active_deadline(context: Context, status: Status) -> datetime | None:
    """When the job has run too long. As in a batch/v1 Job the time begins anew when a suspended job goes on."""
    if context.run_policy.active_deadline_seconds is None or status.start_time is None:
        return None
    return later(status.start_time, context.run_policy.active_deadline_seconds)


def _start_deadline(context: Context, draft: Draft) -> datetime | None:
    """When the gang has waited too long; None if it trains, or if the chief's launcher keeps this deadline
    (tftraining/launch/failure/restart_budget.py)."""
    gang, status = draft.gang, draft.status
    by_launcher = context.spec.in_place and gang.chief is not None and gang.chief.running
    if by_launcher or status.phase not in ("Starting", "Restarting") or gang.complete:
        return None
    return later(_waiting_since(context, draft), context.run_policy.start_deadline_seconds)


def _waiting_since(context: Context, draft: Draft) -> datetime:
    """Since when only the cluster keeps the gang from being there: neither the back-off nor the operator."""
    gang, status, observed, now = draft.gang, draft.status, context.observed, context.now
    in_the_way = (*gang.stale, *gang.given_up)
    marks = [each for each in (status.start_time, restart_due(context.spec, status, now)) if each is not None]
    marks += [_could_start(pod, status, now) for pod in gang.pods]
    # The time in which the API server refuses to delete a pod is not the operator's own: it counts.
    marks += [pod.deleted_at or now for pod in in_the_way if pod.name not in observed.undeletable_pods]
    if gang.missing and not in_the_way and not observed.leftovers and observed.refusal is None:
        marks.append(now)
    marks += [now] if observed.storage.held or observed.quota is not None else []
    return max(marks, default=now)


def _could_start(pod: Pod, status: Status, now: datetime) -> datetime:
    """Since when the pod could start: the time that a queue takes is no fault of the job."""
    if not pod.queued:
        return pod.created
    return pod.scheduled_at or (pod.created if pod.node else status.admitted_time or now)


def admitted_since(status: Status, observed: Observed, now: datetime) -> datetime | None:
    """Since when the gang's pods have their quota and wait for nodes; None if they do not. No pod shows that time: the
    condition PodScheduled keeps the time of its first reason."""
    waiting = [pod for pod in observed.replicas if pod.queued and not pod.node and not pod.deleting]
    waiting = [pod for pod in waiting if pod.replica is not None and pod.replica.role in GANG_ROLES]
    if not waiting or any(pod.gated for pod in waiting):
        return None
    return status.admitted_time or now.replace(microsecond=0)
