"""The NetworkPolicy of a job: its pods accept connections from each other, and on the status port from the operator and
from the pods that scrape /metrics.

All ports are open among the pods of a job, because NCCL chooses its own. Egress is not restricted.
"""

from tftraining.launch.roles import ROLES
from tftraining_api.manifests.metadata import child_metadata
from tftraining_api.model.job import Job
from tftraining_api.model.names import LABEL_JOB, STATUS_PORT, auxiliary_object_name
from tftraining_api.model.spec import Frozen, JobSpec, Manifest


class OperatorSelector(Frozen, frozen=True):
    """The pods that may access the launchers' status port: those of the operator, by namespace and labels.
    `metrics_from` selects the others, such as Prometheus, as `from` of a NetworkPolicy does."""

    namespace: str
    labels: dict[str, str]
    metrics_from: tuple[Manifest, ...] = ()


def network_policy(job: Job, operator_selector: OperatorSelector) -> Manifest:
    """The policy for all pods with the job's label."""
    own = {"podSelector": {"matchLabels": {LABEL_JOB: job.key.name}}}
    operator = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": operator_selector.namespace}},
        "podSelector": {"matchLabels": operator_selector.labels},
    }
    status_clients = [operator, *operator_selector.metrics_from]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": child_metadata(job, auxiliary_object_name(job.key.name, job.uid), {}),
        "spec": {
            **own,
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [own]},
                {"from": status_clients, "ports": [{"protocol": "TCP", "port": STATUS_PORT}]},
            ],
        },
    }


def on_host_network(spec: JobSpec) -> bool:
    """Whether any pod of the job uses its node's network. A policy treats such a pod as its node: the policy would not
    protect the pod, and would block its connections to the others."""
    roles = [role for role in ROLES if spec.role(role) is not None]
    return any((spec.template_of(role).get("spec") or {}).get("hostNetwork") for role in roles)
