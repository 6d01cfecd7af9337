"""The merged logs of a job's pods: read once in the order of time, or followed over restarts and new pods."""

import asyncio
import heapq
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace

from tftraining.launch.roles import ROLES
from tftraining_api.kube.api import Api, ApiError, Query
from tftraining_api.model.names import CONTAINER, LABEL_ATTEMPT, LABEL_INDEX, LABEL_JOB, LABEL_ROLE
from tftraining_client.cluster.followed_job import FollowedJob
from tftraining_client.cluster.log_position import LogPosition, parse_line
from tftraining_client.cluster.models import Job, LogLine, Pod
from tftraining_client.cluster.paths import core_path, object_path
from tftraining_client.cluster.watching import FATAL, FIRST_PAUSE, LONGEST_PAUSE, Watch
from tftraining_client.errors import JobDeleted, UserError

# After the end of the job its logs are read to their end, which comes at once unless a pod is kept running.
LAST_LINES_SECONDS = 10.0
QUEUE = 1000
SHOWN = 4  # replicas in a message
Notify = Callable[[str], None]


@dataclass(frozen=True)
class LogQuery:
    """Which logs of a job, and how much of them."""

    role: str = ""
    index: int | None = None
    attempt: int | None = None
    previous: bool = False
    tail: int | None = None
    since: int | None = None  # seconds
    container: str = CONTAINER

    def selector(self, job: str) -> str:
        """The label selector of the pods."""
        wanted = {LABEL_JOB: job, LABEL_ROLE: self.role}
        wanted[LABEL_INDEX] = "" if self.index is None else str(self.index)
        wanted[LABEL_ATTEMPT] = "" if self.attempt is None else str(self.attempt)
        return ",".join(f"{label}={value}" for label, value in wanted.items() if value)

    def check(self, job: Job) -> None:
        """UserError if no replica of the job is meant."""
        replicas = (*job.spec.gang, *job.spec.evaluators) if job.spec else ()
        if replicas and not any(self.role in ("", each.role) and self.index in (None, each.index) for each in replicas):
            wanted = " ".join(
                ["replica", *([self.role] if self.role else []), *([str(self.index)] if self.index else [])]
            )
            raise UserError(
                f"job {job.name} has no {wanted}; it has {', '.join(map(str, replicas[:SHOWN]))}"
                + ("…" if len(replicas) > SHOWN else "")
            )

    def parameters(self) -> Query:
        """The parameters of the request for one pod's log."""
        parameters = [("container", self.container), ("timestamps", "true")]
        parameters += [("previous", "true")] if self.previous else []
        parameters += [("sinceSeconds", str(self.since))] if self.since is not None else []
        return parameters + ([("tailLines", str(self.tail))] if self.tail is not None else [])


async def read_logs(api: Api, job: Job, query: LogQuery, notify: Notify) -> AsyncGenerator[LogLine, None]:
    """The logs as they are now, merged by time."""
    raws, _ = await api.list(core_path(job.namespace, "pods"), [("labelSelector", query.selector(job.name))])
    pods = [pod for raw in raws if (pod := Pod.of(raw)).role in ROLES and pod.is_of(job.uid)]
    if not pods:
        query.check(job)
        selected = query.selector(job.name) != LogQuery().selector(job.name)
        notify(f"job {job.name} has no pods{' of that kind' if selected else ''} now")
    streams = [_PodLog(api, job.namespace, pod, query, notify).once() for pod in pods]
    heap: list[tuple[int, int, LogLine]] = []
    try:
        firsts = await asyncio.gather(*(anext(stream, None) for stream in streams))
        heap = [(line.time, number, line) for number, line in enumerate(firsts) if line is not None]
        heapq.heapify(heap)
        while heap:
            _, number, line = heap[0]
            yield line
            following = await anext(streams[number], None)
            if following is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (following.time, number, following))
    finally:
        for stream in streams:
            await stream.aclose()


class _PodLog:
    """The log of one pod. A follower hands over each new state of the pod."""

    def __init__(self, api: Api, namespace: str, pod: Pod, query: LogQuery, notify: Notify) -> None:
        self._api = api
        self._path = object_path(core_path(namespace, "pods"), pod.name, "log")
        self._query = query
        self._notify = notify
        self._position = LogPosition()
        self._changed = asyncio.Event()
        self.pod = pod
        self.gone = False

    def update(self, pod: Pod, gone: bool) -> None:
        """Note the newest state of the pod."""
        self.pod, self.gone = pod, gone
        self._changed.set()

    async def once(self) -> AsyncGenerator[LogLine, None]:
        """The log as it is now; nothing for a pod without one."""
        # Of another container the API server knows whether it has begun: an init container ends before.
        if self._query.container == CONTAINER and not self.pod.started and not self._query.previous:
            self._notify(f"{self.pod.replica} has not started: {self.pod.reason or self.pod.phase}")
            return
        try:
            async for line in self._read(self._query.parameters()):
                yield line
        except ApiError as error:
            if error.status not in (400, 404):
                raise
            self._notify(f"{self.pod.replica}: {error.message}")

    async def follow(self) -> AsyncGenerator[LogLine, None]:
        """The log until the container has ended and everything is read, or the pod is gone."""
        pause, broken = FIRST_PAUSE, False
        while True:
            ended = self.pod.terminated
            try:
                async for line in self._read(self._following()):
                    yield line
                    pause = FIRST_PAUSE
                broken = False
            except ApiError as error:
                if error.status == 404 or self.gone:
                    self._note_gone(broken)
                    return
                if error.status in FATAL:
                    raise
                broken = True
            # What the container wrote before its end was there when the log was opened.
            if ended and not broken:
                return
            if self.gone:
                self._note_gone(broken)
                return
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            pause = min(LONGEST_PAUSE, pause * 2)

    def _following(self) -> Query:
        since = self._position.since
        if since is None:
            return [*self._query.parameters(), ("follow", "true")]
        parameters = replace(self._query, tail=None, since=None).parameters()
        return [*parameters, ("follow", "true"), ("sinceTime", since)]

    async def _read(self, parameters: Query) -> AsyncGenerator[LogLine, None]:
        self._position.reopen()
        told = False
        async with aclosing(self._api.lines(self._path, parameters)) as lines:
            async for line in lines:
                time, text = parse_line(line)
                if time is not None and self._position.admit(time):
                    if self._position.missed and not told:
                        told = True
                        self._notify(
                            f"{self.pod.replica}: lines before the next one may be missing (the log was rotated)"
                        )
                    yield LogLine(self.pod.name, self.pod.uid, self.pod.replica, time, text)

    def _note_gone(self, broken: bool) -> None:
        if broken or (self._position.last is None and self.pod.started):
            self._notify(f"{self.pod.replica}: the pod is gone, and its last lines with it")


