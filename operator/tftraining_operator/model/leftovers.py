"""Children of an earlier job of the same name that Kubernetes' garbage collector has yet to delete."""

from collections.abc import Iterable

from tftraining_api.model.job import Job
from tftraining_operator.model.observed import Child, Leftover, Pod


def of_earlier(job: Job, children: Iterable[Child]) -> list[Child]:
    """The objects that an earlier job of the same name owns."""
    uid, name = job.uid, job.key.name
    return [child for child in children if child.owner != uid and child.owner_job == name]


def leftovers(job: Job, kind: str, left: Iterable[Child]) -> tuple[Leftover, ...]:
    """The leftovers of one kind (`pod`, `service`), sorted by name."""
    by_name = sorted(left, key=lambda child: child.name)
    return tuple(
        Leftover(f"{kind}/{child.name}", max(job.created, child.removal_due or job.created)) for child in by_name
    )


def leaving_pods(left: Iterable[Child]) -> tuple[Pod, ...]:
    """The leftover pods with a deletion timestamp: only their kubelet or a finalizer delays their removal."""
    return tuple(child.pod for child in left if child.pod is not None and child.pod.deleting)
