"""Requests the report of each job's chief launcher, by long polls that the launcher answers after a change. A launcher
that cannot hold a request is polled instead: often after a change, seldom otherwise.

The answers come from users' pods: their size and duration are bounded, invalid reports are ignored, and redirects,
cookies and compression are not followed. Never decides what a report means, and never uses the API server, except as
the proxy to pods where the operator runs outside the cluster.
"""

import asyncio
import logging
import resource
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

import aiohttp
import msgspec

from tftraining_api.kube.api import Api, ApiError
from tftraining_api.model.job import Job
from tftraining_api.model.names import STATUS_PORT, Key
from tftraining_api.model.spec import Frozen
from tftraining_api.model.status import Status
from tftraining_operator.cluster.poll_schedule import CALM_SECONDS, LongPollTurns, PollSchedule
from tftraining_operator.model.launcher_report import Report, ReportedBackup, ReportedProgress, parse_report
from tftraining_operator.model.observed import LauncherReport, Pod

logger = logging.getLogger(__name__)
TIMEOUT_SECONDS = 2.0
# A launcher holds a long poll for at most so long, and then answers with the training's progress.
LONG_POLL_SECONDS = 15.0
# The report of a gang of 10,000, the largest allowed, has 2 MiB; that of a small gang a few KiB. At most CONCURRENCY
# large answers are in memory at once; of each the operator keeps a few KiB and the names of the finished members.
MAX_ANSWER_BYTES = 4 * 1024 * 1024
SMALL_ANSWER_BYTES = 64 * 1024
CONCURRENCY = 16
# Through the API server's proxy each long poll holds a connection of the operator to the API server.
MAX_PROXIED_LONG_POLLS = 16
# Open files reserved for other connections: those of the API server, the metrics scrapers and the kubelet.
RESERVED_FILES = 200
# After so many requests in a row without an answer the last report is dropped as outdated.
MAX_UNANSWERED = 3


class LauncherEndpoint(Frozen, frozen=True):
    """The pod to ask: the chief's, with its UID (`uid`) and its job's (`job`). A change of `job_state` (the job's phase
    and ready count) triggers a request at once."""

    uid: str
    job: str
    namespace: str
    pod: str
    ip: str
    job_state: str


# Fetches /status of an endpoint. A non-empty revision makes it a long poll, answered when the revision has changed.
Fetch = Callable[[LauncherEndpoint, str], Awaitable[bytes]]


def launcher_endpoint(job: Job, status: Status, pods: tuple[Pod, ...]) -> LauncherEndpoint | None:
    """The launcher to ask about a job with this status; None if there is none."""
    unasked = job.deleting or not job.ours or status.phase not in ("Starting", "Running", "Restarting")
    if job.spec is None or not job.spec.in_place or unasked:
        return None
    for pod in pods:
        chief = pod.replica == job.spec.chief and pod.attempt == status.attempt
        if chief and pod.running and pod.ip and not pod.ended:  # Kueue holds a lost pod beside its successor
            return LauncherEndpoint(
                pod.uid, job.uid, job.key.namespace, pod.name, pod.ip, f"{status.phase} {status.ready}"
            )
    return None


class _Followed:
    """One followed job. `revision` is that of the last answer; with "" the launcher answers at once."""

    def __init__(self, endpoint: LauncherEndpoint) -> None:
        self.endpoint = endpoint
        self.report: LauncherReport | None = None
        self.revision = ""
        self.unanswered = 0
        self.schedule = PollSchedule()
        self.wake = asyncio.Event()
        self.long_poll: asyncio.Timeout | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def silent(self) -> bool:
        """Whether the last MAX_UNANSWERED requests got no answer."""
        return self.unanswered >= MAX_UNANSWERED

    def change_endpoint(self, endpoint: LauncherEndpoint) -> None:
        """Ask this endpoint from now on, starting at once. Unanswered requests to an earlier pod do not count."""
        self.unanswered = self.unanswered if self.endpoint.uid == endpoint.uid else 0
        self.endpoint, self.revision = endpoint, ""
        self.schedule.reset()
        self.wake.set()
        if self.long_poll is not None and not self.long_poll.expired():
            self.long_poll.reschedule(asyncio.get_running_loop().time())


