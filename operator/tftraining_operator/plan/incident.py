"""What went wrong, who was first, and whether the program is to blame.

One incident is one charge: the others of the gang fail because the first did. A disruption (somebody or something ended
a pod that did nothing wrong) is never charged, and neither are the failures that follow from it.
"""

import signal as signals
from datetime import UTC, datetime

from tftraining_operator.model.names import Replica
from tftraining_operator.model.observed import Exit, Pod
from tftraining_operator.model.spec import Frozen
from tftraining_operator.plan.gang import Gang, cut_off

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class Incident(Frozen, frozen=True):
    """Why the gang has to start again."""

    reason: str
    message: str
    charged: bool
    pod: Pod | None = None


def find_incident(gang: Gang) -> Incident | None:
    """The incident that the gang shows now, if any: the earliest of its failures and disruptions."""
    disruption = _first_disruption(gang)
    failure = _first_failure(gang)
    if disruption is not None and (failure is None or disruption[0] <= _ended(failure)):
        return disruption[1]
    if failure is not None:
        reason = failure.exit.reason if failure.exit and failure.exit.reason else failure.reason
        message = f"{failure.label} failed: {describe(failure)}"
        return Incident(reason=reason or "Error", message=message, charged=True, pod=failure)
    if gang.outdated:
        return Incident(reason="Scaled", message="the number of workers was changed", charged=False)
    return None


def describe(pod: Pod) -> str:
    """How a failed pod ended, in words: `exit code 137 (SIGKILL, OOMKilled)`."""
    if pod.exit is None:
        return f"{pod.reason}: {pod.message}" if pod.reason else "the pod failed before its container ran"
    details = [signal_name(pod.exit)] if pod.exit.signal else []
    if pod.exit.reason not in ("", "Error", "Completed"):
        details.append(pod.exit.reason)
    return f"exit code {pod.exit.code}" + (f" ({', '.join(details)})" if details else "")


def signal_name(how: Exit) -> str:
    """SIGKILL for 137."""
    try:
        return signals.Signals(how.signal or 0).name
    except ValueError:
        return f"signal {how.signal}"


def _ended(pod: Pod) -> datetime:
    return (pod.exit.finished_at if pod.exit else None) or _LONG_AGO


def _first_failure(gang: Gang) -> Pod | None:
    """The first that failed. Kubernetes tells seconds only: within one, a signal came from outside the program, and an
    exit code may be the answer to a peer's death, so the signal was first; then ranks decide."""
    failed = [pod for pod in gang.pods if pod.failed and not cut_off(pod)]
    return min(failed, key=lambda pod: (_ended(pod), not (pod.exit and pod.exit.signal)), default=None)


def _first_disruption(gang: Gang) -> tuple[datetime, Incident] | None:
    found = [_disruption(pod) for pod in gang.pods if cut_off(pod)]
    found += [_vanished(replica) for replica in gang.vanished]
    return min(found, key=lambda each: each[0], default=None)


def _disruption(pod: Pod) -> tuple[datetime, Incident]:
    when = pod.told_at or _ended(pod)
    reason = pod.disruption or "PodDeleted"
    what = f"was disrupted: {pod.disruption}" if pod.disruption else "was deleted"
    detail = f" ({pod.message})" if pod.disruption and pod.message else ""
    return when, Incident(reason=reason, message=f"{pod.label} {what}{detail}", charged=False, pod=pod)


def _vanished(replica: Replica) -> tuple[datetime, Incident]:
    return _LONG_AGO, Incident(reason="PodDeleted", message=f"the pod of {replica} is gone", charged=False)
