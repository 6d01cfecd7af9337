"""spec.restartPolicy.rules for pods that fail as a whole: the launcher's own decision, asked about a pod.

Only here is known how a container ended; what follows from that must never differ from what a launcher would do.
"""

from datetime import timedelta

import msgspec

from tftraining.launch import rules
from tftraining.launch.ending import kind_of
from tftraining.launch.incident import FATAL
from tftraining_operator.model.job import Problem
from tftraining_operator.model.observed import Pod
from tftraining_operator.model.spec import JobSpec, RestartRule
from tftraining_operator.model.status import Status
from tftraining_operator.plan.incident import Incident, describe

# No program has made a step before: it was still importing.
SHORT_LIFE = timedelta(minutes=1)
NO_REASON = ("", "Error", "Completed")


def judged(spec: JobSpec, status: Status, incident: Incident) -> tuple[Incident, Problem | None]:
    """The incident as the rules have it, and why the job fails by them. A disruption is nobody's failure."""
    if not incident.charged or incident.pod is None:
        return incident, None
    pod = incident.pod
    decision = decide(spec.restart_policy.rules, failure_of(spec, pod), _proven(status, pod))
    incident = msgspec.structs.replace(incident, ruled=bool(decision.rule))
    if decision.action == rules.IGNORE:
        message = f"{incident.message}; {decision.rule}"
        return msgspec.structs.replace(incident, charged=False, ignored=True, message=message), None
    if decision.action == rules.FAIL_JOB and decision.rule:
        return incident, Problem(rules.REASON, f"{incident.message}; {decision.rule}")
    if decision.action == rules.FAIL_JOB:
        kind = failure_of(spec, pod).reason
        last = (pod.exit.message if pod.exit else "").strip().rpartition("\n")[2]
        return incident, Problem(kind, f"{pod.label} failed: {describe(pod)}: {FATAL[kind]}: {last[:300]}")
    return incident, None


def decide(asked: tuple[RestartRule, ...], failure: rules.Failure, proven: bool) -> rules.Decision:
    """What becomes of a failure by the rules of the spec."""
    return rules.decide([rules.Rule.from_json(msgspec.to_builtins(each)) for each in asked], failure, proven)


def failure_of(spec: JobSpec, pod: Pod) -> rules.Failure:
    """How the pod failed. Without a launcher the last lines of its log tell what no restart can mend."""
    role, ended = str(pod.replica.role) if pod.replica else "", pod.exit
    if ended is None:
        return rules.Failure(role, None, None, pod.reason)
    kind = "" if spec.in_place else kind_of(ended.code, tuple(ended.message.splitlines()))
    reason = kind or pod.reason or "Error" if ended.reason in NO_REASON else ended.reason
    return rules.Failure(role, ended.code, ended.signal, reason)


def _proven(status: Status, pod: Pod) -> bool:
    """Whether the job may have got as far as a step."""
    finished = pod.exit.finished_at if pod.exit else None
    return status.proven or finished is None or finished - pod.created > SHORT_LIFE
