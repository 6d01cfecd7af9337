"""What an earlier job of the same name has left, and Kubernetes' garbage collector has yet to remove."""

from collections.abc import Iterable
from datetime import datetime

from tftraining_operator.model.job import Job
from tftraining_operator.model.observed import Child
from tftraining_operator.model.spec import Frozen


class Leftover(Frozen, frozen=True):
    """A child of the earlier job, such as `pod/x`. From `since` on nothing but the cluster keeps it from being removed:
    the job that waits for it is there, and a pod's own grace is over."""

    child: str
    since: datetime


def leftovers(job: Job, kind: str, children: Iterable[Child]) -> tuple[Leftover, ...]:
    """Those of the objects of that kind (`pod`, `service`) that an earlier job of the job's name owns, by name."""
    earlier = (child for child in children if child.owner_job == job.key.name and child.owner != job.uid)
    left = sorted(earlier, key=lambda child: child.name)
    return tuple(Leftover(f"{kind}/{child.name}", max(job.created, child.removal_due or job.created)) for child in left)
