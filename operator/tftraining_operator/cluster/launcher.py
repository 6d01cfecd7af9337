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
from tftraining_operator.cluster.pace import CALM, Pace, Turns
from tftraining_operator.model.observed import Heard, Pod
from tftraining_operator.model.report import Report, parse_report

logger = logging.getLogger(__name__)
PATIENCE = 2.0
# A launcher holds a long poll for at most so long, and then answers with the training's progress.
HANGING_SECONDS = 15.0
# The report of a gang of 10,000, the largest allowed, has 2 MiB; that of a small gang a few KiB. At most CONCURRENCY
# large answers are in memory at once; of each the operator keeps a few KiB and the names of the finished members.
LONGEST_ANSWER = 4 * 1024 * 1024
SMALL_ANSWER = 64 * 1024
CONCURRENCY = 16
# Through the API server's proxy each long poll holds a connection of the operator to the API server.
MOST_PROXIED = 16
# Open files reserved for other connections: those of the API server, the metrics scrapers and the kubelet.
OTHER_FILES = 200
# After so many requests in a row without an answer the last report is dropped as outdated.
MOST_SILENCES = 3


class Target(Frozen, frozen=True):
    """The pod to ask: the chief's, with its UID (`uid`) and its job's (`job`). A change of `mark` (the job's phase and
    ready count) triggers a request at once."""

    uid: str
    job: str
    namespace: str
    pod: str
    ip: str
    mark: str


# Fetches /status of a target. A non-empty revision makes it a long poll, answered when the revision has changed.
Fetch = Callable[[Target, str], Awaitable[bytes]]


def target(job: Job, status: Status, pods: tuple[Pod, ...]) -> Target | None:
    """The launcher to ask about a job with this status; None if there is none."""
    unasked = job.deleting or not job.ours or status.phase not in ("Starting", "Running", "Restarting")
    if job.spec is None or not job.spec.in_place or unasked:
        return None
    for pod in pods:
        chief = pod.replica == job.spec.chief and pod.attempt == status.attempt
        if chief and pod.running and pod.ip:
            return Target(pod.uid, job.uid, job.key.namespace, pod.name, pod.ip, f"{status.phase} {status.ready}")
    return None


class _Followed:
    """One followed job. `known` is the revision of the last answer; with "" the launcher answers at once."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.heard: Heard | None = None
        self.known = ""
        self.silences = 0
        self.pace = Pace()
        self.wake = asyncio.Event()
        self.hanging: asyncio.Timeout | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def silent(self) -> bool:
        """Whether the last MOST_SILENCES requests got no answer."""
        return self.silences >= MOST_SILENCES

    def turn_to(self, target: Target) -> None:
        """Ask this target from now on, starting at once. Unanswered requests to an earlier pod do not count."""
        self.silences = self.silences if self.target.uid == target.uid else 0
        self.target, self.known = target, ""
        self.pace.begin_again()
        self.wake.set()
        if self.hanging is not None and not self.hanging.expired():
            self.hanging.reschedule(asyncio.get_running_loop().time())


class Launchers:
    """The reports of the chiefs' launchers, by job. Calls `changed` with each job whose report has changed; at most
    `most_hanging` jobs have a long poll at a time."""

    def __init__(self, fetch: Fetch, changed: Callable[[Key], None], most_hanging: int) -> None:
        self._fetch = fetch
        self._changed = changed
        self._followed: dict[Key, _Followed] = {}
        self._turns = Turns[Key](most_hanging, self._call)

    @property
    def followed(self) -> int:
        """The number of followed jobs."""
        return len(self._followed)

    def heard(self, key: Key) -> Heard | None:
        """The last report of the job's launcher."""
        return self._followed[key].heard if key in self._followed else None

    def silent(self, key: Key) -> bool:
        """Whether the job's launcher does not answer."""
        return key in self._followed and self._followed[key].silent

    def follow(self, key: Key, target: Target | None) -> None:
        """Ask the target from now on, at once if it has changed; stop asking if it is None."""
        known = self._followed.get(key)
        if target is None:
            if known is not None:
                self._stop(self._followed.pop(key))
                self._turns.give(key)
        elif known is None:
            followed = self._followed[key] = _Followed(target)
            followed.task = asyncio.create_task(self._ask_again_and_again(key, followed))
        elif known.target != target:
            known.turn_to(target)

    async def close(self) -> None:
        """Stop following all jobs."""
        tasks = [self._stop(each) for each in self._followed.values()]
        self._followed.clear()
        await asyncio.gather(*(each for each in tasks if each is not None), return_exceptions=True)

    def _stop(self, followed: _Followed) -> asyncio.Task[None] | None:
        if followed.task is not None:
            followed.task.cancel()
        return followed.task

    def _call(self, key: Key) -> None:
        if key in self._followed:
            self._followed[key].wake.set()

    async def _ask_again_and_again(self, key: Key, followed: _Followed) -> None:
        while True:
            followed.wake.clear()
            try:
                await self._ask(key, followed)
            except Exception:
                logger.exception("%s: internal error while reading the status of its launcher", key)
            with suppress(TimeoutError):
                # Not wait_for: in Python 3.11 it loses a cancellation that coincides with the wake-up.
                async with asyncio.timeout(followed.pace.pause):
                    await followed.wake.wait()

    async def _ask(self, key: Key, followed: _Followed) -> None:
        before, was_silent = followed.heard, followed.silent
        known = self._known_if_its_turn(key, followed)
        question = _Question(followed.target, known, not followed.known, asyncio.get_running_loop().time())
        try:
            report = await self._answer(followed, question)
        except _Interrupted:
            return
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            self._note_silence(key, followed, error)
        else:
            self._note_answer(followed, question, report)
        finally:
            if known:
                self._turns.give(key)
        if (followed.heard, followed.silent) != (before, was_silent):
            self._changed(key)

    def _known_if_its_turn(self, key: Key, followed: _Followed) -> str:
        if not followed.known:
            self._turns.give(key)
            return ""
        return followed.known if self._turns.take(key) else ""

    async def _answer(self, followed: _Followed, question: "_Question") -> Report:
        """The next report; _Interrupted if the target has changed meanwhile."""
        hanging = asyncio.timeout(None)
        try:
            async with hanging:
                followed.hanging = hanging if question.known else None
                text = await self._fetch(question.target, question.known)
        except TimeoutError:
            if hanging.expired():
                raise _Interrupted from None
            raise
        finally:
            followed.hanging = None
        return _of_job(parse_report(text), question.target.job)

    def _note_answer(self, followed: _Followed, question: "_Question", report: Report) -> None:
        before, uid = followed.heard, question.target.uid
        after = asyncio.get_running_loop().time() - question.began
        if question.is_waited_for(report, after):
            followed.pace.note_change(after)
        else:
            followed.pace.note_poll(before is None or before.uid != uid or _has_changed(before.report, report))
        followed.heard, followed.silences = Heard(uid, report), 0
        # If the target has changed meanwhile, the next request must be answered at once.
        followed.known = report.revision if followed.target == question.target else ""

    def _note_silence(self, key: Key, followed: _Followed, error: Exception) -> None:
        followed.silences += 1
        followed.known = ""
        followed.pace.note_silence()
        if followed.silences == MOST_SILENCES:
            logger.info("%s: the launcher in %s does not answer: %r", key, followed.target.pod, error)
            followed.heard = None


