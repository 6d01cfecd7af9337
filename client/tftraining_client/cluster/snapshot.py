"""A job with its pods and events, read once or followed by three watches."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass

from tftraining.launch.roles import ROLES
from tftraining_api.kube.api import ApiError
from tftraining_client.cluster.followed_job import FollowedJob
from tftraining_client.cluster.models import Event, Job, Pod
from tftraining_client.cluster.watching import Change, Watch
from tftraining_client.errors import JobDeleted

EVENTS = 50


@dataclass(frozen=True)
class Snapshot:
    """The state of a job at one moment. `hidden` names what the caller may not read."""

    job: Job
    pods: tuple[Pod, ...] = ()
    events: tuple[Event, ...] = ()
    hidden: tuple[str, ...] = ()


class SnapshotFollower:
    """Yields a snapshot at the start, and one after each change. Pods or events that the caller may not read are left
    out."""

    def __init__(self, job: Job, jobs: Watch, pods: Watch, events: Watch) -> None:
        self._followed = FollowedJob(job)
        self._watches = {"jobs": jobs, "pods": pods, "events": events}
        self._pods: dict[str, Pod] = {}
        self._events: dict[str, Event] = {}
        self._queue: asyncio.Queue[tuple[str, Change] | Exception] = asyncio.Queue()
        self._hidden: set[str] = set()
        self._deleted = False

    async def snapshots(self) -> AsyncGenerator[Snapshot, None]:
        """The snapshots. Raises JobDeleted if the job is deleted meanwhile, after the end of a finished one."""
        tasks = [asyncio.create_task(self._forward(kind, watch)) for kind, watch in self._watches.items()]
        unlisted = set(self._watches)
        try:
            while True:
                unlisted -= self._take(await self._queue.get())
                # Changes that are there already are one change.
                while not self._queue.empty():
                    unlisted -= self._take(self._queue.get_nowait())
                job, deleted = self._followed.job, self._deleted
                # A finished job may be deleted at once (ttlSecondsAfterFinished).
                if not unlisted and (job.finished or not deleted):
                    yield self._snapshot()
                if deleted and not (job.finished and unlisted):
                    raise JobDeleted(f"job {job.name} was deleted while it was followed")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _forward(self, kind: str, watch: Watch) -> None:
        try:
            async for change in watch.changes():
                await self._queue.put((kind, change))
        except Exception as error:
            if not isinstance(error, ApiError) or error.status != 403 or kind == "jobs":
                await self._queue.put(error)
                return
            self._hidden.add(kind)
            await self._queue.put((kind, Change("LISTED", {})))

    def _take(self, news: tuple[str, Change] | Exception) -> set[str]:
        """Take one change in; the kind that has been listed by it, if any."""
        if isinstance(news, Exception):
            raise news
        kind, change = news
        if kind == "jobs" and not self._followed.take(change):
            self._deleted = True
        if change.type == "LISTED":
            return {kind}
        if kind == "pods":
            self._take_pod(change)
        elif kind == "events" and change.type != "DELETED":
            self._take_event(Event.of(change.object), change.object["metadata"]["uid"])
        return set()

    def _take_pod(self, change: Change) -> None:
        pod = Pod.of(change.object)
        if not pod.is_of(self._followed.job.uid):
            return
        if change.type == "DELETED":
            self._pods.pop(pod.uid, None)
        else:
            self._pods[pod.uid] = pod

    def _take_event(self, event: Event, uid: str) -> None:
        self._events[uid] = event
        for oldest in sorted(self._events, key=lambda each: self._events[each].time)[:-EVENTS]:
            del self._events[oldest]

    def _snapshot(self) -> Snapshot:
        pods, events = sorted_pods(self._pods.values()), sorted_events(self._events.values())
        return Snapshot(self._followed.job, pods, events, tuple(sorted(self._hidden)))


def sorted_pods(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """The pods of the replicas in the order of roles and indexes; a pod of another role, the cleanup, is the last."""
    order: dict[str, int] = {role: place for place, role in enumerate(ROLES)}
    return tuple(sorted(pods, key=lambda pod: (order.get(pod.role, len(ROLES)), pod.index, pod.created)))


def sorted_events(events: Iterable[Event]) -> tuple[Event, ...]:
    """The events, the oldest first."""
    return tuple(sorted(events, key=lambda event: event.time))
