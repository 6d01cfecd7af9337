"""Pods on lost nodes: marked, so that no stage waits for a kubelet that will never answer.

A node is lost when its object is gone, when a person has tainted it as out-of-service and Kubernetes has evicted its
pods, or when it has not been ready for runPolicy.nodeLostSeconds, and this operator has seen that for as long. A marked
pod counts as disrupted, and is deleted by force (context.py); before that, the pass asks the API server itself
(plan/look_first.py). While most nodes of a zone are not ready, or none at all, that takes OUTAGE times as long: then
the control plane is cut off, and the trainings may well go on. After the outage the nodes report one after the other,
so the time of each begins anew once enough of them have.

The same holds for the pods of an earlier job of the name that somebody has deleted: they keep the job from having its
own. It does not hold for a pod that cleanPodPolicy None keeps after the job's end: nothing waits for that pod.

Where the operator may not read nodes, the pods show it: the node controller sets the condition Ready of a silent node's
pods to False, and a deletion that is long overdue has no kubelet to carry it out, or one that has killed the program.
Nothing tells whether other nodes are ready, so a silent node alone counts as in an outage. Kubernetes evicts pods from
silent nodes by itself, unless most of them are silent: the overdue deletion is the proof.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from tftraining_api.model.spec import Frozen
from tftraining_operator.model.node import Node, Nodes
from tftraining_operator.model.observed import Observed, Pod
from tftraining_operator.model.times import clock, earliest, later
from tftraining_operator.plan.context import Context, Draft

REASON = "NodeLost"
# The reason in the condition DisruptionTarget of a pod that Kubernetes deletes because of a taint.
EVICTED = "DeletionByTaintManager"
# Kubernetes deletes such a pod again for each late watch event about it, that of its own deletion included.
EVICTION_SECONDS = 2
OUTAGE = 10
# The time between two checks whether an outage is over, or a lost pod gone.
CHECK_PAUSE = timedelta(seconds=15)


class Trouble(Frozen, frozen=True):
    """The trouble with a pod's node. The pod is given up at `due`; None for a time beyond the calendar.

    `silent` trouble is named nowhere until `due`: it may pass. `evicted` says that Kubernetes deletes the pod just now.
    """

    what: str
    due: datetime | None
    silent: bool = False
    evicted: bool = False


def mark_lost_nodes(context: Context) -> Context:
    """The context with the pods of lost nodes marked, and the time at which to look at the nodes again."""
    observed, now = context.observed, context.now
    troubles = _find(context)
    if not troubles:
        return context
    pods, earlier = (_marked_all(pods, troubles, now) for pods in (observed.pods, observed.earlier))
    coming = [trouble.due for trouble in troubles.values() if trouble.due is None or trouble.due > now]
    outage = observed.nodes is not None and None in observed.nodes.steady_since.values()
    return msgspec.structs.replace(
        context,
        observed=msgspec.structs.replace(observed, pods=pods, earlier=earlier),
        node_check_at=earliest(now + CHECK_PAUSE if outage and coming else None, *coming),
    )


def check_lost_pods(context: Context, draft: Draft) -> Draft:
    """The draft with a look at whether what it does to the pods of lost nodes has had an effect: it has none if the pod
    has changed, of which a silent watch does not tell."""
    return draft.with_requeue(context.now + CHECK_PAUSE) if draft.step.forces or draft.step.fail_pods else draft


def _find(context: Context) -> dict[str, Trouble]:
    """The troubles with the nodes of pods, by the pod's name; empty if all are well."""
    observed, policy = context.observed, context.run_policy
    keeps = context.status.terminal and policy.clean_pod_policy == "None"
    waited_for = (pod for pod in observed.suspect_pods if pod.deleting or pod.replica is None or not keeps)
    found = ((pod.name, _trouble(pod, observed, policy.node_lost_seconds)) for pod in waited_for)
    return {name: trouble for name, trouble in found if trouble is not None}


def _marked_all(pods: tuple[Pod, ...], troubles: Mapping[str, Trouble], now: datetime) -> tuple[Pod, ...]:
    return tuple(_marked(pod, troubles[pod.name], now) if pod.name in troubles else pod for pod in pods)


