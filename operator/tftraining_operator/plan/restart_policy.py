"""spec.restartPolicy for a pod that fails as a whole: what the launchers' decisions need, taken from pods and status.

Rules, budget and back-off are decided where the launchers ask, too: in restart_rules.py, restart_budget.py, backoff.py
and first_step.py of tftraining/launch/failure. The operator knows how the container ended and the last lines of its
log, not at which step the program was.
"""

from dataclasses import replace
from datetime import datetime, timedelta

import msgspec

from tftraining.launch.failure import backoff, restart_budget, restart_rules
from tftraining.launch.failure.exit import FATAL, OOM_KILLED, Exit
from tftraining.launch.failure.first_step import failure_key
from tftraining.launch.failure.incident import PLANNED
from tftraining.launch.failure.same_failure import SPREAD, counts_as_same_failure
from tftraining.launch.failure.same_member import NEW_POD, SUSPECTED
from tftraining.launch.progress import Snapshot
from tftraining_api.model.job import Problem
from tftraining_api.model.spec import JobSpec
from tftraining_api.model.status import Progress, Restarts, Status
from tftraining_operator.model.observed import Pod
from tftraining_operator.model.times import is_ahead
from tftraining_operator.plan.incident import NODE_CONDITION, Incident, describe, exception_in

# No program makes a step in less: it is still importing.
SHORT_LIFE = timedelta(minutes=1)


def apply_rules(spec: JobSpec, status: Status, incident: Incident) -> tuple[Incident, Problem | None]:
    """The incident after spec.restartPolicy.rules, and why the job fails by them. Rules do not concern disruptions."""
    if not incident.charged or incident.pod is None:
        return incident, None
    pod = incident.pod
    decision = spec.restart_policy.decide(failure_of(incident), _has_stepped(status, pod))
    problem = _failed_by(decision, incident, pod) if decision.effect.ends_job else None
    charged, message = decision.effect.charged, incident.message
    message = message if charged else decision.explain(message)
    return msgspec.structs.replace(incident, decision=decision, charged=charged, message=message), problem


def _failed_by(decision: restart_rules.Decision, incident: Incident, pod: Pod) -> Problem:
    """Why the job has failed: by a rule, or because the failure would repeat after any restart."""
    kind = incident.reason
    if decision.rule:
        return Problem(decision.reason(kind), decision.explain(incident.message))
    last = (pod.exit.message if pod.exit else "").strip().rpartition("\n")[2]
    return Problem(kind, f"{pod.label} failed: {describe(pod)}: {FATAL[kind]}: {last[:300]}")


def failure_of(incident: Incident) -> restart_rules.Failure:
    """How the pod of the incident failed, as the rules see it."""
    replica = incident.pod.replica if incident.pod else None
    role = str(replica.role) if replica else ""
    return restart_rules.Failure(role, incident.exit_code, incident.signal, incident.reason)


def count_restart(spec: JobSpec, status: Status, incident: Incident, now: datetime, copy: int | None) -> Restarts:
    """The restart counters after the incident; `copy`: the step of a backup in memory that outlives it."""
    old = status.restarts
    if incident.part_of_running_restart:
        return old
    progress = status.progress or Progress()
    reached = restart_budget.Reached(progress.epoch, progress.checkpoint, copy)
    # The status has one step for the checkpoint and for the backup in memory at the last restart.
    before = restart_budget.Reached(old.epoch, old.checkpoint, old.checkpoint)
    trained = _seconds_ready(status, min(incident.finished_at or now, now))
    ledger, charged = old.ledger, incident.charged
    if progressed := restart_budget.has_progressed(before, reached, trained, trained):
        ledger = restart_budget.with_progress(ledger, spec.restart_policy.budget_reset)
    backed_off = incident.already_backed_off
    ledger = restart_budget.account(
        ledger, incident.reason, charged=charged, by_pod=spec.in_place, backed_off=backed_off
    )
    if (key := _same_failure_key(spec, incident)) and incident.finished_at is not None:
        ledger = replace(ledger, same=ledger.same.with_failure(key, incident.finished_at.timestamp()))
    is_loss = not incident.failed and incident.reason not in (*PLANNED, *NEW_POD)
    return msgspec.structs.replace(
        old.with_ledger(ledger),
        disruptions=old.disruptions + is_loss,
        recreated=old.recreated + 1,
        epoch=status.progress.epoch if status.progress else old.epoch,
        checkpoint=restart_budget.newest(
            old.checkpoint, reached.checkpoint, reached.copy if charged or progressed else None
        ),
    )


