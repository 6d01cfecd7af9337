"""The client for programs with an event loop. `tftraining_client.Client` is the same without one."""

import asyncio
import builtins
import copy
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tftraining.launch.roles import ROLES
from tftraining_api.kube.api import ApiError, Query
from tftraining_api.model.names import ANNOTATION_RESTARTED_AT, CONTAINER, KIND, LABEL_JOB
from tftraining_api.model.spec import Manifest
from tftraining_client.cluster.api_errors import as_user_error, is_unknown_name, no_subresource, unknown_job
from tftraining_client.cluster.awaited import check_possible, failure, parse_awaited
from tftraining_client.cluster.connection import Connection, connect
from tftraining_client.cluster.followed_job import FollowedJob
from tftraining_client.cluster.models import Event, Job, JobChange, LogLine, Pod
from tftraining_client.cluster.paths import collection, core_path, jobs_path, object_path
from tftraining_client.cluster.pod_logs import Follower, LogQuery, read_logs
from tftraining_client.cluster.snapshot import EVENTS, Snapshot, SnapshotFollower, sorted_events, sorted_pods
from tftraining_client.cluster.submission import Submission, create, in_place_of, prepare
from tftraining_client.cluster.watching import Watch
from tftraining_client.errors import JobDeleted, JobNotFound, NoCustomResource, PermissionDenied, UserError, WaitTimeout
from tftraining_client.history import History

if TYPE_CHECKING:
    from tftraining_client.cluster.job_files import JobFiles
    from tftraining_client.code import Package

logger = logging.getLogger(__name__)
DELETIONS = 16  # at a time
LOOK_SECONDS = 10.0  # for the first look of a wait, however short its timeout is
POLL_SECONDS = 1.0


