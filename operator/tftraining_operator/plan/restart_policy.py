"""spec.restartPolicy: the rules, the budget (maxRestarts, budgetReset, sameFailureLimit) and the back-off.

For a pod that fails as a whole the decisions of the launcher apply: a rule must not differ between the two. The
operator knows how the container ended and the last lines of its log, not at which step the program was.
"""

from datetime import UTC, datetime, timedelta

import msgspec

from tftraining.launch.failure import ledger, restart_rules
from tftraining.launch.failure.exit import Exit, kind_of
from tftraining.launch.failure.first_step import UNCLEAN, failure_key
from tftraining.launch.failure.incident import FATAL
from tftraining.launch.failure.same_failure import REASON as SAME_FAILURE
from tftraining.launch.failure.same_failure import SameFailure as Row
from tftraining.launch.failure.same_failure import counts_as_same_failure
from tftraining.launch.progress import Snapshot
from tftraining_api.model.job import Problem
from tftraining_api.model.spec import JobSpec, RestartRule
from tftraining_api.model.status import Restarts, SameFailure, Status
from tftraining_operator.model.observed import Pod
from tftraining_operator.model.times import is_ahead
from tftraining_operator.plan.incident import ASKED_FOR, Incident, describe, exception_in

# So long have all pods to run for a job that does not report epochs to have made progress.
PROGRESS = timedelta(seconds=60)
# No program makes a step in less: it is still importing.
SHORT_LIFE = timedelta(minutes=1)
NO_REASON = ("", "Error", "Completed")


def apply_rules(spec: JobSpec, status: Status, incident: Incident) -> tuple[Incident, Problem | None]:
    """The incident after spec.restartPolicy.rules, and why the job fails by them. Rules do not concern disruptions."""
    if not incident.charged or incident.pod is None:
        return incident, None
    pod = incident.pod
    decision = decide(spec.restart_policy.rules, failure_of(spec, pod), _may_have_stepped(status, pod))
    problem = _failed_by(decision, spec, incident, pod) if decision.effect.ends_job else None
    incident = msgspec.structs.replace(incident, decision=decision)
    if not decision.effect.charged:
        message = decision.explain(incident.message)
        incident = msgspec.structs.replace(incident, charged=False, message=message)
    return incident, problem


def _failed_by(decision: restart_rules.Decision, spec: JobSpec, incident: Incident, pod: Pod) -> Problem:
    """Why the job has failed: by a rule, or because the failure would repeat after any restart."""
    kind = failure_of(spec, pod).reason
    if decision.rule:
        return Problem(decision.reason(kind), decision.explain(incident.message))
    last = (pod.exit.message if pod.exit else "").strip().rpartition("\n")[2]
    return Problem(kind, f"{pod.label} failed: {describe(pod)}: {FATAL[kind]}: {last[:300]}")


def decide(asked: tuple[RestartRule, ...], failure: restart_rules.Failure, has_stepped: bool) -> restart_rules.Decision:
    """The first rule that matches the failure, or the default."""
    return restart_rules.decide(
        [restart_rules.Rule.from_json(msgspec.to_builtins(each)) for each in asked], failure, has_stepped
    )


def failure_of(spec: JobSpec, pod: Pod) -> restart_rules.Failure:
    """How the pod failed. Without a launcher the last lines of the log show the failures that no restart can mend."""
    role, ended = str(pod.replica.role) if pod.replica else "", pod.exit
    if ended is None:
        return restart_rules.Failure(role, None, None, pod.reason)
    kind = "" if spec.in_place else kind_of(ended.code, tuple(ended.message.splitlines()))
    reason = kind or pod.reason or "Error" if ended.reason in NO_REASON else ended.reason
    return restart_rules.Failure(role, ended.code, ended.signal, reason)


def charge(spec: JobSpec, status: Status, incident: Incident, now: datetime) -> Restarts:
    """The restart counters after the incident. With budgetReset: OnProgress, progress refills the budget."""
    old = status.restarts
    if incident.joined:
        return old
    has_progressed = _has_progressed(status, min(incident.finished_at or now, now))
    by_pod = spec.in_place and incident.charged
    refilled = has_progressed and spec.restart_policy.budget_reset == "OnProgress"
    free = not incident.charged and incident.reason not in ASKED_FOR
    in_a_row = (incident.charged or free) and not incident.missed
    # A person who asks for a restart does not wait for the back-off of earlier failures.
    begins_anew = has_progressed or incident.reason in ASKED_FOR
    return msgspec.structs.replace(
        old,
        counted=old.counted + incident.charged,
        disruptions=old.disruptions + (free and not incident.failed and incident.reason != UNCLEAN),
        recreated=old.recreated + 1,
        budget_used=(0 if refilled else old.budget_used) + incident.charged,
        without_progress=(0 if begins_anew else old.without_progress) + in_a_row,
        pod_failures=old.pod_failures + by_pod,
        epoch=status.progress.epoch if status.progress else old.epoch,
        checkpoint=_newest_checkpoint(status),
        same_failure=_same_failure_after(spec, old, incident),
    )


