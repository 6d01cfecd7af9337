"""The nodes that a job's pods run on, parsed once from the API's objects. Never decides."""

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from tftraining_api.model.spec import Frozen, Manifest
from tftraining_operator.model.times import parsed

# The taint by which an administrator marks a node that is shut down and will not return by itself.
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class Node(Frozen, frozen=True):
    """One node. `unready_since` is when it stopped being ready; None if it is ready. `ready_since` is when it became
    ready; None if it is not ready or the time is unknown. A `gone` node has no object in the API.

    `evicts` is whether the out-of-service taint makes Kubernetes delete pods that do not tolerate it.
    """

    name: str
    unready_since: datetime | None = None
    ready_since: datetime | None = None
    out_of_service: bool = False
    evicts: bool = False
    gone: bool = False


class Nodes(Frozen, frozen=True):
    """The known nodes of a job's pods, by name.

    `heard_since` is the time since which some node of the cluster has been ready without a break; None if no node is
    ready: suspect the control plane then.
    """

    named: dict[str, Node] = msgspec.field(default_factory=dict)
    any_ready_since: datetime | None = _LONG_AGO


def any_ready_since(nodes: Iterable[Node]) -> datetime | None:
    """The time since which some node has been ready, given all nodes of the cluster; None if none is ready."""
    return min((node.ready_since or _LONG_AGO for node in nodes if node.unready_since is None), default=None)


def parse_node(raw: Manifest) -> Node:
    """Parse a node from the API server. A node without a Ready condition counts as ready."""
    conditions = (raw.get("status") or {}).get("conditions") or ()
    ready = next((each for each in conditions if each.get("type") == "Ready"), None)
    since = None
    if ready is not None:
        since = parsed(ready.get("lastTransitionTime") or raw["metadata"]["creationTimestamp"])
    is_ready = ready is None or ready.get("status") == "True"
    taints = (raw.get("spec") or {}).get("taints") or ()
    effects = {each.get("effect") for each in taints if each.get("key") == OUT_OF_SERVICE}
    return Node(
        name=raw["metadata"]["name"],
        unready_since=None if is_ready else since,
        ready_since=since if is_ready else None,
        out_of_service=bool(effects),
        evicts="NoExecute" in effects,
    )
