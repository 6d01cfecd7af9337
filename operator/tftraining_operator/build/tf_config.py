"""TF_CONFIG: how each TensorFlow process learns who its peers are and which of them it is.

Source of the format: https://www.tensorflow.org/guide/distributed_training#TF_CONFIG
"""

import json
from functools import lru_cache

from tftraining_operator.model.job import Job
from tftraining_operator.model.names import GANG_ROLES, Key, Replica, Role, address
from tftraining_operator.model.spec import JobSpec


def tf_config(job: Job, spec: JobSpec, replica: Replica) -> str:
    """The TF_CONFIG of one replica, as JSON: `{"cluster": {role: [address…]}, "task": {"type", "index"}}`.

    The evaluator is not part of the cluster: it gets the cluster of the others, and itself as the task.
    """
    roles = tuple(
        (role, of.replicas, of.port) for role in GANG_ROLES if (of := spec.role(role)) is not None and of.replicas
    )
    task = json.dumps({"type": replica.role, "index": replica.index})
    return f'{{"cluster": {_cluster(job.key, roles)}, "task": {task}}}'


@lru_cache(maxsize=1)
def _cluster(key: Key, roles: tuple[tuple[Role, int, int], ...]) -> str:
    """The same text for every replica of a job: made anew for each, it is most of the time that a large job takes."""
    return json.dumps(
        {role: [address(key, Replica(role, index), port) for index in range(count)] for role, count, port in roles}
    )
