"""The answer to an incident: new pods, of the whole gang or of those that are lost, or the job's end when the budget is
used up.

The attempt rises here, or the UID of a lost pod is noted, in the status, before any pod is deleted: whatever carries an
older attempt or that UID is garbage from then on, so a crash of the operator in between loses nothing.
"""

from datetime import datetime

import msgspec

from tftraining_operator.model.job import Job, Problem
from tftraining_operator.model.names import GANG_ROLES
from tftraining_operator.model.observed import Pod
from tftraining_operator.model.report import LOST
from tftraining_operator.model.spec import Frozen, JobSpec
from tftraining_operator.model.status import Counts, Failure, LastRestart, Restarts, Status
from tftraining_operator.plan import backoff, same_failure
from tftraining_operator.plan.incident import ASKED_FOR, Incident, exception_in

LOG_TAIL_LINES = 20


class Lost(Frozen, frozen=True):
    """Pods that are lost, and what the others do meanwhile, in words."""

    pods: tuple[Pod, ...]
    others: str


def charge(spec: JobSpec, status: Status, incident: Incident, now: datetime) -> Restarts:
    """The restart counters after the incident. The budget is refilled by progress, if the job says so."""
    old = status.restarts
    if incident.joined:
        return old
    progressed = backoff.progressed(status, _ended(incident, now))
    alone = spec.in_place and incident.charged
    refilled = progressed and spec.restart_policy.budget_reset == "OnProgress"
    free = not incident.charged and incident.reason not in ASKED_FOR
    in_a_row = (incident.charged or free) and not incident.missed
    return msgspec.structs.replace(
        old,
        counted=old.counted + incident.charged,
        disruptions=old.disruptions + (free and not incident.ignored),
        recreated=old.recreated + 1,
        budget_used=(0 if refilled else old.budget_used) + incident.charged,
        without_progress=(0 if progressed else old.without_progress) + in_a_row,
        pod_failures=old.pod_failures + alone,
        epoch=status.progress.epoch if status.progress else old.epoch,
        checkpoint=backoff.newest_checkpoint(status),
        same_failure=same_failure.after(spec, old, incident),
    )


def exhausted(spec: JobSpec, restarts: Restarts, incident: Incident) -> Problem | None:
    """Why the job fails instead of starting again."""
    if (problem := same_failure.too_often(spec, restarts, incident)) is not None:
        return problem
    allowed = spec.restart_policy.max_restarts
    if not incident.charged or restarts.budget_used <= allowed:
        return None
    budget = f"all {allowed} restarts (spec.restartPolicy.maxRestarts) are used up"
    return Problem("MaxRestartsExceeded", f"{incident.message}; {budget}")


def next_attempt(status: Status, restarts: Restarts, incident: Incident, now: datetime) -> Status:
    """The status that starts a new attempt of the gang."""
    attempt = status.attempt + 1
    status = _restarting(status, restarts, incident, f"restarting the gang{_when(restarts)} as attempt {attempt}", now)
    return msgspec.structs.replace(
        status,
        attempt=attempt,
        # An evaluator without a launcher does not go with the attempt.
        replaced={member: uid for member, uid in status.replaced.items() if member.startswith("evaluator-")},
        replicas={role: Counts(desired=old.desired, highest=old.highest) for role, old in status.replicas.items()},
        ready=f"0/{sum(old.desired for role, old in status.replicas.items() if role in GANG_ROLES)}",
    )


def replace_lost(status: Status, restarts: Restarts, incident: Incident, lost: Lost, now: datetime) -> Status:
    """The status that gives the lost pods up, each by its UID, while the launchers of the others wait or go on."""
    what = f"making its pod anew{_when(restarts)}, the others {lost.others}"
    status = _restarting(status, restarts, incident, what, now)
    return msgspec.structs.replace(status, replaced={**status.replaced, **{pod.label: pod.uid for pod in lost.pods}})


def _restarting(status: Status, restarts: Restarts, incident: Incident, what: str, now: datetime) -> Status:
    """The status of a job that restarts after the incident; `what` says what is done about it."""
    return msgspec.structs.replace(
        status,
        phase="Restarting",
        reason=incident.reason,
        message=f"{incident.message}; {what}",
        restarts=restarts,
        last_restart=status.last_restart if incident.joined else _last_restart(incident, now),
    )


def _when(restarts: Restarts) -> str:
    """The wait before the restart in words; empty if there is none."""
    wait = backoff.delay(restarts.without_progress).total_seconds()
    return f" in {wait:.0f} s" if wait else ""


def while_others_train(status: Status, before: Status, incident: Incident) -> Status:
    """The status of a job whose lost members are restarted alone: it runs on, if it did."""
    if before.phase != "Running" or status.last_restart is None:
        return status
    alone = msgspec.structs.replace(status.last_restart, alone=True)
    message = f"{incident.message}; making its pod anew, the others train on"
    return msgspec.structs.replace(status, phase="Running", message=message, last_restart=alone)


def by_new_pod(job: Job, last: LastRestart) -> bool:
    """Whether the pod of the last restart was given up, rather than restarted in place."""
    return last.reason not in LOST and (last.pod or "").removeprefix(f"{job.key.name}-") in job.status.replaced


def record_failure(status: Status, incident: Incident) -> Status:
    """Keep what the failed pod said: the pod itself is about to go."""
    if not incident.charged or incident.pod is None:
        return status
    how = incident.pod.exit
    failure = Failure(
        pod=incident.pod.name,
        exit_code=how.code if how else None,
        signal=how.signal if how else None,
        reason=incident.reason,
        exception=exception_in(incident.pod) or None,
        log_tail=log_tail(incident.pod),
    )
    return msgspec.structs.replace(status, failure=failure)


def log_tail(pod: Pod) -> str | None:
    """The last lines that the pod has left."""
    return "\n".join(pod.exit.message.splitlines()[-LOG_TAIL_LINES:]) or None if pod.exit else pod.message or None


def _ended(incident: Incident, now: datetime) -> datetime:
    finished = incident.pod.exit.finished_at if incident.pod and incident.pod.exit else None
    return min(finished, now) if finished else now


def _last_restart(incident: Incident, now: datetime) -> LastRestart:
    pod = incident.pod if incident.charged or incident.ignored else None
    how = pod.exit if pod else None
    return LastRestart(
        time=now,
        pod=incident.pod_name,
        exit_code=how.code if how else None,
        signal=how.signal if how else None,
        reason=incident.reason,
        exception=exception_in(pod) or None if pod else None,
    )