def why_no_restart(spec: JobSpec, counted: Restarts, incident: Incident) -> Problem | None:
    """Why the job fails instead of restarting; `counted` includes the incident."""
    if not incident.charged:
        return None
    ended, policy = incident.finished_at, spec.restart_policy
    repeated_at = ended.timestamp() if ended is not None and _same_failure_key(spec, incident) else None
    allowed, limit = policy.max_restarts, policy.same_failure_limit
    found = restart_budget.why_no_restart(counted.ledger, incident.message, repeated_at, allowed, limit, SPREAD)
    return Problem(*found) if found else None


def charge_member(spec: JobSpec, counted: Restarts, incident: Incident, others_well: bool) -> tuple[Restarts, str]:
    """The counters after the incident, which they have counted, with the row of one member's failures; and why its next
    pod should be on another node, "" if it may stay."""
    pod = incident.pod
    if incident.reason in (SUSPECTED, NODE_CONDITION):
        return counted, incident.message
    if not incident.charged or incident.decision.rule or pod is None or pod.exit is None or pod.reason:
        return counted, ""
    kind = OOM_KILLED if pod.exit.reason == OOM_KILLED else ""
    lines = tuple(pod.exit.message.splitlines())
    ended = Exit(pod.exit.code, pod.exit.signal, lines, kind, exception_in(pod))
    if _same_failure_key(spec, incident) and counted.ledger.same.count > 1:
        return counted, ""
    limit = spec.restart_policy.same_member_limit
    ledger, why = restart_budget.charge_member(counted.ledger, pod.label, ended, limit, others_well)
    return counted.with_ledger(ledger), why


def wait(spec: JobSpec, counted: Restarts, exception: str, at: datetime) -> timedelta:
    """The wait before the restart that was decided `at` that time, after a failure by this exception if by any."""
    repeated_at = at.timestamp() if counts_as_same_failure(exception) else None
    ledger, limit = counted.ledger, spec.restart_policy.same_failure_limit
    return timedelta(seconds=backoff.wait(ledger.without_progress, ledger.same, limit, repeated_at))


def restart_due(spec: JobSpec, status: Status, now: datetime) -> datetime | None:
    """When the back-off of the last restart is over; None for a job that was never restarted. A clock that was ahead
    has written a time in the future: nothing says how much of that back-off is left, so it is over."""
    if (last := status.last_restart) is None or is_ahead(last.time, now):
        return None
    return last.time + wait(spec, status.restarts, last.exception or "", last.time)


def _seconds_ready(status: Status, until: datetime) -> float | None:
    """For how long all pods have trained; None if they do not."""
    ready = status.condition("Ready")
    if ready is None or ready.status != "True":
        return None
    return (until - ready.last_transition_time).total_seconds()


def _has_stepped(status: Status, pod: Pod) -> bool:
    """Whether the program may have made a step before it failed."""
    finished = pod.exit.finished_at if pod.exit else None
    return status.proven or finished is None or finished - pod.created > SHORT_LIFE


def _same_failure_key(spec: JobSpec, incident: Incident) -> str:
    """The exception and its place; empty for an incident that does not count. Launchers count for themselves."""
    pod = incident.pod
    if spec.in_place or not incident.charged or incident.decision.rule or pod is None or pod.exit is None:
        return ""
    ended = Exit(pod.exit.code, pod.exit.signal, exception=exception_in(pod))
    ran = (pod.exit.ran or timedelta()).total_seconds()
    return failure_key(ended, Snapshot(), reporter=False, ran=ran, job_stepped=False)  # nothing tells of steps
