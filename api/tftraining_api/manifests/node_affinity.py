"""The preference of a pod for other nodes than those of status.avoidedNodes.

One preferred term beside the user's: a required one would strand a pod whose volume or pool has only that node. Never
for a pod in a queue of Kueue, which compares the affinity of a pod with that of the one whose place it takes.
"""

from collections.abc import Collection

from tftraining_api.model.spec import Manifest
from tftraining_api.model.status import AvoidedNode

WEIGHT = 100
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def avoiding(pod_spec: Manifest, nodes: Collection[AvoidedNode]) -> Manifest:
    """The pod spec with the preference; as it is without nodes to avoid."""
    if not nodes:
        return pod_spec
    # Kubernetes takes one value for each field.
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [each.name]} for each in nodes]
    term = {"weight": WEIGHT, "preference": {"matchFields": fields}}
    affinity = pod_spec.get("affinity") or {}
    of_nodes = affinity.get("nodeAffinity") or {}
    preferred = [*(of_nodes.get(PREFERRED) or ()), term]
    return {**pod_spec, "affinity": {**affinity, "nodeAffinity": {**of_nodes, PREFERRED: preferred}}}
