"""Pods whose node is lost: given up, so that no policy waits for a kubelet that will never answer.

A node is lost when its object is gone, when a person has tainted it as out of service and Kubernetes has evicted its
pods, or when it has not been ready for runPolicy.nodeLostSeconds. What is done about a lost pod is for the policies
that see it marked: it is replaced like any other that the cluster took, and deleted by force. Times come from the
cluster, never from what the operator remembers. As long as not one node is ready nothing is given up by time: it is the
control plane that is cut off then, and the trainings may well go on. When that is over the nodes are heard of again one
after the other, so each has its time anew from when the first was.

The same holds of what an earlier job of the name has left: the pods that somebody has asked to go, and that keep the
job from having its own.

Where the operator may not read nodes, the pods tell: the node controller takes the condition Ready of a silent node's
pods back, and a deletion that is long overdue has no kubelet to carry it out, or one that has killed the program.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from tftraining_operator.model.node import Node
from tftraining_operator.model.observed import Observed, Pod
from tftraining_operator.model.spec import Frozen
from tftraining_operator.plan.times import clock, earliest, later

REASON = "NodeLost"
# The reason that Kubernetes gives to a pod before it deletes it for a taint.
EVICTED = "DeletionByTaintManager"
# Kubernetes deletes such a pod once more for each change of it that it hears of late, its own deletion included.
EVICTION_SECONDS = 2
# How often to look whether an outage of all nodes is over.
OUTAGE_PAUSE = timedelta(seconds=15)


class Trouble(Frozen, frozen=True):
    """What is wrong with a pod's node. The pod is given up at `due`; None for as long as that cannot be said.

    `silent` trouble may turn out to be none: nothing is said of it before. Whether the pod is `evicted` just now.
    """

    what: str
    due: datetime | None
    silent: bool = False
    evicted: bool = False


def find(seen: Observed, patience: int) -> dict[str, Trouble]:
    """What is wrong with the pods' nodes, by the pod's name; empty if all are well. `patience` is in seconds."""
    found = ((pod.name, _trouble(pod, seen, patience)) for pod in _suspects(seen))
    return {name: trouble for name, trouble in found if trouble is not None}


def mark(seen: Observed, troubles: Mapping[str, Trouble], now: datetime) -> Observed:
    """What was seen, with the pods of lost nodes given up, and those of silent ones not ready."""
    if not troubles:
        return seen
    pods, earlier = (_marked_all(pods, troubles, now) for pods in (seen.pods, seen.earlier))
    return msgspec.structs.replace(seen, pods=pods, earlier=earlier)


def look_again(troubles: Mapping[str, Trouble], now: datetime) -> datetime | None:
    """When the next pod is to be given up; None if all nodes are well."""
    due = (trouble.due or now + OUTAGE_PAUSE for trouble in troubles.values())
    return earliest(*(each for each in due if each > now))


def _suspects(seen: Observed) -> list[Pod]:
    """The pods with which something may be wrong: of a large gang on nodes that are well none is looked at closely."""
    pods = (*seen.pods, *seen.earlier)
    if seen.nodes is None:
        return [pod for pod in pods if pod.silent_since is not None or pod.overdue_at is not None]
    ill = {name for name, node in seen.nodes.named.items() if node.gone or node.unready_since is not None}
    return [pod for pod in pods if pod.node in ill] if ill else []


def _marked_all(pods: tuple[Pod, ...], troubles: Mapping[str, Trouble], now: datetime) -> tuple[Pod, ...]:
    return tuple(_marked(pod, troubles[pod.name], now) if pod.name in troubles else pod for pod in pods)


def _marked(pod: Pod, trouble: Trouble, now: datetime) -> Pod:
    early = trouble.due is None or now < trouble.due
    if early and trouble.silent:
        return pod
    if early:
        when = f"; given up at {clock(trouble.due)}" if trouble.due else ""
        pod = _hushed(pod) if trouble.evicted or (pod.disruption == EVICTED and not pod.deleting) else pod
        return msgspec.structs.replace(pod, ready=False, unheard=True, waiting=f"{trouble.what}{when}")
    lost = msgspec.structs.replace(pod, abandoned=True, running=False, ready=False)
    if pod.ended and not _is_declared(pod):
        return lost
    # Without a time: the node had died before anybody could know, and what failed meanwhile failed because of it.
    return msgspec.structs.replace(lost, disruption=REASON, disrupted_at=None, message=trouble.what)


def _is_declared(pod: Pod) -> bool:
    """Whether Kubernetes' garbage collection, which comes every 20 s, has said that the pod has failed: it does so just
    before it deletes a pod of such a node by force."""
    return pod.deleting and pod.disruption == EVICTED and pod.phase == "Failed" and pod.exit is None


def _hushed(pod: Pod) -> Pod:
    """The pod without the eviction that is announced or under way: in a moment it is over, and the pod is lost."""
    return msgspec.structs.replace(pod, disruption="", disrupted_at=None, deleted_at=None, evicting=pod.deleting)


def _trouble(pod: Pod, seen: Observed, patience: int) -> Trouble | None:
    """What is wrong with the node of a pod that still needs one."""
    if not pod.node or (pod.ended and not pod.deleting):
        return None
    if seen.nodes is None:
        return _told_by_pod(pod, patience)
    node = seen.nodes.named.get(pod.node)
    return None if node is None else _told_by_node(pod, node, seen.nodes.heard_since, patience)


def _told_by_node(pod: Pod, node: Node, heard_since: datetime | None, patience: int) -> Trouble | None:
    if node.gone:
        return Trouble(f"node {node.name} is gone", datetime.min.replace(tzinfo=UTC))
    if node.unready_since is None:
        return None
    due = None if heard_since is None else later(max(node.unready_since, heard_since), patience)
    if node.out_of_service:
        return _out_of_service(pod, node, due)
    return Trouble(f"node {node.name} has not been ready since {clock(node.unready_since)}", due)


def _out_of_service(pod: Pod, node: Node, due: datetime | None) -> Trouble:
    """Kubernetes may have yet to delete the pod for the taint, by `due` at the latest. It does that by the pod's name,
    again and again: whoever replaces the pod before it has finished loses the new one too."""
    what = f"node {node.name} is out of service"
    if not node.evicts or _is_declared(pod):
        return Trouble(what, node.unready_since)
    if pod.deleting and pod.disruption == EVICTED and pod.disrupted_at is not None:
        return Trouble(what, later(pod.disrupted_at, EVICTION_SECONDS), evicted=True)
    return Trouble(what, due)


def _told_by_pod(pod: Pod, patience: int) -> Trouble | None:
    if pod.silent_since is not None:
        what = f"node {pod.node} has not been heard of since {clock(pod.silent_since)}"
        return Trouble(what, later(pod.silent_since, patience))
    if pod.overdue_at is not None:
        what = f"node {pod.node} has not carried out the deletion that was due at {clock(pod.overdue_at)}"
        return Trouble(what, later(pod.overdue_at, patience), silent=True)
    return None