class LauncherReports:
    """The reports of the chiefs' launchers, by job. Calls `changed` with each job whose report has changed, or
    `progressed` if nothing but the step of the present epoch has; at most `max_long_polls` jobs have a long poll at a
    time."""

    def __init__(
        self,
        fetch: Fetch,
        changed: Callable[[Key], None],
        max_long_polls: int,
        progressed: Callable[[Key], None] | None = None,
    ) -> None:
        self._fetch = fetch
        self._changed = changed
        self._progressed = changed if progressed is None else progressed
        self._followed: dict[Key, _Followed] = {}
        self._turns = LongPollTurns[Key](max_long_polls, self._wake_for_long_poll)
        self._resumed = asyncio.Event()
        self._resumed.set()

    def pause(self) -> None:
        """Send no first request to any launcher until `resume`."""
        self._resumed.clear()

    def resume(self) -> None:
        """Send the first requests."""
        self._resumed.set()

    @property
    def followed(self) -> int:
        """The number of followed jobs."""
        return len(self._followed)

    def last_report(self, key: Key) -> LauncherReport | None:
        """The last report of the job's launcher."""
        return self._followed[key].report if key in self._followed else None

    def is_silent(self, key: Key) -> bool:
        """Whether the job's launcher does not answer."""
        return key in self._followed and self._followed[key].silent

    def follow(self, key: Key, endpoint: LauncherEndpoint | None) -> None:
        """Ask the endpoint from now on, at once if it has changed; stop asking if it is None."""
        known = self._followed.get(key)
        if endpoint is None:
            if known is not None:
                self._stop(self._followed.pop(key))
                self._turns.release(key)
        elif known is None:
            followed = self._followed[key] = _Followed(endpoint)
            followed.task = asyncio.create_task(self._poll_until_cancelled(key, followed))
        elif known.endpoint != endpoint:
            known.change_endpoint(endpoint)

    async def close(self) -> None:
        """Stop following all jobs."""
        tasks = [self._stop(each) for each in self._followed.values()]
        self._followed.clear()
        await asyncio.gather(*(each for each in tasks if each is not None), return_exceptions=True)

    def _stop(self, followed: _Followed) -> asyncio.Task[None] | None:
        if followed.task is not None:
            followed.task.cancel()
        return followed.task

    def _wake_for_long_poll(self, key: Key) -> None:
        if key in self._followed:
            self._followed[key].wake.set()

    async def _poll_until_cancelled(self, key: Key, followed: _Followed) -> None:
        await self._resumed.wait()
        while True:
            followed.wake.clear()
            try:
                await self._poll(key, followed)
            except Exception:
                logger.exception("%s: internal error while reading the status of its launcher", key)
            with suppress(TimeoutError):
                # Not wait_for: in Python 3.11 it loses a cancellation that coincides with the wake-up.
                async with asyncio.timeout(followed.schedule.pause):
                    await followed.wake.wait()

    async def _poll(self, key: Key, followed: _Followed) -> None:
        before, was_silent = followed.report, followed.silent
        known = self._revision_if_its_turn(key, followed)
        request = _Request(followed.endpoint, known, not followed.revision, asyncio.get_running_loop().time())
        try:
            report = await self._fetch_report(followed, request)
        except _Superseded:
            return
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            self._note_unanswered(key, followed, error)
        else:
            self._note_answer(followed, request, report)
        finally:
            if known:
                self._turns.release(key)
        if followed.silent != was_silent or _is_news(before, followed.report):
            self._changed(key)
        elif followed.report != before:
            self._progressed(key)

    def _revision_if_its_turn(self, key: Key, followed: _Followed) -> str:
        if not followed.revision:
            self._turns.release(key)
            return ""
        return followed.revision if self._turns.acquire(key) else ""

    async def _fetch_report(self, followed: _Followed, request: "_Request") -> Report:
        """The next report; _Superseded if the endpoint has changed meanwhile."""
        long_poll = asyncio.timeout(None)
        try:
            async with long_poll:
                followed.long_poll = long_poll if request.revision else None
                text = await self._fetch(request.endpoint, request.revision)
        except TimeoutError:
            if long_poll.expired():
                raise _Superseded from None
            raise
        finally:
            followed.long_poll = None
        return _of_job(parse_report(text), request.endpoint.job)

    def _note_answer(self, followed: _Followed, request: "_Request", report: Report) -> None:
        before, uid = followed.report, request.endpoint.uid
        after = asyncio.get_running_loop().time() - request.began
        if request.holds_long_polls(report, after):
            followed.schedule.note_change(after)
        else:
            followed.schedule.note_poll(before is None or before.pod_uid != uid or _has_changed(before.report, report))
        followed.report, followed.unanswered = LauncherReport(uid, report), 0
        # If the endpoint has changed meanwhile, the next request must be answered at once.
        followed.revision = report.revision if followed.endpoint == request.endpoint else ""

    def _note_unanswered(self, key: Key, followed: _Followed, error: Exception) -> None:
        followed.unanswered += 1
        followed.revision = ""
        followed.schedule.note_unanswered()
        if followed.unanswered == MAX_UNANSWERED:
            logger.info("%s: the launcher in %s does not answer: %r", key, followed.endpoint.pod, error)
            followed.report = None


