"""The nodes that a job's pods run on, parsed once from the API's objects. Never decides."""

from collections.abc import Collection
from datetime import UTC, datetime

import msgspec

from tftraining_api.model.spec import Frozen, Manifest
from tftraining_api.model.times import parse_time

# The taint by which an administrator marks a node that is shut down and will not return by itself.
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
ZONE, CONTROL_PLANE = "topology.kubernetes.io/zone", "node-role.kubernetes.io/control-plane"
# As the node controller counts: from so many nodes on, a zone of which so many percent are not ready is disrupted.
LEAST_NODES, MOST_UNREADY_PERCENT = 3, 55
LONGEST_WORDS = 256
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class NodeCondition(Frozen, frozen=True):
    """A condition of a node that holds `since` then."""

    type: str
    since: datetime
    message: str = ""


class Node(Frozen, frozen=True):
    """One node. `unready_since` is when it stopped being ready; None if it is ready. `ready_since` is when it became
    ready; None if it is not ready or the time is unknown. `noticed_at` is when this operator saw that it is not ready.
    A `gone` node has no object in the cache.

    `evicts` is whether the out-of-service taint makes Kubernetes delete pods that do not tolerate it. `conditions` are
    those that hold of the types for which pods leave a node (plan/node_conditions.py).
    """

    name: str
    zone: str = ""
    control_plane: bool = False
    unready_since: datetime | None = None
    noticed_at: datetime | None = None
    ready_since: datetime | None = None
    out_of_service: bool = False
    evicts: bool = False
    gone: bool = False
    conditions: tuple[NodeCondition, ...] = ()

    @property
    def is_ready(self) -> bool:
        """Whether it is there and ready."""
        return not self.gone and self.unready_since is None


class Nodes(Frozen, frozen=True):
    """The nodes of a job's pods, by name.

    `steady_since` says for each zone since when enough of its nodes have been ready without a break; None while too few
    are: suspect the network or the control plane then, rather than a node.
    """

    named: dict[str, Node] = msgspec.field(default_factory=dict)
    steady_since: dict[str, datetime | None] = msgspec.field(default_factory=dict)

    def is_steady(self, node: Node) -> bool:
        """Whether enough nodes of its zone are ready."""
        return self.steady_since.get(node.zone) is not None


def steady_since(nodes: Collection[Node]) -> dict[str, datetime | None]:
    """Nodes.steady_since, given all nodes of the cluster. Control-plane nodes count only if there are no others: they
    may be ready beside an API server that no worker reaches."""
    counted = [node for node in nodes if not node.control_plane] or nodes
    zones: dict[str, list[Node]] = {node.zone: [] for node in nodes}
    for node in counted:
        zones[node.zone].append(node)
    somewhere = _ready_since(counted, 1)
    if somewhere is None:
        return dict.fromkeys(zones)
    since = {zone: _ready_since(members, _least_ready(len(members))) for zone, members in zones.items()}
    return {zone: None if own is None else max(somewhere, own) for zone, own in since.items()}


def _least_ready(size: int) -> int:
    """How many nodes of a zone of this size have to be ready."""
    return 0 if size < LEAST_NODES else size * (100 - MOST_UNREADY_PERCENT) // 100 + 1


def _ready_since(nodes: Collection[Node], least: int) -> datetime | None:
    """Since when at least so many of the nodes have been ready; None if fewer are."""
    times = sorted(node.ready_since or _LONG_AGO for node in nodes if node.unready_since is None)
    return None if len(times) < least else max(times[:least], default=_LONG_AGO)


def parse_node(raw: Manifest, listed: Collection[str] = ()) -> Node:
    """Parse a node from the API server. A node without a Ready condition counts as ready. `listed` are the types of
    conditions for which pods leave a node."""
    conditions = (raw.get("status") or {}).get("conditions") or ()
    ready = next((each for each in conditions if each.get("type") == "Ready"), None)
    since = None
    if ready is not None:
        since = parse_time(ready.get("lastTransitionTime") or raw["metadata"]["creationTimestamp"])
    is_ready = ready is None or ready.get("status") == "True"
    taints = (raw.get("spec") or {}).get("taints") or ()
    effects = {each.get("effect") for each in taints if each.get("key") == OUT_OF_SERVICE}
    labels = raw["metadata"].get("labels") or {}
    return Node(
        name=raw["metadata"]["name"],
        zone=labels.get(ZONE, ""),
        control_plane=CONTROL_PLANE in labels,
        unready_since=None if is_ready else since,
        ready_since=since if is_ready else None,
        out_of_service=bool(effects),
        evicts="NoExecute" in effects,
        conditions=tuple(
            NodeCondition(each["type"], parse_time(each["lastTransitionTime"]), each.get("message", "")[:LONGEST_WORDS])
            for each in conditions
            if each.get("type") in listed and each.get("status") == "True" and each.get("lastTransitionTime")
        ),
    )
