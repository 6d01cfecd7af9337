"""What ends a round of the gang: what went wrong, which pod was first, and whether the program is to blame; or what a
person has asked for, another spec or a restart (`find_change`).

One incident is one charge: the other members fail because the first one did. A disruption (the cluster or a person
ended a pod whose program had not failed) is never charged, and neither are the failures that follow from it.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from tftraining.launch.failure import incident as reasons
from tftraining.launch.failure.cause import is_noise
from tftraining.launch.failure.exception import exception_of
from tftraining.launch.failure.exit import kind_of
from tftraining.launch.failure.restart_rules import RESTART, Decision
from tftraining.launch.failure.same_failure import counts_as_same_failure
from tftraining.launch.failure.same_member import NEW_POD
from tftraining.launch.failure_and_restart_messages import signal_name
from tftraining_api.model.names import Replica, pod_name
from tftraining_api.model.spec import Frozen
from tftraining_operator.model.observed import Pod
from tftraining_operator.plan.gang import SortedPods, was_disrupted

NODE_CONDITION = "NodeCondition"
LOG_TAIL_LINES = 20
DELETED, LOST_WITH_NODE, LEFT_NODE = "was deleted", "was lost with its node", "left its node"
_NO_REASON = ("", "Error", "Completed")  # of a container: they say nothing
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class Incident(Frozen, frozen=True):
    """Why the gang, or a member of it, has to restart.

    `pod` is the pod that was first, `vanished` the name of a pod that does not exist any more (None if all pods are
    gone). `decision` is what spec.restartPolicy.rules say about a failure. An `already_backed_off` one is in the
    back-off, because the launchers stopped for it before. A `part_of_running_restart` is one more loss of a restart
    that is under way, such as the drain of a node with several pods of the gang.
    """

    reason: str
    message: str
    charged: bool
    pod: Pod | None = None
    vanished: str | None = None
    decision: Decision = Decision(RESTART)
    already_backed_off: bool = False
    part_of_running_restart: bool = False

    @property
    def failed(self) -> bool:
        """Whether a program failed: the failure is charged, or a rule spares it the charge."""
        return self.charged or not self.decision.effect.charged

    @property
    def pod_name(self) -> str | None:
        """The name of the pod that was first."""
        return self.pod.name if self.pod else self.vanished

    @property
    def exit_code(self) -> int | None:
        """The exit code of the pod that was first."""
        return self.pod.exit.code if self.pod and self.pod.exit else None

    @property
    def signal(self) -> int | None:
        """The signal that ended the pod that was first."""
        return self.pod.exit.signal if self.pod and self.pod.exit else None

    @property
    def exception(self) -> str:
        """The exception that ended the program of the pod that was first; empty if unknown."""
        return exception_in(self.pod) if self.pod else ""

    @property
    def finished_at(self) -> datetime | None:
        """When the container of the pod that was first ended."""
        return self.pod.exit.finished_at if self.pod and self.pod.exit else None


RESIZED = Incident(reasons.RESIZED, "the number of workers changed", charged=False)
SPEC_CHANGED = Incident(reasons.SPEC_CHANGED, "the pod template or a replica count changed", charged=False)
RESTART_REQUESTED = Incident(reasons.RESTART_REQUESTED, "a restart was requested", charged=False)


def find_incident(gang: SortedPods) -> Incident | None:
    """The incident that the gang shows now, if any: the earliest of its failures and disruptions."""
    disruption = _first_disruption(gang)
    failure = _first_failure(gang.pods)
    if disruption is not None and (failure is None or disruption[0] <= _ended(failure)):
        return disruption[1]
    if failure is not None:
        return _failure(failure, launched=False)
    return find_change(gang)


def find_change(gang: SortedPods) -> Incident | None:
    """A change of the job that takes new pods: also a change made in a suspension that no pass has seen."""
    if gang.resized:
        return RESIZED
    if gang.outdated:
        return SPEC_CHANGED
    return RESTART_REQUESTED if gang.restart_requested else None


def find_loss(gang: SortedPods, launched: bool) -> Incident | None:
    """The incident where launchers keep the other members from failing with the first: there no failure follows from a
    disruption."""
    failure = _first_failure(pod for pod in gang.pods if needs_replacement(pod))
    if failure is not None:
        return _failure(failure, launched)
    disruption = _first_disruption(gang)
    return disruption[1] if disruption else None


def incident_of(pod: Pod, launched: bool) -> Incident:
    """What befell a pod that needs a replacement; `launched`: it has a launcher."""
    return _disruption(pod)[1] if was_disrupted(pod) else _failure(pod, launched)


def needs_replacement(pod: Pod) -> bool:
    """Whether the pod ended without deciding the job's end: the cluster or a person ended it, or it failed before its
    launcher could leave a result."""
    return was_disrupted(pod) or (pod.failed and not _has_result(pod))


def _has_result(pod: Pod) -> bool:
    return pod.exit is not None and pod.exit.result is not None and pod.exit.result.verdict != ""


def _failure(pod: Pod, launched: bool) -> Incident:
    result = pod.exit.result if pod.exit else None
    if result is not None and result.reason in NEW_POD:
        return Incident(
            reason=result.reason, message=result.message or f"{pod.label} asks for a new pod", charged=False, pod=pod
        )
    exception = exception_in(pod)
    message = f"{pod.label}: {exception}" if exception else f"{pod.label} failed: {describe(pod)}"
    return Incident(reason=_reason(pod, launched), message=message, charged=True, pod=pod)


def _reason(pod: Pod, launched: bool) -> str:
    """Why the pod failed, for rules and status. Without a launcher the last lines of the log show the failures that no
    restart can mend; with one they may be those of a program that it has restarted since."""
    ended = pod.exit
    if ended is not None and ended.reason not in _NO_REASON:
        return ended.reason
    kind = "" if launched or ended is None else kind_of(ended.code, tuple(ended.message.splitlines()))
    return kind or pod.reason or "Error"


def exception_in(pod: Pod) -> str:
    """The exception that ended the pod's program, such as `ValueError: boom`, from the last lines of its log."""
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


