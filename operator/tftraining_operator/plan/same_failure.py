"""The same failure again and again (spec.restartPolicy.sameFailureLimit) where there is no launcher.

The launcher's own decision, asked about a pod that has failed: what it said last is known, how long it ran, and not at
which step it was. Where launchers restart they count by themselves, and a pod that fails as a whole is no exception.
"""

from datetime import UTC, datetime, timedelta

from tftraining.launch.ending import Exit
from tftraining.launch.same_failure import REASON, key_of, place_of
from tftraining.launch.same_failure import SameFailure as Row
from tftraining.launch.snapshot import Snapshot
from tftraining_operator.model.job import Problem
from tftraining_operator.model.spec import JobSpec
from tftraining_operator.model.status import Restarts, SameFailure
from tftraining_operator.plan.incident import Incident, exception_in


def after(spec: JobSpec, restarts: Restarts, incident: Incident) -> SameFailure | None:
    """The row after the incident; one that does not count changes nothing."""
    key, ended = _key(spec, incident), _ended(incident)
    if not key or ended is None:
        return restarts.same_failure
    row = _row(restarts.same_failure).then(key, ended.timestamp())
    return SameFailure(key=row.key, count=row.count, since=datetime.fromtimestamp(row.since, UTC))


def too_often(spec: JobSpec, restarts: Restarts, incident: Incident) -> Problem | None:
    """Why the job fails by the incident, which is in `restarts` already."""
    row, ended = _row(restarts.same_failure), _ended(incident)
    if not _key(spec, incident) or ended is None:
        return None
    if not row.too_often(spec.restart_policy.same_failure_limit, ended.timestamp()):
        return None
    return Problem(REASON, f"{incident.message}; {row.describe()}")


def _key(spec: JobSpec, incident: Incident) -> str:
    pod = incident.pod
    if spec.in_place or not incident.charged or incident.ruled or pod is None or pod.exit is None:
        return ""
    ended = Exit(pod.exit.code, pod.exit.signal, exception=exception_in(pod))
    return key_of(pod.label, ended, place_of(Snapshot(), False, (pod.exit.ran or timedelta()).total_seconds()))


def _ended(incident: Incident) -> datetime | None:
    return incident.pod.exit.finished_at if incident.pod and incident.pod.exit else None


def _row(known: SameFailure | None) -> Row:
    return Row(known.key, known.count, int(known.since.timestamp())) if known else Row()
