"""What went wrong, who was first, and whether the program is to blame.

One incident is one charge: the others of the gang fail because the first did. A disruption (somebody or something ended
a pod that did nothing wrong) is never charged, and neither are the failures that follow from it.
"""

import signal as signals
from collections.abc import Iterable
from datetime import UTC, datetime

from tftraining.launch.exception import exception_of
from tftraining.launch.same_failure import counts
from tftraining_operator.model.names import Replica
from tftraining_operator.model.observed import Pod
from tftraining_operator.model.spec import Frozen
from tftraining_operator.plan.gang import Gang, cut_off

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class Incident(Frozen, frozen=True):
    """Why the gang, or a member of it, has to start again. `vanished` is the name of the pod if that is not there any
    more, unless all are gone; `ruled` is whether a rule of the spec decides about the failure, `ignored` whether it has
    forgiven it; `missed` is whether the back-off counts that restart already, as launchers do that stopped for it
    before; `joined` is whether it is one more blow of what the gang is restarting from already, such as the drain of a
    node with several of its pods."""

    reason: str
    message: str
    charged: bool
    pod: Pod | None = None
    vanished: str | None = None
    ruled: bool = False
    ignored: bool = False
    missed: bool = False
    joined: bool = False

    @property
    def pod_name(self) -> str | None:
        """The name of the pod that it began with."""
        return self.pod.name if self.pod else self.vanished


SCALED = Incident(reason="Resized", message="the number of workers was changed", charged=False)
CHANGED = Incident(reason="SpecChanged", message="what the pods are made from was changed", charged=False)
# Asked for by a person: neither a failure nor a disruption.
ASKED_FOR = (SCALED.reason, CHANGED.reason)


def find_incident(gang: Gang) -> Incident | None:
    """The incident that the gang shows now, if any: the earliest of its failures and disruptions."""
    disruption = _first_disruption(gang)
    failure = _first_failure(gang.pods)
    if disruption is not None and (failure is None or disruption[0] <= _ended(failure)):
        return disruption[1]
    if failure is not None:
        return _failure(failure)
    return find_change(gang)


def find_change(gang: Gang) -> Incident | None:
    """A change of the spec that pods do not know of yet: also one made in a suspension that was over too soon to be
    seen."""
    if gang.resized:
        return SCALED
    return CHANGED if gang.outdated else None


def find_loss(gang: Gang) -> Incident | None:
    """The same where launchers keep the others from failing with the first: no failure follows from a disruption."""
    failure = _first_failure(pod for pod in gang.pods if lost(pod))
    if failure is not None:
        return _failure(failure)
    disruption = _first_disruption(gang)
    return disruption[1] if disruption else None


def lost(pod: Pod) -> bool:
    """Whether the pod's end says nothing of the job's: it failed as a whole, or the cluster or a person ended it."""
    return cut_off(pod) or (pod.failed and not _is_decided(pod))


def _is_decided(pod: Pod) -> bool:
    """Whether its launcher has left a verdict."""
    return pod.exit is not None and pod.exit.verdict is not None and pod.exit.verdict.verdict != ""


def _failure(pod: Pod) -> Incident:
    reason, exception = pod.reason or (pod.exit.reason if pod.exit else ""), exception_in(pod)
    message = f"{pod.label}: {exception}" if exception else f"{pod.label} failed: {describe(pod)}"
    return Incident(reason=reason or "Error", message=message, charged=True, pod=pod)


def exception_in(pod: Pod) -> str:
    """The exception that ended the pod's program, such as `ValueError: boom`, by the last lines that it has left."""
    if pod.reason or pod.exit is None or pod.exit.code != 1:
        return ""
    return exception_of(pod.exit.message.splitlines())


def describe(pod: Pod) -> str:
    """How a failed pod ended, in words: `exit code 137 (SIGKILL, OOMKilled)`."""
    if pod.reason:
        return f"{pod.reason}: {pod.message}"
    if pod.exit is None:
        return "the pod failed before its container ran"
    details = [signal_name(pod.exit.signal)] if pod.exit.signal else []
    if pod.exit.reason not in ("", "Error"):
        details.append(pod.exit.reason)
    return f"exit code {pod.exit.code}" + (f" ({', '.join(details)})" if details else "")


def signal_name(number: int) -> str:
    """SIGKILL for 9."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _ended(pod: Pod) -> datetime:
    return (pod.exit.finished_at if pod.exit else None) or _LONG_AGO


def _first_failure(pods: Iterable[Pod]) -> Pod | None:
    """The first that failed. Kubernetes tells seconds only: within one, a signal came from outside the program, and an
    exit code may be the answer to a peer's death, so the signal was first, and who complains of what is around it was
    not; then ranks decide."""
    failed = [pod for pod in pods if pod.failed and not cut_off(pod)]
    return min(failed, key=lambda pod: (_ended(pod), not (pod.exit and pod.exit.signal), _answers(pod)), default=None)


def _answers(pod: Pod) -> bool:
    """Whether the program has ended by an exception that may be the answer to a peer's death."""
    exception = exception_in(pod)
    return bool(exception) and not counts(exception)


def _first_disruption(gang: Gang) -> tuple[datetime, Incident] | None:
    """The first disruption and when it was. Nobody knows when a pod vanished, so the first of those stands for all."""
    first = min((pod for pod in gang.pods if cut_off(pod)), key=_disrupted, default=None)
    found = [] if first is None else [_disruption(first)]
    found += [_vanished(replica, gang) for replica in gang.vanished[:1]]
    return min(found, key=lambda each: each[0], default=None)


def _disrupted(pod: Pod) -> datetime:
    return pod.told_at or _ended(pod)


def _disruption(pod: Pod) -> tuple[datetime, Incident]:
    reason = pod.disruption or "PodDeleted"
    what = f"was disrupted: {pod.disruption}" if pod.disruption else "was deleted"
    what = "was lost with its node" if pod.abandoned else what
    detail = f" ({pod.message})" if pod.disruption and pod.message else ""
    incident = Incident(reason=reason, message=f"{pod.label} {what}{detail}", charged=False, pod=pod)
    return _disrupted(pod), incident


def _vanished(replica: Replica, gang: Gang) -> tuple[datetime, Incident]:
    message = f"the pod of {replica} is gone"
    name = next((f"{pod.name.removesuffix(pod.label)}{replica}" for pod in gang.pods), None)
    return _LONG_AGO, Incident(reason="PodDeleted", message=message, charged=False, vanished=name)