def _marked(pod: Pod, trouble: Trouble, now: datetime) -> Pod:
    early = trouble.due is None or now < trouble.due
    if early and trouble.silent:
        return pod
    if early:
        when = f"; replacing the pod at {clock(trouble.due)}" if trouble.due else ""
        pod = _hushed(pod) if trouble.evicted or (pod.disruption == EVICTED and not pod.deleting) else pod
        return msgspec.structs.replace(pod, ready=False, node_not_ready=True, waiting=f"{trouble.what}{when}")
    lost = msgspec.structs.replace(pod, node_lost=True, running=False, ready=False)
    if pod.ended and not _is_declared(pod):
        return lost
    # disrupted_at=None: the node died before anybody could know, so programs that failed since failed because of that.
    return msgspec.structs.replace(lost, disruption=REASON, disrupted_at=None, message=trouble.what)


def _is_declared(pod: Pod) -> bool:
    """Whether Kubernetes' garbage collection, which comes every 20 s, has said that the pod has failed: it does so just
    before it deletes a pod of such a node by force."""
    return pod.deleting and pod.disruption == EVICTED and pod.phase == "Failed" and pod.exit is None


def _hushed(pod: Pod) -> Pod:
    """The pod as if its eviction were not announced: in a moment the pod counts as lost, which is what the status
    should say."""
    return msgspec.structs.replace(pod, disruption="", disrupted_at=None, deleted_at=None, evicting=pod.deleting)


def _trouble(pod: Pod, observed: Observed, patience: int) -> Trouble | None:
    """The trouble with the pod's node; None for a pod that needs no node any more."""
    if not pod.node or (pod.ended and not pod.deleting):
        return None
    if observed.nodes is None:
        return _shown_by_pod(pod, patience)
    node = observed.nodes.named.get(pod.node)
    return None if node is None else _shown_by_node(pod, node, observed.nodes, patience)


def _shown_by_node(pod: Pod, node: Node, nodes: Nodes, patience: int) -> Trouble | None:
    if node.gone:
        return Trouble(f"node {node.name} is gone", datetime.min.replace(tzinfo=UTC))
    if node.unready_since is None:
        return None
    due = _due(node, node.unready_since, nodes.steady_since.get(node.zone), patience)
    if node.out_of_service:
        return _out_of_service(pod, node, due)
    others = "" if nodes.is_steady(node) else ", like most of its zone"
    return Trouble(f"node {node.name} has not been ready since {clock(node.unready_since)}{others}", due)


def _due(node: Node, unready_since: datetime, steady_since: datetime | None, patience: int) -> datetime | None:
    """When a node that is not ready is given up: never for ever, however its neighbours come and go."""
    begun = max(unready_since, node.noticed_at or unready_since)
    latest = later(begun, OUTAGE * patience)
    return latest if steady_since is None else earliest(later(max(begun, steady_since), patience), latest)


def _out_of_service(pod: Pod, node: Node, due: datetime | None) -> Trouble:
    """The trouble of an out-of-service node. Kubernetes deletes the pod for the taint by `due` at the latest, several
    times and by its name: a new pod of that name that is created before would be deleted too."""
    what = f"node {node.name} is out of service"
    if not node.evicts or _is_declared(pod):
        return Trouble(what, node.unready_since)
    if pod.deleting and pod.disruption == EVICTED and pod.disrupted_at is not None:
        return Trouble(what, later(pod.disrupted_at, EVICTION_SECONDS), evicted=True)
    return Trouble(what, due)


def _shown_by_pod(pod: Pod, patience: int) -> Trouble | None:
    if pod.node_silent_since is not None:
        what = f"node {pod.node} has sent no heartbeat since {clock(pod.node_silent_since)}"
        begun = max(pod.node_silent_since, pod.silence_noticed_at or pod.node_silent_since)
        evicted = later(pod.deletion_deadline, patience) if pod.deletion_deadline is not None else None
        return Trouble(what, earliest(later(begun, OUTAGE * patience), evicted))
    if pod.deletion_deadline is not None:
        what = f"node {pod.node} has not deleted the pod, which was due at {clock(pod.deletion_deadline)}"
        return Trouble(what, later(pod.deletion_deadline, patience), silent=True)
    return None
