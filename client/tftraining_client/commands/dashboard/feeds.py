"""What the page shows, kept up to date by watches: one of all jobs, and those of each job that somebody looks at.

A feed has any number of subscribers, and asks the API server for nothing while nothing changes.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from types import TracebackType
from typing import Self

from tftraining_client.cluster.async_client import AsyncClient
from tftraining_client.commands.dashboard.view import View, job_key, job_row, job_view
from tftraining_client.errors import JobDeleted, JobNotFound, UserError

logger = logging.getLogger(__name__)


class Feed:
    """A state that changes, and the subscribers to wake. `problem` says why the state may be old; `broken` is whether
    no change comes any more until `Feeds.retry`."""

    def __init__(self) -> None:
        self.problem = ""
        self.broken = False
        self._subscribers: set[asyncio.Event] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def subscribers(self) -> int:
        """The number of subscribers."""
        return len(self._subscribers)

    @contextmanager
    def subscribed(self) -> Iterator[asyncio.Event]:
        """An event that is set now and after each change."""
        changed = asyncio.Event()
        changed.set()
        self._subscribers.add(changed)
        try:
            yield changed
        finally:
            self._subscribers.discard(changed)

    def start(self) -> None:
        """Begin to follow the cluster, unless that is going on."""
        if self._task is None or self._task.done():
            self.problem, self.broken = "", False
            self._task = asyncio.create_task(self._guarded(self._follow()))

    async def stop(self) -> None:
        """Stop to follow the cluster."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        raise NotImplementedError

    async def _guarded(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except Exception as error:
            if not isinstance(error, UserError):
                logger.exception("the dashboard no longer follows the cluster")
            self.problem, self.broken = str(error) or type(error).__name__, True
            self._wake()

    def _wake(self) -> None:
        for changed in self._subscribers:
            changed.set()


class JobsFeed(Feed):
    """The rows of the present jobs, by their keys. `listed` is whether all of them are there."""

    def __init__(self, client: AsyncClient, all_namespaces: bool) -> None:
        super().__init__()
        self.rows: dict[str, View] = {}
        self.listed = False
        self._fresh = False
        self._client = client
        self._all_namespaces = all_namespaces

    async def _follow(self) -> None:
        self._fresh = False
        changes = self._client.watch(all_namespaces=self._all_namespaces, connected=self._note_connection)
        async with aclosing(changes):
            async for change in changes:
                self._forget_earlier()
                if change.type == "DELETED":
                    self.rows.pop(job_key(change.job), None)
                else:
                    self.rows[job_key(change.job)] = job_row(change.job)
                self._wake()

    def _note_connection(self, problem: str) -> None:
        self._forget_earlier()
        self.problem, self.listed = problem, True
        self._wake()

    def _forget_earlier(self) -> None:
        """Forget the rows of an earlier watch once the new one answers: jobs may have gone meanwhile."""
        if not self._fresh:
            self._fresh, self.rows = True, {}


class JobFeed(Feed):
    """One job with its pods and events; `gone` says why there is none."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        super().__init__()
        self.job: View | None = None
        self.gone = ""
        self._looked_for = ""
        self._client = client
        self._name = name

    def look_again(self, row: View | None) -> None:
        """Follow another job of the name as soon as the list of the jobs has its `row`."""
        known = ("" if self.job is None else self.job["uid"], self._looked_for)
        if self.gone and row is not None and row["uid"] not in known:
            # Once: the list may not know yet that this one is gone too.
            self._looked_for = row["uid"]
            self.start()

    async def _follow(self) -> None:
        try:
            async with aclosing(self._client.snapshots(self._name)) as snapshots:
                async for snapshot in snapshots:
                    self.job, self.gone = job_view(snapshot), ""
                    self._wake()
        except (JobNotFound, JobDeleted) as error:
            self.gone = str(error)
            self._wake()


class Feeds:
    """All feeds of a dashboard. `namespace` is "" for all namespaces; a job of another one is never shown."""

    def __init__(self, client: AsyncClient, namespace: str, context: str) -> None:
        self.namespace = namespace
        self.context = context
        self.client = client
        self.jobs = JobsFeed(client, not namespace)
        self._of_job: dict[tuple[str, str], JobFeed] = {}

    async def __aenter__(self) -> Self:
        self.jobs.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(feed.stop() for feed in (self.jobs, *self._of_job.values())))

    def shows(self, namespace: str) -> bool:
        """Whether the dashboard is about the namespace."""
        return self.namespace in ("", namespace)

    @asynccontextmanager
    async def of_job(self, namespace: str, name: str) -> AsyncIterator[tuple[JobFeed, asyncio.Event]]:
        """The feed of a job, which all who look at the job share, and the event of its changes."""
        key = (namespace, name)
        feed = self._of_job.setdefault(key, JobFeed(self.client.in_namespace(namespace), name))
        feed.start()
        try:
            with feed.subscribed() as changed:
                yield feed, changed
        finally:
            if not feed.subscribers:
                self._of_job.pop(key, None)
                await feed.stop()

    async def retry(self) -> None:
        """Connect anew, with the credentials that the kubeconfig has now."""
        if any(feed.broken for feed in (self.jobs, *self._of_job.values())):
            await self.client.close()
            for feed in (self.jobs, *self._of_job.values()):
                await feed.stop()
                feed.start()
