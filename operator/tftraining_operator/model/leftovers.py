"""What an earlier job of the same name has left, and Kubernetes' garbage collector has yet to remove."""

from collections.abc import Iterable

from tftraining_operator.model.job import Job
from tftraining_operator.model.observed import Child, Leftover, Pod


def leftovers(job: Job, kind: str, children: Iterable[Child]) -> tuple[Leftover, ...]:
    """Those of the objects of that kind (`pod`, `service`) that an earlier job of the job's name owns, by name."""
    left = sorted(_of_earlier(job, children), key=lambda child: child.name)
    return tuple(Leftover(f"{kind}/{child.name}", max(job.created, child.removal_due or job.created)) for child in left)


def leaving_pods(job: Job, children: Iterable[Child]) -> tuple[Pod, ...]:
    """The pods among them whose end somebody has asked for: only a kubelet keeps those, or a finalizer."""
    return tuple(child.pod for child in _of_earlier(job, children) if child.pod is not None and child.pod.deleting)


def _of_earlier(job: Job, children: Iterable[Child]) -> Iterable[Child]:
    return (child for child in children if child.owner_job == job.key.name and child.owner != job.uid)