def exhausted(spec: JobSpec, restarts: Restarts, incident: Incident) -> Problem | None:
    """Why the job fails instead of restarting; `restarts` includes the incident."""
    if (problem := _same_failure_too_often(spec, restarts, incident)) is not None:
        return problem
    allowed = spec.restart_policy.max_restarts
    if not incident.charged or restarts.budget_used <= allowed:
        return None
    return Problem(ledger.EXCEEDED, f"{incident.message}; {ledger.used_up(allowed)}")


def wait(restarts: Restarts, exception: str, at: datetime) -> timedelta:
    """The wait before the restart that was decided `at` that time, after a failure by this exception if by any."""
    backoff = ledger.backoff(restarts.without_progress)
    row = _row(restarts.same_failure if counts_as_same_failure(exception) else None)
    return timedelta(seconds=row.shortened(backoff, at.timestamp()))


def restart_due(status: Status, now: datetime) -> datetime | None:
    """When the back-off of the last restart is over; None for a job that was never restarted. A clock that was ahead
    has written a time in the future: nothing says how much of that back-off is left, so it is over."""
    if (last := status.last_restart) is None or is_ahead(last.time, now):
        return None
    return last.time + wait(status.restarts, last.exception or "", last.time)


def _has_progressed(status: Status, until: datetime) -> bool:
    """Whether the job made progress since the last restart: a newer epoch or checkpoint, or, where no program reports
    epochs, all pods running for a minute."""
    if (_newest_checkpoint(status) or 0) > (status.restarts.checkpoint or 0):
        return True
    if status.progress is not None and status.progress.epoch is not None:
        return status.progress.epoch > (status.restarts.epoch or 0)
    ready = status.condition("Ready")
    return ready is not None and ready.status == "True" and until - ready.last_transition_time >= PROGRESS


def _newest_checkpoint(status: Status) -> int | None:
    """The step of the newest checkpoint, of now or of a restart before."""
    reported = status.progress.checkpoint if status.progress is not None else None
    return max((step for step in (reported, status.restarts.checkpoint) if step is not None), default=None)


def _may_have_stepped(status: Status, pod: Pod) -> bool:
    """Whether the program may have made a step before it failed."""
    finished = pod.exit.finished_at if pod.exit else None
    return status.proven or finished is None or finished - pod.created > SHORT_LIFE


def _same_failure_after(spec: JobSpec, restarts: Restarts, incident: Incident) -> SameFailure | None:
    """status.restarts.sameFailure after the incident; an incident that does not count changes nothing."""
    key, ended = _same_failure_key(spec, incident), incident.finished_at
    if not key or ended is None:
        return restarts.same_failure
    row = _row(restarts.same_failure).with_failure(key, ended.timestamp())
    return SameFailure(key=row.key, count=row.count, since=datetime.fromtimestamp(row.since, UTC))


def _same_failure_too_often(spec: JobSpec, restarts: Restarts, incident: Incident) -> Problem | None:
    """Why the job fails by spec.restartPolicy.sameFailureLimit; `restarts` includes the incident."""
    row, ended = _row(restarts.same_failure), incident.finished_at
    if not _same_failure_key(spec, incident) or ended is None:
        return None
    if not row.too_often(spec.restart_policy.same_failure_limit, ended.timestamp()):
        return None
    return Problem(SAME_FAILURE, f"{incident.message}; {row.describe()}")


def _same_failure_key(spec: JobSpec, incident: Incident) -> str:
    """The exception and its place; empty for an incident that does not count. Launchers count for themselves."""
    pod = incident.pod
    if spec.in_place or not incident.charged or incident.decision.rule or pod is None or pod.exit is None:
        return ""
    ended = Exit(pod.exit.code, pod.exit.signal, exception=exception_in(pod))
    ran = (pod.exit.ran or timedelta()).total_seconds()
    return failure_key(ended, Snapshot(), reporter=False, ran=ran, job_stepped=False)  # nothing tells of steps


def _row(known: SameFailure | None) -> Row:
    return Row(known.key, known.count, int(known.since.timestamp())) if known else Row()
