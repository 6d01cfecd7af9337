"""status.avoidedNodes: the nodes that new pods of the job avoid for a day, because one member failed there again and
again while the others were well (tftraining/launch/failure/same_member.py decides when), or because a condition holds
there for which pods leave a node (plan/node_conditions.py).

A preference, no more (tftraining_api/manifests/affinity.py): where the scheduler goes there all the same, an
event and `usedBy` tell it. Jobs in a queue of Kueue avoid no node: Kueue admits a pod in the place of a lost one only
with the same affinity. A definition of the resource without the field drops it: the next pod may go to any node.
"""

from collections.abc import Iterable
from datetime import timedelta

import msgspec

from tftraining_api.model.status import AvoidedNode, Status
from tftraining_operator.model.observed import Pod
from tftraining_operator.plan.context import Context, Draft
from tftraining_operator.plan.step import Event

HOLDS = timedelta(hours=24)
MOST = 16
LONGEST_WHY = 512
USED = "AvoidedNodeUsed"


def with_avoided(context: Context, status: Status, pod: Pod | None, why: str) -> Status:
    """The status in which new pods avoid the node of this pod, if that is known; `why` in words."""
    if pod is None or not pod.node or context.job.queue_labels:
        return status
    now = context.now.replace(microsecond=0)
    new = AvoidedNode(name=pod.node, until=now + HOLDS, replica=pod.label, why=why[:LONGEST_WHY])
    others = [each for each in status.avoided_nodes if each.name != pod.node and each.until > now]
    message = f"{status.message}; new pods avoid {pod.node}, if another node has room"
    return msgspec.structs.replace(status, message=message, avoided_nodes=(*others, new)[-MOST:])


def avoided_now(context: Context, status: Status) -> tuple[AvoidedNode, ...]:
    """The nodes that a pod avoids that is created now."""
    return () if context.job.queue_labels else tuple(each for each in status.avoided_nodes if each.until > context.now)


def tell_of_use(context: Context, draft: Draft) -> Draft:
    """The draft with the replicas that run on an avoided node all the same."""
    pods, nodes = (*draft.gang.pods, *draft.gang.evaluators), draft.status.avoided_nodes
    told = tuple(msgspec.structs.replace(each, used_by=_used_by(each, pods)) for each in nodes)
    if told == nodes:
        return draft
    news = [new for old, new in zip(nodes, told, strict=True) if new.used_by not in (None, old.used_by)]
    events = [Event("Warning", USED, f"{each.used_by} was scheduled on {each.name}: {each.why}") for each in news]
    return draft.with_status_fields(avoided_nodes=told).with_events(*events)


def _used_by(node: AvoidedNode, pods: Iterable[Pod]) -> str | None:
    """The first replica whose pod went there although it avoids the node: one that was created since."""
    since = node.until - HOLDS
    return next((pod.label for pod in pods if pod.node == node.name and pod.created >= since), None)
