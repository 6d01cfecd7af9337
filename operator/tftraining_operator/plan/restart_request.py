"""Whether a person asks for a restart: the annotation tftraining.dev/restartedAt has a value that no pod has.

Each pod is stamped with the value that its job had when the operator created the pod. So the answer stands at the
pods, as for `kubectl rollout restart`: an older definition of the resource cannot prune it, a restart of the operator
does not repeat it, and a job that is created with the annotation is not restarted.

A pod with the value proves that the request was answered: the whole gang restarts before any pod gets a new value. The
status remembers the last answered request, because the annotation may be removed, and every pod with its value may be
replaced, before somebody sets the same value again.
"""

from collections.abc import Collection

from tftraining_operator.model.observed import Pod


def is_restart_requested(pods: Collection[Pod], restarted_at: str, answered: str | None) -> bool:
    """Whether a pod was created before the request, which is not empty; `answered` is the last request answered."""
    return bool(pods) and restarted_at not in (answered, *(pod.restarted_at for pod in pods))
