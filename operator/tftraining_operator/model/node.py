"""What is known of the nodes that a job's pods run on, parsed once from the API's objects. Never decides."""

from datetime import datetime

import msgspec

from tftraining_operator.model.spec import Frozen, Manifest

# By this taint a person says that the node is shut down and will not come back by itself.
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


class Node(Frozen, frozen=True):
    """One node. `unready_since` is when its kubelet was last ready; None if it is. `gone` nodes have no object.

    `evicts` is whether Kubernetes deletes the pods of one that is out of service, unless they tolerate the taint.
    """

    name: str
    unready_since: datetime | None = None
    out_of_service: bool = False
    evicts: bool = False
    gone: bool = False


class Nodes(Frozen, frozen=True):
    """Those nodes of a job's pods of which something is known, by name.

    `outage` is whether not one node of the cluster is ready: then it is not the nodes that cannot be trusted.
    """

    named: dict[str, Node] = msgspec.field(default_factory=dict)
    outage: bool = False


def parse_node(raw: Manifest) -> Node:
    """A node from the API server. One that has never told how it is counts as ready."""
    conditions = (raw.get("status") or {}).get("conditions") or ()
    ready = next((each for each in conditions if each.get("type") == "Ready"), None)
    since = None
    if ready is not None and ready.get("status") != "True":
        since = msgspec.convert(ready.get("lastTransitionTime") or raw["metadata"]["creationTimestamp"], datetime)
    taints = (raw.get("spec") or {}).get("taints") or ()
    effects = {each.get("effect") for each in taints if each.get("key") == OUT_OF_SERVICE}
    return Node(
        name=raw["metadata"]["name"],
        unready_since=since,
        out_of_service=bool(effects),
        evicts="NoExecute" in effects,
    )
