"""What an earlier job of the same name has left, and Kubernetes' garbage collector has yet to remove."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from tftraining_operator.model.job import Job
from tftraining_operator.model.names import KIND
from tftraining_operator.model.spec import Frozen, Manifest


class Leftover(Frozen, frozen=True):
    """A child of the earlier job, such as `pod/x`. From `since` on nothing but the cluster keeps it from being removed:
    the job that waits for it is there, and a pod's own grace is over."""

    child: str
    since: datetime


def leftovers(job: Job, kind: str, raws: Iterable[Manifest]) -> tuple[Leftover, ...]:
    """Those of the objects of that kind (`pod`, `service`) that an earlier job of the job's name owns, by name."""
    left = sorted((each["metadata"] for each in raws if left_by_earlier(job, each)), key=lambda meta: str(meta["name"]))
    return tuple(Leftover(f"{kind}/{meta['name']}", _since(job, meta)) for meta in left)


def left_by_earlier(job: Job, raw: Manifest) -> bool:
    """Whether the object's controller is a job of the same name that is not there any more."""
    owners = raw["metadata"].get("ownerReferences") or ()
    return any(
        owner.get("controller")
        and (owner.get("kind"), owner.get("name")) == (KIND, job.key.name)
        and owner.get("uid") != job.uid
        for owner in owners
    )


def _since(job: Job, meta: Manifest) -> datetime:
    if "deletionTimestamp" not in meta:
        return job.created
    return max(job.created, msgspec.convert(meta["deletionTimestamp"], datetime))