class _Request(NamedTuple):
    """One request: endpoint, known `revision` ("" for an answer at once), whether it is the `first`, and start time."""

    endpoint: LauncherEndpoint
    revision: str
    first: bool
    began: float

    def holds_long_polls(self, report: Report, after: float) -> bool:
        """Whether this launcher holds long polls: it has answered with a new revision, or held the request until the
        time was over. An old launcher cannot; a launcher with too many clients answers some at once."""
        waited = self.revision and (report.revision != self.revision or after >= CALM_SECONDS)
        return bool(report.revision and (self.first or waited))


class _Superseded(Exception):
    """The request in progress is obsolete."""


def _of_job(report: Report, uid: str) -> Report:
    """The report; ValueError if it is another job's, or nobody's: chiefs on one host's network share its address, and a
    released address may be assigned to another pod. The launchers of all versions name their job."""
    if report.job.uid != uid:
        raise ValueError("a launcher of another job answered")
    return report


def _is_news(old: LauncherReport | None, new: LauncherReport | None) -> bool:
    """Whether more has changed than steps, metrics and backups of the present epoch."""
    if old is None or new is None or old.pod_uid != new.pod_uid:
        return old != new
    return _without_steps(old.report) != _without_steps(new.report)


def _without_steps(report: Report) -> Report:
    """The report without the values that change with every step."""
    progress, backup = report.progress, report.backup
    if progress is not None:
        progress = ReportedProgress(epoch=progress.epoch, epochs=progress.epochs)
    if backup is not None:
        backup = ReportedBackup(on=backup.on, reason=backup.reason)
    return msgspec.structs.replace(report, progress=progress, backup=backup, history=None)


def _has_changed(old: Report, new: Report) -> bool:
    """Whether more than the progress differs, or soon will, as the gang is not training."""
    return new.phase != "Training" or msgspec.structs.replace(new, progress=old.progress) != old


class DirectConnection:
    """The connection to pods from inside the cluster. Only the limit of open files bounds the concurrent requests, so
    an unreachable pod delays no other. `max_long_polls` leaves some for requests that are answered at once."""

    def __init__(self) -> None:
        most = max(2 * CONCURRENCY, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - RESERVED_FILES)
        self.max_long_polls = most * 3 // 4
        self._large = asyncio.Semaphore(CONCURRENCY)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=most, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )

    async def fetch(self, endpoint: LauncherEndpoint, known: str) -> bytes:
        """GET /status from the pod; raises OSError, aiohttp's errors, TimeoutError or ValueError on failure."""
        host = ip_address(endpoint.ip)
        url = f"http://{f'[{host}]' if isinstance(host, IPv6Address) else host}:{STATUS_PORT}/status"
        query, patience = _query(known), _timeout(known)
        async with self._session.get(url, params=query, timeout=patience, allow_redirects=False) as response:
            if response.status != 200:
                raise ValueError(f"HTTP status {response.status}")
            async with asyncio.timeout(TIMEOUT_SECONDS):
                return await self._read(response)

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        # A bytearray: `bytes` would be copied for each chunk, and the sender chooses how small the chunks are.
        body = bytearray()
        async with AsyncExitStack() as held:
            async for chunk in response.content.iter_any():
                if len(body) <= SMALL_ANSWER_BYTES < len(body) + len(chunk):
                    await held.enter_async_context(self._large)
                body += chunk
                if len(body) > MAX_ANSWER_BYTES:
                    raise ValueError(f"the answer is longer than {MAX_ANSWER_BYTES} bytes")
        return bytes(body)

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()


def through_api_server(api: Api) -> Fetch:
    """The connection to pods from outside the cluster: the API server's proxy, with the right to get pods/proxy."""
    limit = asyncio.Semaphore(CONCURRENCY)

    async def fetch(endpoint: LauncherEndpoint, known: str) -> bytes:
        path = f"/api/v1/namespaces/{endpoint.namespace}/pods/{endpoint.pod}:{STATUS_PORT}/proxy/status"
        read = partial(api.read, path, MAX_ANSWER_BYTES, _timeout(known), list(_query(known).items()))
        if known:
            return await read()
        async with limit:
            return await read()

    return fetch


def _query(known: str) -> dict[str, str]:
    """The query of a long poll, without the list of members; launchers of older versions send the list all the same."""
    if not known:
        return {}
    return {"changedSince": known, "timeoutSeconds": f"{LONG_POLL_SECONDS:g}", "members": "false"}


def _timeout(known: str) -> aiohttp.ClientTimeout:
    long_poll = LONG_POLL_SECONDS if known else 0.0
    return aiohttp.ClientTimeout(total=long_poll + TIMEOUT_SECONDS, sock_connect=TIMEOUT_SECONDS)
