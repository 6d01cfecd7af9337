"""The preferences of a pod: other nodes than those of status.avoidedNodes, and the rack or zone of its gang.

A preferred term each, beside the user's. A required one for nodes would strand a pod whose volume or pool has only that
node; a required one for racks would strand the rest of a gang when the rack of its first pod is full.

A pod in a queue of Kueue gets neither: Kueue compares the affinity of a pod with that of the one whose place it takes,
and chooses the rack itself (manifests/kueue.py).
"""

from collections.abc import Collection

from tftraining.launch.roles import GANG_ROLES
from tftraining_api.model.job import Job
from tftraining_api.model.names import LABEL_JOB, LABEL_ROLE, Replica
from tftraining_api.model.spec import JobSpec, Manifest
from tftraining_api.model.status import AvoidedNode

WEIGHT = 100
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def avoiding(pod_spec: Manifest, nodes: Collection[AvoidedNode]) -> Manifest:
    """The pod spec with the preference for other nodes; as it is without nodes to avoid."""
    if not nodes:
        return pod_spec
    # Kubernetes takes one value for each field.
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [each.name]} for each in nodes]
    return _with_term(pod_spec, "nodeAffinity", {"weight": WEIGHT, "preference": {"matchFields": fields}})


def near_its_gang(pod_spec: Manifest, job: Job, spec: JobSpec, replica: Replica) -> Manifest:
    """The pod spec with the preference for the rack or zone of the gang's other pods (`topologyKey`)."""
    if spec.topology_key is None or job.queue_labels or not replica.traits.in_gang:
        return pod_spec
    of_gang = {
        "matchLabels": {LABEL_JOB: job.key.name},
        "matchExpressions": [{"key": LABEL_ROLE, "operator": "In", "values": [str(role) for role in GANG_ROLES]}],
    }
    term = {"labelSelector": of_gang, "topologyKey": spec.topology_key}
    return _with_term(pod_spec, "podAffinity", {"weight": WEIGHT, "podAffinityTerm": term})


def _with_term(pod_spec: Manifest, kind: str, term: Manifest) -> Manifest:
    affinity = pod_spec.get("affinity") or {}
    of_kind = affinity.get(kind) or {}
    terms = [*(of_kind.get(PREFERRED) or ()), term]
    return {**pod_spec, "affinity": {**affinity, kind: {**of_kind, PREFERRED: terms}}}