class _Question(NamedTuple):
    """One request: target, `known` revision ("" for an answer at once), whether it is the `first`, and start time."""

    target: Target
    known: str
    first: bool
    began: float

    def is_waited_for(self, report: Report, after: float) -> bool:
        """Whether this launcher holds long polls: it has answered with a new revision, or held the request until the
        time was over. An old launcher cannot; a launcher with too many clients answers some at once."""
        waited = self.known and (report.revision != self.known or after >= CALM)
        return bool(report.revision and (self.first or waited))


class _Interrupted(Exception):
    """The request in progress is obsolete."""


def _of_job(report: Report, uid: str) -> Report:
    """The report; ValueError if it is another job's: chiefs on one host's network share its address, and a released
    address may be assigned to another pod."""
    if report.job.uid not in ("", uid):
        raise ValueError("a launcher of another job answered")
    return report


def _has_changed(old: Report, new: Report) -> bool:
    """Whether more than the progress differs, or soon will, as the gang is not training."""
    return new.phase != "Training" or msgspec.structs.replace(new, progress=old.progress) != old


class Direct:
    """The connection to pods from inside the cluster. Only the limit of open files bounds the concurrent requests, so
    an unreachable pod delays no other. `most_hanging` leaves some for requests that are answered at once."""

    def __init__(self) -> None:
        most = max(2 * CONCURRENCY, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - OTHER_FILES)
        self.most_hanging = most * 3 // 4
        self._large = asyncio.Semaphore(CONCURRENCY)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=most, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )

    async def fetch(self, target: Target, known: str) -> bytes:
        """GET /status from the pod; raises OSError, aiohttp's errors, TimeoutError or ValueError on failure."""
        host = ip_address(target.ip)
        url = f"http://{f'[{host}]' if isinstance(host, IPv6Address) else host}:{STATUS_PORT}/status"
        query, patience = _query(known), _patience(known)
        async with self._session.get(url, params=query, timeout=patience, allow_redirects=False) as response:
            if response.status != 200:
                raise ValueError(f"HTTP status {response.status}")
            async with asyncio.timeout(PATIENCE):
                return await self._read(response)

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        # A bytearray: `bytes` would be copied for each chunk, and the sender chooses how small the chunks are.
        body = bytearray()
        async with AsyncExitStack() as held:
            async for chunk in response.content.iter_any():
                if len(body) <= SMALL_ANSWER < len(body) + len(chunk):
                    await held.enter_async_context(self._large)
                body += chunk
                if len(body) > LONGEST_ANSWER:
                    raise ValueError(f"the answer is longer than {LONGEST_ANSWER} bytes")
        return bytes(body)

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()


def through(api: Api) -> Fetch:
    """The connection to pods from outside the cluster: the API server's proxy, with the right to get pods/proxy."""
    limit = asyncio.Semaphore(CONCURRENCY)

    async def fetch(target: Target, known: str) -> bytes:
        path = f"/api/v1/namespaces/{target.namespace}/pods/{target.pod}:{STATUS_PORT}/proxy/status"
        read = partial(api.read, path, LONGEST_ANSWER, _patience(known), list(_query(known).items()))
        if known:
            return await read()
        async with limit:
            return await read()

    return fetch


def _query(known: str) -> dict[str, str]:
    """The query of a long poll, without the list of members; launchers of older versions send the list all the same."""
    if not known:
        return {}
    return {"changedSince": known, "timeoutSeconds": f"{HANGING_SECONDS:g}", "members": "false"}


def _patience(known: str) -> aiohttp.ClientTimeout:
    hanging = HANGING_SECONDS if known else 0.0
    return aiohttp.ClientTimeout(total=hanging + PATIENCE, sock_connect=PATIENCE)
