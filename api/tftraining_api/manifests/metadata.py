"""The labels and the owner reference of every child of a job."""

from tftraining_api.model.job import Job
from tftraining_api.model.names import (
    API_VERSION,
    GROUP,
    KIND,
    LABEL_ATTEMPT,
    LABEL_INDEX,
    LABEL_JOB,
    LABEL_ROLE,
    MANAGER,
    Replica,
)
from tftraining_api.model.spec import Manifest


def child_metadata(job: Job, name: str, labels: dict[str, str]) -> Manifest:
    """Metadata of a child. `blockOwnerDeletion` is unset: it would require a right on the job's finalizers."""
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.key.name,
        "uid": job.uid,
        "controller": True,
    }
    return {
        "name": name,
        "namespace": job.key.namespace,
        "labels": {**labels, **common_labels(job)},
        "ownerReferences": [owner],
    }


def common_labels(job: Job) -> dict[str, str]:
    """The labels of every child. The job's name fits: like a label value, it has at most 63 characters."""
    return {
        LABEL_JOB: job.key.name,
        "app.kubernetes.io/name": "tftraining",
        "app.kubernetes.io/instance": job.key.name,
        "app.kubernetes.io/managed-by": MANAGER.replace("/", "-"),
        "app.kubernetes.io/part-of": GROUP,
    }


def replica_labels(replica: Replica, attempt: int) -> dict[str, str]:
    """The labels that identify one training pod."""
    return {
        LABEL_ROLE: replica.role,
        LABEL_INDEX: str(replica.index),
        LABEL_ATTEMPT: str(attempt),
        "app.kubernetes.io/component": replica.role,
    }
