"""The NetworkPolicy of a job: its pods hear only each other, and the operator on the launchers' status port.

All ports are open among the pods of a job, because NCCL chooses its own. What goes out of them is not restricted.
"""

from tftraining_operator.build.metadata import child_metadata
from tftraining_operator.model.job import Job
from tftraining_operator.model.names import LABEL_JOB, ROLES, STATUS_PORT, companion_name
from tftraining_operator.model.spec import Frozen, JobSpec, Manifest


class OperatorSelector(Frozen, frozen=True):
    """Who may ask the launchers how it goes: the pods of the operator, by their namespace and labels."""

    namespace: str
    labels: dict[str, str]


def network_policy(job: Job, operator_selector: OperatorSelector) -> Manifest:
    """The policy for all pods that carry the job's label."""
    own = {"podSelector": {"matchLabels": {LABEL_JOB: job.key.name}}}
    operator = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": operator_selector.namespace}},
        "podSelector": {"matchLabels": operator_selector.labels},
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": child_metadata(job, companion_name(job.key.name, job.uid), {}),
        "spec": {
            **own,
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [own]}, {"from": [operator], "ports": [{"protocol": "TCP", "port": STATUS_PORT}]}],
        },
    }


def on_host_network(spec: JobSpec) -> bool:
    """Whether any pod of the job is on its node's network. A policy sees such a pod as its node: it would not protect
    that pod, and keep it from the others."""
    roles = [role for role in ROLES if spec.role(role) is not None]
    return any((spec.template_of(role).get("spec") or {}).get("hostNetwork") for role in roles)
