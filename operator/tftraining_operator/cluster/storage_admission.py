"""Who writes which directory: two jobs in one directory would corrupt each other's training without a word.

A job without pods waits while pods of another job write the directory, those of deleted jobs and cleanup pods included.
Among jobs without pods one that restarts goes first, then the oldest. What a pass was allowed, it keeps until its pods
are there: another pass may run meanwhile. A job that has not begun and waits for its quota holds nothing: another one
may fit. Jobs that write already are only told. Never ends a job or a pod.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from tftraining_api.model.job import Job, has_condition
from tftraining_api.model.names import MANAGER, Key
from tftraining_api.model.spec import Manifest
from tftraining_api.model.status import TERMINAL
from tftraining_operator.cluster.child_store import ChildStore
from tftraining_operator.cluster.jobs import Jobs
from tftraining_operator.model.observed import Child, StorageUse, writes
from tftraining_operator.model.storage_place import StoragePlace, place_of_job
from tftraining_operator.plan.unreadable import UNREADABLE


class StorageAdmission:
    """The jobs that write storage. `wake` is called with a job that may go on."""

    def __init__(self, jobs: Jobs, pods: ChildStore, wake: Callable[[Key], None]) -> None:
        self._jobs = jobs
        self._pods = pods
        self._wake = wake
        self._allowed: dict[StoragePlace, tuple[Key, str]] = {}
        # The jobs without pods that wait for something else, so that they are in nobody's way.
        self._out_of_turn: set[Key] = set()
        # The waiting jobs, by the job that each waits for.
        self._waiting: defaultdict[Key, set[Key]] = defaultdict(set)

    def observe(self, job: Job, may_begin: bool = True) -> StorageUse:
        """Who else writes the job's directory. The directory is the job's own from now on if nobody does and the job
        `may_begin`."""
        self._out_of_turn.discard(job.key)
        raw = self._jobs.get(job.key)
        place = place_of_job(job.key, raw)
        if raw is None or place is None:
            return StorageUse()
        writers = [each for each in self._pods.writers(place) if each[1].owner != job.uid]
        if any(writes(child) and child.owner == job.uid for child in self._pods.of(job.key)):
            return StorageUse(shared=self._shared(job, place, writers))
        holder = writers[0][0] if writers else self._first(job, raw, place)
        if holder is not None:
            self._waiting[holder].add(job.key)
            return StorageUse(held=f"{place} is in use by the job {holder.name}")
        if not may_begin and not _has_begun(raw):
            self._give_way(job.key)
        elif _wants(raw):
            self._allowed[place] = (job.key, job.uid)
        return StorageUse(shared=self._shared(job, place, writers))

    def passed(self, key: Key) -> None:
        """Wake the jobs that wait for this one, after a pass over it, unless its pods still write. A job that is gone
        has its directory no longer."""
        if self._jobs.head(key) is None:
            self._disallow(key)
            self._out_of_turn.discard(key)
        if key in self._waiting and not any(map(writes, self._pods.of(key))):
            for each in self._waiting.pop(key):
                self._wake(each)

    def _give_way(self, key: Key) -> None:
        """The job creates no pods now: whoever waits for it may go on."""
        self._disallow(key)
        self._out_of_turn.add(key)
        for each in self._waiting.pop(key, ()):
            self._wake(each)

    def _disallow(self, key: Key) -> None:
        self._allowed = {place: holder for place, holder in self._allowed.items() if holder[0] != key}

    def _first(self, job: Job, raw: Manifest, place: StoragePlace) -> Key | None:
        """The job that goes first among those without pods, if it is another one."""
        holder, uid = self._allowed.get(place, (job.key, job.uid))
        known = self._jobs.get(holder)
        same = uid != job.uid and known is not None and known["metadata"]["uid"] == uid
        if same and known is not None and place_of_job(holder, known) == place and (_wants(known) or _cleans(known)):
            return holder
        self._allowed.pop(place, None)
        others = [each for each in self._jobs.writing(place) if each != job.key and each not in self._out_of_turn]
        wanting = {each: known for each in others if (known := self._jobs.get(each)) is not None and _wants(known)}
        first = min(wanting, key=lambda each: _order(wanting[each]), default=None)
        return first if first is not None and _order(wanting[first]) < _order(raw) else None

    def _shared(self, job: Job, place: StoragePlace, writers: list[tuple[Key, Child]]) -> str:
        """Who writes the same directory, one above or one below it, in any namespace; empty if nobody does."""
        found = (each for each in self._near(place, writers) if each[1].owner != job.uid)
        key, child = next(found, (None, None))
        if key is None or child is None or child.place is None:
            return ""
        who = f"the job {key.name}" if key.namespace == job.key.namespace else "a job of another namespace"
        where = "the same directory" if child.place.path == place.path else str(child.place)
        return f"{place}: {who} writes {where}"

    def _near(self, place: StoragePlace, writers: list[tuple[Key, Child]]) -> Iterator[tuple[Key, Child]]:
        yield from writers
        yield from self._pods.writers_near(place)


def _status(raw: Manifest) -> dict[str, Any]:
    return raw.get("status") or {}


def _wants(raw: Manifest) -> bool:
    """Whether the operator creates pods for the job, now or as soon as it may."""
    policy, status = raw["spec"].get("runPolicy") or {}, _status(raw)
    idle = policy.get("suspend") or status.get("phase") in TERMINAL or "deletionTimestamp" in raw["metadata"]
    return not idle and policy.get("managedBy", MANAGER) == MANAGER and not has_condition(status, UNREADABLE)


def _cleans(raw: Manifest) -> bool:
    """Whether the job is about to create a cleanup pod."""
    told = _status(raw).get("conditions") or ()
    return any((each.get("type"), each.get("reason")) == ("Cleaned", "Cleaning") for each in told)


def _has_begun(raw: Manifest) -> bool:
    """Whether the job is between two attempts: another one would spoil what it has written."""
    return _status(raw).get("phase") in ("Running", "Restarting")


def _order(raw: Manifest) -> tuple[bool, str, str]:
    meta = raw["metadata"]
    return not _has_begun(raw), meta.get("creationTimestamp", ""), meta["uid"]