class Follower:
    """Follows the logs of a job's pods, those included that come later, until the job has ended."""

    def __init__(self, api: Api, job: FollowedJob, query: LogQuery, notify: Notify, jobs: Watch, pods: Watch) -> None:
        self._api = api
        self._followed = job
        self._query = query
        self._notify = notify
        self._jobs = jobs
        self._pods = pods
        self._queue: asyncio.Queue[LogLine | Exception | None] = asyncio.Queue(QUEUE)
        self._readers: dict[str, asyncio.Task[None]] = {}
        self._lines_read = 0
        self._known: dict[str, _PodLog] = {}
        self._listed = asyncio.Event()

    async def lines(self) -> AsyncGenerator[LogLine, None]:
        """The lines, as they come. Raises JobDeleted if the job is deleted meanwhile."""
        supervisors = [asyncio.create_task(self._guarded(each)) for each in (self._watch_pods(), self._await_end())]
        try:
            while (line := await self._queue.get()) is not None:
                if isinstance(line, Exception):
                    raise line
                yield line
        finally:
            tasks = [*supervisors, *self._readers.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _guarded(self, work: Coroutine[None, None, None]) -> None:
        """Hand an error over to the caller of `lines`."""
        try:
            await work
        except Exception as error:
            await self._queue.put(error)

    async def _watch_pods(self) -> None:
        async for change in self._pods.changes():
            if change.type == "LISTED":
                self._listed.set()
                continue
            pod = Pod.of(change.object, self._query.container)
            if pod.role in ROLES and pod.is_of(self._followed.job.uid):
                self._check_container(pod)
                self._take(pod, gone=change.type == "DELETED")

    def _check_container(self, pod: Pod) -> None:
        """Tell once of a pod that has no such container; its log would never begin."""
        wanted = self._query.container
        if pod.uid not in self._known and pod.containers and wanted not in pod.containers:
            self._notify(f"{pod.replica} has no container {wanted}; it has {', '.join(pod.containers)}")

    def _take(self, pod: Pod, gone: bool) -> None:
        """Note the newest state of a pod, and begin to read its log once the container has started."""
        new = _PodLog(self._api, self._followed.job.namespace, pod, self._query, self._notify)
        log = self._known.setdefault(pod.uid, new)
        log.update(pod, gone)
        if pod.started and not gone and pod.uid not in self._readers:
            self._readers[pod.uid] = asyncio.create_task(self._guarded(self._read(log)))

    async def _read(self, log: _PodLog) -> None:
        async with aclosing(log.follow()) as lines:
            async for line in lines:
                await self._queue.put(line)
                self._lines_read += 1

    async def _await_end(self) -> None:
        """Returns when the job has ended and the logs are read; JobDeleted if the job is deleted before its end."""
        async with aclosing(self._jobs.changes()) as changes:
            async for change in changes:
                there = self._followed.take(change)
                if self._followed.job.finished or not there:
                    break
        await self._last_lines()
        if not self._followed.job.finished:
            raise JobDeleted(f"job {self._followed.job.name} was deleted while its logs were followed")
        await self._queue.put(None)

    async def _last_lines(self) -> None:
        await self._listed.wait()
        if not self._readers:
            return
        _, unfinished = await asyncio.wait(self._readers.values(), timeout=LAST_LINES_SECONDS)
        ending = {task for uid, task in self._readers.items() if task in unfinished and self._known[uid].pod.terminated}
        for uid, task in self._readers.items():
            if task in unfinished - ending:
                self._notify(f"{self._known[uid].pod.replica} still runs; its further lines are not followed")
        ending = await self._progressing(ending)
        if ending:
            # The connection of a silent log may be dead.
            silent = [uid for uid, task in self._readers.items() if task in ending]
            ending = await self._progressing({self._reopened(uid) for uid in silent})
        for uid, task in self._readers.items():
            if task in ending:
                self._notify(f"{self._known[uid].pod.replica}: the log could not be read to its end")

    async def _progressing(self, ending: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
        """Wait for the readers as long as lines come; those that have not ended."""
        read = -1
        # A log of hours takes its time, and so does a reader who pages through it.
        while ending and (self._lines_read != read or self._queue.full()):
            read = self._lines_read
            _, ending = await asyncio.wait(ending, timeout=LAST_LINES_SECONDS)
        return ending

    def _reopened(self, uid: str) -> asyncio.Task[None]:
        """A new reader of the log, which continues where the one before stood."""
        self._readers[uid].cancel()
        self._readers[uid] = asyncio.create_task(self._guarded(self._read(self._known[uid])))
        return self._readers[uid]
