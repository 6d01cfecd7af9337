"""What an earlier job of the same name has left, and Kubernetes' garbage collector has yet to remove."""

from collections.abc import Iterable

from tftraining_operator.model.job import Job
from tftraining_operator.model.observed import Child, Leftover


def leftovers(job: Job, kind: str, children: Iterable[Child]) -> tuple[Leftover, ...]:
    """Those of the objects of that kind (`pod`, `service`) that an earlier job of the job's name owns, by name."""
    earlier = (child for child in children if child.owner_job == job.key.name and child.owner != job.uid)
    left = sorted(earlier, key=lambda child: child.name)
    return tuple(Leftover(f"{kind}/{child.name}", max(job.created, child.removal_due or job.created)) for child in left)
