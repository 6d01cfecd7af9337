"""Pods that leave their node, because a condition that an administrator lists in the chart holds there.

As after `kubectl drain` of that pod: its deletion is announced, so a copy is made first, and nothing is charged. The
new pods of the job avoid the node (plan/avoided_nodes.py). One member of a gang at a time, and only while all of them
train. A pod leaves once for each transition of a condition: only a pod that is no younger than the transition leaves,
and only when that second has passed, so its successor is younger. Nothing else has to be remembered. The turn in the
cluster comes from cluster/node_departures.py.

Never a pod in a queue of Kueue: its successor must be as it was, and may go back to the node.
"""

from datetime import datetime

import msgspec

from tftraining_operator.model.observed import Observed, Pod
from tftraining_operator.model.times import RESOLUTION, clock, earliest, later
from tftraining_operator.plan.context import Context, Draft
from tftraining_operator.plan.gang import SortedPods
from tftraining_operator.plan.incident import NODE_CONDITION, needs_replacement
from tftraining_operator.plan.spec_updates import fewer_train


def leave_node(context: Context, draft: Draft) -> Draft:
    """The draft with one pod marked as disrupted, if one has to leave its node and it is its turn."""
    if not _trains(draft) or context.run_policy.suspend or context.job.queue_labels:
        return draft
    observed, now, gang = context.observed, context.now, draft.gang
    pods = [pod for pod in (*gang.pods, *gang.evaluators) if not pod.ended and not pod.terminating]
    draft = draft.with_requeue(_next_transition(observed, pods, now))
    found = ((pod, context.condition_to_leave(pod)) for pod in pods)
    pod, condition = next(((pod, why) for pod, why in found if why is not None), (None, None))
    if pod is None or condition is None:
        return draft
    if observed.departs_from is not None and observed.departs_from > now:
        return draft.with_requeue(observed.departs_from)
    why = f"{pod.node} has {condition.type} since {clock(condition.since)}"
    why += f": {condition.message}" if condition.message else ""
    marked = msgspec.structs.replace(pod, disruption=NODE_CONDITION, message=why)
    return msgspec.structs.replace(draft, gang=_with_member(gang, marked)).with_fields(departs=True)


def _trains(draft: Draft) -> bool:
    """Whether the whole gang trains, and none of its pods is on its way out."""
    gang, report = draft.gang, draft.report
    if draft.status.phase != "Running" or not gang.complete or any(map(needs_replacement, gang.pods)):
        return False
    return report is None or (report.phase == "Training" and not fewer_train(report))


def _next_transition(observed: Observed, pods: list[Pod], now: datetime) -> datetime | None:
    """When the next condition begins to count whose time lies ahead, by the clock of its node."""
    named = observed.nodes.named if observed.nodes is not None else {}
    nodes = {pod.node: named[pod.node] for pod in pods if pod.node in named}
    begins = (later(each.since, RESOLUTION.seconds) for node in nodes.values() for each in node.conditions)
    return earliest(*(each for each in begins if each is not None and each > now))


def _with_member(gang: SortedPods, pod: Pod) -> SortedPods:
    assert pod.replica is not None
    return msgspec.structs.replace(gang, members={**gang.members, pod.replica: pod})
