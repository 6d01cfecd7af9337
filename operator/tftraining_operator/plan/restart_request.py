"""Whether a person asks for a restart: the annotation tftraining.dev/restartedAt has a value that no pod has.

Each pod is stamped with the value that its job had when the operator created the pod. So the answer stands at the
pods, as for `kubectl rollout restart`: an older definition of the resource cannot prune it, a restart of the operator
does not repeat it, and a job that is created with the annotation is not restarted. A pod of a version before this one
has no stamp. Such a pod is adopted, unless the request is a time after the pod's creation.

A pod with the value proves that the request was answered: the whole gang restarts before any pod gets a new value. The
status remembers the last answered request, because the annotation may be removed, and every pod with its value may be
replaced, before somebody sets the same value again.
"""

from collections.abc import Collection
from datetime import UTC, datetime

import msgspec

from tftraining_operator.model.observed import Pod

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def is_restart_requested(pods: Collection[Pod], restarted_at: str, answered: str | None) -> bool:
    """Whether a pod was created before the request, which is not empty; `answered` is the last request answered."""
    if restarted_at in (answered, *(pod.restarted_at for pod in pods)):
        return False
    asked = _time(restarted_at)
    return any(pod.restarted_at is not None or pod.created < asked for pod in pods)


def _time(text: str) -> datetime:
    """The time of a request, cut to seconds as the times of pods are; long ago for a text that is no time."""
    try:
        found = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        return _LONG_AGO
    return found.replace(microsecond=0) if found.tzinfo else _LONG_AGO