def log_tail(pod: Pod) -> str | None:
    """The last lines of the pod's log, from its termination message."""
    if pod.exit is None:
        return pod.message or None
    lines = [line for line in pod.exit.message.splitlines() if not is_noise(line)]
    return "\n".join(lines[-LOG_TAIL_LINES:]) or None


def _ended(pod: Pod) -> datetime:
    return (pod.exit.finished_at if pod.exit else None) or _LONG_AGO


def _first_failure(pods: Iterable[Pod]) -> Pod | None:
    """The pod that failed first. Kubernetes gives times in seconds. Within one second a signal comes before an exit
    code, which may be the answer to a peer's death, and an exception that blames a peer comes last; then ranks
    decide."""
    failed = [pod for pod in pods if pod.failed and not was_disrupted(pod)]
    return min(failed, key=lambda pod: (_ended(pod), not (pod.exit and pod.exit.signal), answers(pod)), default=None)


def answers(pod: Pod) -> bool:
    """Whether the program ended by an exception that a peer's death causes."""
    exception = exception_in(pod)
    return bool(exception) and not counts_as_same_failure(exception)


def _first_disruption(gang: SortedPods) -> tuple[datetime, Incident] | None:
    """The first disruption and its time. The time at which a pod vanished is unknown, so the first such pod stands for
    all."""
    first = min((pod for pod in gang.pods if was_disrupted(pod)), key=_disrupted, default=None)
    found = [] if first is None else [_disruption(first)]
    found += [_vanished(replica, gang) for replica in gang.vanished[:1]]
    return min(found, key=lambda each: each[0], default=None)


def _disrupted(pod: Pod) -> datetime:
    return pod.disruption_announced_at or _ended(pod)


def _disruption(pod: Pod) -> tuple[datetime, Incident]:
    reason = pod.disruption or "PodDeleted"
    what = f"was disrupted: {pod.disruption}" if pod.disruption else DELETED
    what = LOST_WITH_NODE if pod.node_lost else LEFT_NODE if reason == NODE_CONDITION else what
    detail = f" ({pod.message})" if pod.disruption and pod.message else ""
    incident = Incident(reason=reason, message=f"{pod.label} {what}{detail}", charged=False, pod=pod)
    return _disrupted(pod), incident


def _vanished(replica: Replica, gang: SortedPods) -> tuple[datetime, Incident]:
    message = f"the pod of {replica} is gone"
    prefixes = (pod.name.removesuffix(pod_name("", pod.label, pod.successor)) for pod in gang.pods)
    number = gang.successors.get(str(replica), 0)
    name = next((pod_name(prefix, replica, number) for prefix in prefixes), None)
    return _LONG_AGO, Incident(reason="PodDeleted", message=message, charged=False, vanished=name)
