"""What is known of the nodes that a job's pods run on, parsed once from the API's objects. Never decides."""

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from tftraining_operator.model.spec import Frozen, Manifest

# By this taint a person says that the node is shut down and will not come back by itself.
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class Node(Frozen, frozen=True):
    """One node. `unready_since` is when its kubelet was last ready; None if it is. `ready_since` is when it became
    ready; None if it is not, or nobody knows. `gone` nodes have no object.

    `evicts` is whether Kubernetes deletes the pods of one that is out of service, unless they tolerate the taint.
    """

    name: str
    unready_since: datetime | None = None
    ready_since: datetime | None = None
    out_of_service: bool = False
    evicts: bool = False
    gone: bool = False


class Nodes(Frozen, frozen=True):
    """Those nodes of a job's pods of which something is known, by name.

    `heard_since` is since when there has been a ready node in the cluster, without a break; None if not one is ready:
    then it is not the nodes that cannot be trusted.
    """

    named: dict[str, Node] = msgspec.field(default_factory=dict)
    heard_since: datetime | None = _LONG_AGO


def heard_since(nodes: Iterable[Node]) -> datetime | None:
    """Since when one of them, which are all of the cluster, has been ready; None if none is."""
    return min((node.ready_since or _LONG_AGO for node in nodes if node.unready_since is None), default=None)


def parse_node(raw: Manifest) -> Node:
    """A node from the API server. One that has never told how it is counts as ready."""
    conditions = (raw.get("status") or {}).get("conditions") or ()
    ready = next((each for each in conditions if each.get("type") == "Ready"), None)
    since = None
    if ready is not None:
        since = msgspec.convert(ready.get("lastTransitionTime") or raw["metadata"]["creationTimestamp"], datetime)
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
