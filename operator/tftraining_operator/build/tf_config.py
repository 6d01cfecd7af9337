"""TF_CONFIG: how each TensorFlow process learns who its peers are and which of them it is.

Source of the format: https://www.tensorflow.org/guide/distributed_training#TF_CONFIG
"""

import json

from tftraining_operator.model.job import Job
from tftraining_operator.model.names import GANG_ROLES, Replica, Role, address
from tftraining_operator.model.spec import JobSpec

CLUSTER_ROLES: tuple[Role, ...] = (*GANG_ROLES, "ps")


def tf_config(job: Job, spec: JobSpec, replica: Replica) -> str:
    """The TF_CONFIG of one replica, as JSON: `{"cluster": {role: [address…]}, "task": {"type", "index"}}`.

    The evaluator is not part of the cluster: it gets the cluster of the others, and itself as the task.
    """
    cluster = {
        role: [address(job.key, Replica(role, index), of.port) for index in range(of.replicas)]
        for role in CLUSTER_ROLES
        if (of := spec.role(role)) is not None and of.replicas
    }
    return json.dumps({"cluster": cluster, "task": {"type": replica.role, "index": replica.index}})
