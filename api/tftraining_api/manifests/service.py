"""The headless Service that gives the pods of a job their DNS names."""

from tftraining.launch.roles import GANG_ROLES
from tftraining_api.manifests.metadata import child_metadata
from tftraining_api.model.job import Job
from tftraining_api.model.names import LABEL_JOB
from tftraining_api.model.spec import JobSpec, Manifest


def service(job: Job, spec: JobSpec) -> Manifest:
    """One headless Service for all roles, with the name of the job.

    Not-ready addresses are published: TensorFlow's servers must find each other before any of them is ready.
    """
    ports = [{"name": role, "port": own.port} for role in GANG_ROLES if (own := spec.role(role)) is not None]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child_metadata(job, job.key.name, {}),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {LABEL_JOB: job.key.name},
            "ports": _distinct(ports),
        },
    }


def _distinct(ports: list[Manifest]) -> list[Manifest]:
    """One entry per port number: the API server refuses a Service with duplicates."""
    return list({port["port"]: port for port in reversed(ports)}.values())[::-1]