class AsyncClient:
    """The jobs of a cluster. Every method raises a UserError whose message names the problem and the fix.

    Without arguments: the current context of the kubeconfig and its namespace, in a pod its service account. `notify`
    is called with messages for a person, such as an interrupted connection; by default they are logged. `impersonate`
    has the fields `as`, `as-groups` and `as-uid` of a kubeconfig's user, and goes before them. `requests` is called
    with a line about each request.
    """

    def __init__(
        self,
        *,
        context: str | None = None,
        kubeconfig: str | None = None,
        namespace: str | None = None,
        notify: Callable[[str], None] = logger.warning,
        impersonate: Mapping[str, Any] | None = None,
        requests: Callable[[str], None] | None = None,
    ) -> None:
        self._connect = partial(connect, context, kubeconfig, impersonate or {}, requests)
        self._namespace = namespace
        self._notify = notify
        self._connection: Connection | None = None
        self._deletions = asyncio.Semaphore(DELETIONS)
        # The client that has the connection, if it is another one.
        self._shared: AsyncClient | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._shared is None and self._connection is not None:
            await self._connection.api.close()
            self._connection = None

    async def connection(self) -> Connection:
        """The connection, which is made at the first use."""
        if self._shared is not None:
            return await self._shared.connection()
        if self._connection is None:
            self._connection = await self._connect()
        return self._connection

    async def submit(  # noqa: PLR0913  the options of `tftj submit`
        self,
        manifest: Mapping[str, Any] | str | Path | Submission,
        *,
        job: str | None = None,
        dry_run: bool = False,
        code: str | Path | None = None,
        git: str | None = None,
        git_secret: str | None = None,
        replaces: Job | None = None,
        progress: Callable[[int, int], None] = lambda sent, size: None,
    ) -> Job:
        """Create a job from a manifest, or from a file, with the ConfigMaps beside it.

        `job` chooses one of several jobs of a file. `code` is a directory with the program, `git` a commit (URL@SHA),
        `git_secret` the Secret of a private repository. The API server refuses unknown fields. The job goes into the
        namespace that its manifest names, otherwise into that of the client. A directory of more than 900 KiB as an
        archive goes into the job's storage: `progress` is called with the bytes sent so far, and with all.
        `replaces` is a job of the same name, which is deleted once the API server has accepted the new one; that one
        resumes from its backup.
        """
        submission = (
            manifest
            if isinstance(manifest, Submission)
            else prepare(manifest, self._notify, job=job, code=code, git=git, git_secret=git_secret)
        )
        self._check_namespace(submission.namespace)
        connection, namespace = await self.connection(), submission.namespace or await self.own_namespace()
        if replaces is not None:
            if (submission.job.get("metadata") or {}).get("name") != replaces.name or replaces.namespace != namespace:
                raise UserError(f"the manifest is of another job than {replaces.name} in {replaces.namespace}")
            submission = in_place_of(submission, replaces.raw)
        send = partial(self._upload, connection, progress)
        room = partial(self._make_room, replaces) if replaces is not None else None
        with _translated(connection):
            return Job.of(await create(connection.api, namespace, submission, dry_run, send, room))

    async def get(self, name: str) -> Job:
        """The job; JobNotFound with the nearest names if there is none."""
        return Job.of(await self._named("GET", name))

    async def list(self, *, all_namespaces: bool = False, selector: str = "") -> builtins.list[Job]:
        """The jobs of the namespace, or of all, sorted by namespace and name."""
        connection = await self.connection()
        path = jobs_path("" if all_namespaces else await self.own_namespace())
        with _translated(connection):
            raws, _ = await connection.api.list(path, [("labelSelector", selector)] if selector else [])
        return sorted((Job.of(raw) for raw in raws), key=lambda job: (job.namespace, job.name))

    async def watch(
        self,
        name: str | None = None,
        *,
        all_namespaces: bool = False,
        connected: Callable[[str], None] | None = None,
    ) -> AsyncGenerator[JobChange, None]:
        """The present jobs as ADDED, and each change after that. Without end, and over disconnections.

        `connected` is called with "" whenever the connection stands, and with the problem when it is interrupted;
        without it `notify` gets the problem.
        """
        connection = await self.connection()
        path = jobs_path("" if all_namespaces else await self.own_namespace())
        with _translated(connection):
            async with aclosing(
                self._watch(connection, path, _by_name(name), connected=connected).changes()
            ) as changes:
                async for change in changes:
                    if change.type != "LISTED":
                        yield JobChange(change.type, Job.of(change.object))

    async def wait(self, name: str, until: str = "succeeded", timeout: float | None = None) -> Job:  # noqa: ASYNC109  as in threading
        """Wait for a state: succeeded, failed, finished, running, suspended or epoch=NUMBER.

        Raises JobFailed (with reason and log tail) or JobEnded as soon as the state cannot be reached any more,
        JobDeleted, and WaitTimeout after `timeout` seconds.
        """
        awaited, deadline = parse_awaited(until), None
        if timeout is not None:
            deadline = asyncio.get_running_loop().time() + timeout
        try:
            # A timeout of 0 asks once, and the answer takes its time.
            async with asyncio.timeout(timeout if timeout is None else max(timeout, LOOK_SECONDS)):
                job = await self.get(name)
                if awaited.reached(job) and not (awaited.state == "suspended" and await self._has_pods(job)):
                    return job
                check_possible(awaited, job)
            async with asyncio.timeout_at(deadline):
                async with aclosing(self._states(job)) as states:
                    async for state in states:
                        if awaited.reached(state):
                            await self._await_pods(state if awaited.state == "suspended" else None)
                            return state
                        check_possible(awaited, state)
                raise JobDeleted(f"job {name} was deleted before it was {awaited}")
        except TimeoutError as error:
            raise WaitTimeout(f"job {name} was not {awaited} after {timeout:g} s") from error

    async def logs(  # noqa: PLR0913  the options of `tftj logs`
        self,
        name: str,
        *,
        follow: bool = False,
        role: str = "",
        index: int | None = None,
        attempt: int | None = None,
        previous: bool = False,
        tail: int | None = None,
        since: int | None = None,
        container: str = CONTAINER,
    ) -> AsyncGenerator[LogLine, None]:
        """The lines of all replicas, in the order of time; with `since` those of the last seconds.

        With `follow` until the job has ended, over restarts and new pods; each line comes once. Raises JobFailed after
        the last line if the job has failed.
        """
        connection, namespace = await self.connection(), await self.own_namespace()
        query = LogQuery(role, index, attempt, previous, tail, since, container)
        followed = FollowedJob(await self.get(name))
        with _translated(connection):
            if follow:
                query.check(followed.job)
                pods = self._watch(connection, core_path(namespace, "pods"), [("labelSelector", query.selector(name))])
                jobs = self._watch(connection, jobs_path(namespace), _by_name(name))
                lines = Follower(connection.api, followed, query, self._notify, jobs, pods).lines()
            else:
                lines = read_logs(connection.api, followed.job, query, self._notify)
            async with aclosing(lines):
                async for line in lines:
                    yield line
        # Not read again: a job with ttlSecondsAfterFinished 0 may be gone.
        if follow and followed.job.failed:
            raise failure(followed.job)

    async def suspend(self, name: str) -> Job:
        """Delete the job's pods; the backups stay."""
        await self._unfinished(name)
        return Job.of(await self._named("PATCH", name, {"spec": {"runPolicy": {"suspend": True}}}))

    async def resume(self, name: str) -> Job:
        """Let a suspended job continue from its last backup."""
        await self._unfinished(name)
        return Job.of(await self._named("PATCH", name, {"spec": {"runPolicy": {"suspend": False}}}))

    async def restart(self, name: str) -> Job:
        """Restart the gang in new pods from its last backup, free of charge. UserError for a job without a gang."""
        job = await self._unfinished(name)
        if job.suspended:
            raise UserError(f"job {name} is suspended: resume it instead")
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        return Job.of(await self._named("PATCH", name, {"metadata": {"annotations": {ANNOTATION_RESTARTED_AT: now}}}))

    async def scale(self, name: str, replicas: int) -> None:
        """Change the number of workers."""
        await self._unfinished(name)
        await self._named("PATCH", name, {"spec": {"replicas": replicas}}, subresource="scale")

    async def delete(self, name: str, *, wait: bool = False) -> None:
        """Delete the job and its pods. With `wait`, return when the job and its pods are gone."""
        async with self._deletions:
            job = await self.get(name)
            await self._delete(job)
        if wait:
            await self._await_deletion(job)

    async def pods(self, name: str | None = None, *, all_namespaces: bool = False) -> tuple[Pod, ...]:
        """The pods of the job, in the order of the replicas. Without a name those of all jobs, job by job."""
        connection = await self.connection()
        path = core_path("" if all_namespaces else await self.own_namespace(), "pods")
        with _translated(connection):
            raws, _ = await connection.api.list(path, _of_jobs(name))
        return tuple(sorted(sorted_pods(map(Pod.of, raws)), key=lambda pod: (pod.namespace, pod.job)))

    async def events(self, name: str) -> tuple[Event, ...]:
        """The events about the job, the oldest first."""
        connection, job = await self.connection(), await self.get(name)
        with _translated(connection):
            raws, _ = await connection.api.list(core_path(job.namespace, "events"), _about(job))
        return sorted_events(Event.of(raw) for raw in raws)

    async def snapshot(self, name: str) -> Snapshot:
        """The job with its pods and events as they are now. `hidden` names what the caller may not list."""
        connection, job = await self.connection(), await self.get(name)
        hidden = []

        async def there(kind: str, query: Query) -> builtins.list[Manifest]:
            try:
                return (await connection.api.list(core_path(job.namespace, kind), query))[0]
            except ApiError as error:
                if error.status != 403:
                    raise
                hidden.append(kind)
                return []

        with _translated(connection):
            pods, events = await asyncio.gather(there("pods", _of_jobs(name)), there("events", _about(job)))
        own = sorted_pods(pod for pod in map(Pod.of, pods) if pod.is_of(job.uid))
        return Snapshot(job, own, sorted_events(map(Event.of, events))[-EVENTS:], tuple(sorted(hidden)))

    async def snapshots(self, name: str) -> AsyncGenerator[Snapshot, None]:
        """The job with its pods and events: as they are now, and after each change."""
        connection, namespace = await self.connection(), await self.own_namespace()
        job = await self.get(name)
        with _translated(connection):
            jobs = self._watch(connection, jobs_path(namespace), _by_name(name))
            pods = self._watch(connection, core_path(namespace, "pods"), [("labelSelector", f"{LABEL_JOB}={name}")])
            events = self._watch(connection, core_path(namespace, "events"), _about(job), events=True)
            async with aclosing(SnapshotFollower(job, jobs, pods, events).snapshots()) as snapshots:
                async for snapshot in snapshots:
                    yield snapshot

    async def history(self, name: str, *, namespace: str | None = None) -> History:
        """The curves of the job's metrics and its restarts, from the status: at most 8 KiB, of fewer reports than the
        program has made. Empty before the first report, and if the definition of the resource is older."""
        raw = await self._named("GET", name, namespace=namespace)
        return History.of((raw.get("status") or {}).get("history"))

    async def _states(self, job: Job) -> AsyncGenerator[Job, None]:
        """The job as it is now and after each change, until it is gone."""
        connection, followed = await self.connection(), FollowedJob(job)
        with _translated(connection):
            async with aclosing(self._watch_job(connection, job).changes()) as changes:
                async for change in changes:
                    there = followed.take(change)
                    if change.type != "LISTED":
                        yield followed.job
                    if not there:
                        return

    async def _unfinished(self, name: str) -> Job:
        """The job; UserError for one that has ended, which no change wakes."""
        job = await self.get(name)
        if job.finished:
            raise UserError(
                f"job {name} has ended ({job.phase}): `tftj submit --replace -f FILE` resumes from its backup"
            )
        return job

    async def _upload(
        self, connection: Connection, progress: Callable[[int, int], None], checked: Manifest, package: "Package"
    ) -> None:
        """Bring a large program into the storage of a job that the API server has checked."""
        from tftraining_client.cluster.code_upload import upload  # noqa: PLC0415  only for large programs

        job = Job.of(checked)
        watches = partial(self._pod_watches, connection, job.namespace)
        await upload(connection.api, job, package, self._notify, progress, watches)

    async def _delete(self, job: Job) -> None:
        """Delete this job, and not a later one of the name."""
        options = {"propagationPolicy": "Background", "preconditions": {"uid": job.uid}}
        await self._named("DELETE", job.name, options)

    async def _await_deletion(self, job: Job) -> None:
        try:
            await self._await_absence(job)
        except PermissionDenied:
            # A role may have the right to get a job, and not to list the jobs.
            with suppress(JobNotFound):
                while (await self.get(job.name)).uid == job.uid:  # noqa: ASYNC110  it may not watch
                    await asyncio.sleep(POLL_SECONDS)
        await self._await_pods(job)

    async def _make_room(self, old: Job) -> None:
        """Delete the job whose place a new one takes, and wait until its pods have ended."""
        there = self.in_namespace(old.namespace)
        self._notify(f"job {old.name} is deleted; the new one is created when its pods have ended")
        with suppress(JobNotFound):
            await there._delete(old)
        await there._await_deletion(old)

    async def _has_pods(self, job: Job) -> bool:
        return any(job.uid in each.owners and each.role in ROLES for each in (await self.snapshot(job.name)).pods)

    async def _await_pods(self, job: Job | None) -> None:
        """Wait until the pods that the job has now have ended; not if the caller may not list pods."""
        if job is None:
            return
        connection, there, listed = await self.connection(), set[str](), False
        watch = self._watch(connection, core_path(job.namespace, "pods"), _of_jobs(job.name))
        try:
            async with aclosing(watch.changes()) as changes:
                async for change in changes:
                    if change.type == "LISTED":
                        listed = True
                    elif change.type == "DELETED":
                        there.discard(change.object["metadata"]["uid"])
                    elif not listed and job.uid in (pod := Pod.of(change.object)).owners and pod.role in ROLES:
                        there.add(pod.uid)
                    if listed and not there:
                        return
        except ApiError as error:
            if error.status != 403:
                raise as_user_error(error, connection.server, connection.context) from error
            self._notify(f"the pods of job {job.name} may still end: you may not list pods")

    async def _await_absence(self, job: Job) -> None:
        connection, there = await self.connection(), False
        with _translated(connection):
            async with aclosing(self._watch_job(connection, job).changes()) as changes:
                async for change in changes:
                    if change.type != "LISTED":
                        there = change.type != "DELETED" and change.object["metadata"]["uid"] == job.uid
                    if change.type in ("LISTED", "DELETED") and not there:
                        return

    def in_namespace(self, namespace: str, notify: Callable[[str], None] | None = None) -> "AsyncClient":
        """A client of another namespace with the connection of this one, which closes it."""
        other = copy.copy(self)
        other._shared = self._shared or self
        other._namespace = namespace
        other._notify = notify or self._notify
        return other

    async def pod_metrics(self, name: str | None = None, *, all_namespaces: bool = False) -> builtins.list[Manifest]:
        """What the pods of the job use, without a name those of all jobs, as the metrics server (metrics.k8s.io) tells
        it."""
        connection = await self.connection()
        path = collection("/apis/metrics.k8s.io/v1beta1", "" if all_namespaces else await self.own_namespace(), "pods")
        with _translated(connection):
            try:
                found, _ = await connection.api.list(path, _of_jobs(name))
                return found
            except ApiError as error:
                if error.status not in (404, 503):
                    raise
        raise UserError(
            f"the cluster of context {connection.context} has no metrics.k8s.io that answers: install metrics-server, "
            "or wait until it is ready"
        )

    async def tensorboard(self, name: str, *, port: int = 0, image: str = "") -> AsyncGenerator[str, None]:
        """Serve TensorBoard over the job's storage on a loopback port (0: any free one); yields its address.

        The generator ends with UserError when its pod ends; closing the generator deletes the pod.
        """
        from tftraining_client.cluster.tensorboard import serve  # noqa: PLC0415  only for TensorBoard

        connection, job = await self.connection(), await self.get(name)

        def watch(path: str, pod: str) -> Watch:
            return self._watch(connection, path, _by_name(pod))

        with _translated(connection):
            async with aclosing(serve(connection.api, job, image, port, self._notify, watch)) as addresses:
                async for address in addresses:
                    yield address

    @asynccontextmanager
    async def files(self, name: str) -> AsyncIterator["JobFiles"]:
        """The files in the job's storage, by a pod that goes with the block."""
        from tftraining_client.cluster.job_files import job_files  # noqa: PLC0415  only for cp and ls

        connection, job = await self.connection(), await self.get(name)
        watches = partial(self._pod_watches, connection, job.namespace)
        with _translated(connection):
            async with job_files(connection.api, job, self._notify, watches) as files:
                yield files

    async def tfjob(self, name: str) -> Manifest:
        """A TFJob of Kubeflow's operator, as the API server has it."""
        connection, namespace = await self.connection(), await self.own_namespace()
        with _translated(connection):
            try:
                tfjobs = collection("/apis/kubeflow.org/v1", namespace, "tfjobs")
                return await connection.api.request("GET", object_path(tfjobs, name))
            except ApiError as error:
                if error.status != 404:
                    raise
                unknown = is_unknown_name(error)
        if unknown:
            raise JobNotFound(f"no TFJob {name} in namespace {namespace}")
        raise NoCustomResource(
            f"the cluster of context {connection.context} does not know tfjobs.kubeflow.org/v1: convert a file instead"
        )

    def use_namespace(self, namespace: str) -> None:
        """Take the namespace of a manifest. UserError if the client has another one."""
        self._check_namespace(namespace)
        self._namespace = namespace

    def _check_namespace(self, named: str | None) -> None:
        if named and self._namespace not in (None, named):
            raise UserError(f"the manifest is for namespace {named}, not for {self._namespace}")

    async def own_namespace(self) -> str:
        """The namespace of the client."""
        return self._namespace or (await self.connection()).namespace

    def _watch(
        self,
        connection: Connection,
        path: str,
        query: Query,
        events: bool = False,
        connected: Callable[[str], None] | None = None,
    ) -> Watch:
        def interrupted(error: ApiError) -> None:
            if connected is not None:
                connected(str(as_user_error(error, connection.server, connection.context)))
            else:
                self._notify(f"the watch was interrupted and goes on: {error.message or error.reason}")

        opened = (lambda: connected("")) if connected is not None else None
        return Watch(connection.api, path, query, interrupted, events, opened)

    def _pod_watches(self, connection: Connection, namespace: str, path: str, pod: str) -> tuple[Watch, Watch]:
        """The watches of a pod and of its events."""
        about: Query = [("fieldSelector", f"involvedObject.kind=Pod,involvedObject.name={pod}")]
        events = self._watch(connection, core_path(namespace, "events"), about, events=True)
        return self._watch(connection, path, _by_name(pod)), events

    def _watch_job(self, connection: Connection, job: Job) -> Watch:
        return self._watch(connection, jobs_path(job.namespace), _by_name(job.name))

    async def _named(
        self, method: str, name: str, body: Any = None, subresource: str = "", namespace: str | None = None
    ) -> Manifest:
        """A request about one job; JobNotFound with the nearest names if there is none."""
        if name in ("", ".", "..") or "/" in name:
            raise UserError(f"{name!r} is not the name of a job: use `--namespace NAMESPACE NAME`")
        connection, namespace = await self.connection(), namespace or await self.own_namespace()
        path = object_path(jobs_path(namespace), name, subresource)
        with _translated(connection):
            try:
                return await connection.api.request(method, path, body)
            except ApiError as error:
                if not is_unknown_name(error):
                    raise
                unknown = error
        names = await self._names(namespace)
        # An API server answers so, too, if the definition lacks the subresource.
        raise (
            no_subresource(subresource)
            if subresource and name in (names or ())
            else unknown_job(name, namespace, names)
        ) from unknown

    async def _names(self, namespace: str) -> builtins.list[str] | None:
        """The names of the jobs in the namespace; None if the caller may not list them."""
        connection = await self.connection()
        try:
            raws, _ = await connection.api.list(jobs_path(namespace), [])
        except ApiError:
            return None
        return sorted(raw["metadata"]["name"] for raw in raws)


@contextmanager
def _translated(connection: Connection) -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        raise as_user_error(error, connection.server, connection.context) from error


def _about(job: Job) -> Query:
    """The events about this job, not about an earlier one of the name."""
    about = {"kind": KIND, "name": job.name, "uid": job.uid}
    return [("fieldSelector", ",".join(f"involvedObject.{name}={value}" for name, value in about.items()))]


def _of_jobs(name: str | None) -> Query:
    """The objects with the label of the job, or of any job."""
    return [("labelSelector", LABEL_JOB if name is None else f"{LABEL_JOB}={name}")]


def _by_name(name: str | None) -> Query:
    return [("fieldSelector", f"metadata.name={name}")] if name else []
