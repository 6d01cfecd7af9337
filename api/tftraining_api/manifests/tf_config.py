"""TF_CONFIG: the variable that tells a TensorFlow process the addresses of its cluster and its own task."""

from tftraining.launch.in_user_process.shared.tf_config import text
from tftraining_api.model.job import Job
from tftraining_api.model.names import Replica
from tftraining_api.model.spec import JobSpec, Manifest
from tftraining_api.model.tf_config import cluster_of


def tf_config(job: Job, spec: JobSpec, replica: Replica) -> str:
    """The TF_CONFIG of one replica, as JSON."""
    return text(cluster_of(job.key, spec), replica.role, replica.index)


def pattern_settings(job: Job, spec: JobSpec, replica: Replica) -> Manifest:
    """The settings from which a launcher generates the same TF_CONFIG."""
    cluster = {role: [count, address] for role, count, address in cluster_of(job.key, spec)}
    return {"cluster": cluster, "task": {"type": replica.role, "index": replica.index}}
