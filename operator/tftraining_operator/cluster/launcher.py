"""Asks the chief's launcher of each job how it goes: often after a change, seldom when all is calm.

The answers come out of users' pods: their size and the time for them are bounded, what is no report is ignored, and no
redirect, cookie or compression is followed. Never decides what a report means, and never asks the API server, but for
its way into the pod where the operator runs outside the cluster.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from ipaddress import IPv6Address, ip_address

import aiohttp
import msgspec

from tftraining_operator.cluster.api import Api, ApiError, read_bounded
from tftraining_operator.model.job import Job
from tftraining_operator.model.names import STATUS_PORT, Key
from tftraining_operator.model.observed import Heard, Pod
from tftraining_operator.model.report import Report, parse_report
from tftraining_operator.model.spec import Frozen
from tftraining_operator.model.status import Status

logger = logging.getLogger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 15.0
PATIENCE = aiohttp.ClientTimeout(total=2.0)
# A gang of 10,000, the most that a job may have, says 2 MiB. No more than CONCURRENCY answers are held at a time, and
# they are read one after the other: what is kept of each is a few KiB and the names of who has finished.
LONGEST_ANSWER = 4 * 1024 * 1024
CONCURRENCY = 16
# So many questions in a row without an answer, and what was heard before is worth nothing any more.
MOST_SILENCES = 3


class Target(Frozen, frozen=True):
    """Whom to ask: the chief's pod, with its UID and its job's. `mark` is what, when it changes, is worth a question at
    once."""

    uid: str
    job: str
    namespace: str
    pod: str
    ip: str
    mark: str


Fetch = Callable[[Target], Awaitable[bytes]]


def target(job: Job, status: Status, pods: tuple[Pod, ...]) -> Target | None:
    """The launcher to ask about the job as `status` has it; None if there is none to ask."""
    unasked = job.deleting or not job.ours or status.phase not in ("Starting", "Running", "Restarting")
    if job.spec is None or not job.spec.in_place or unasked:
        return None
    for pod in pods:
        chief = pod.replica == job.spec.chief and pod.attempt == status.attempt
        if chief and pod.running and pod.ip:
            return Target(pod.uid, job.uid, job.key.namespace, pod.name, pod.ip, f"{status.phase} {status.ready}")
    return None


class _Followed:
    """One job that is asked about."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.heard: Heard | None = None
        self.silences = 0
        self.pause = FIRST_PAUSE
        self.wake = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    @property
    def silent(self) -> bool:
        """Whether it has not answered for so long that it may never do."""
        return self.silences >= MOST_SILENCES


class Launchers:
    """What the chiefs' launchers say, by job. `changed` is told of each job that there is news of."""

    def __init__(self, fetch: Fetch, changed: Callable[[Key], None]) -> None:
        self._fetch = fetch
        self._changed = changed
        self._followed: dict[Key, _Followed] = {}
        self._limit = asyncio.Semaphore(CONCURRENCY)

    def heard(self, key: Key) -> Heard | None:
        """What the job's launcher last said."""
        return self._followed[key].heard if key in self._followed else None

    def silent(self, key: Key) -> bool:
        """Whether the job's launcher is asked in vain."""
        return key in self._followed and self._followed[key].silent

    def follow(self, key: Key, target: Target | None) -> None:
        """Ask the target from now on, at once if anything about it is new; nobody if it is None."""
        known = self._followed.get(key)
        if target is None:
            if known is not None:
                self._stop(self._followed.pop(key))
        elif known is None:
            followed = self._followed[key] = _Followed(target)
            followed.task = asyncio.create_task(self._ask_again_and_again(key, followed))
        elif known.target != target:
            # What an earlier pod did not answer says nothing of this one.
            known.silences = known.silences if known.target.uid == target.uid else 0
            known.target, known.pause = target, FIRST_PAUSE
            known.wake.set()

    async def close(self) -> None:
        """Ask nobody any more."""
        tasks = [self._stop(each) for each in self._followed.values()]
        self._followed.clear()
        await asyncio.gather(*(each for each in tasks if each is not None), return_exceptions=True)

    def _stop(self, followed: _Followed) -> asyncio.Task[None] | None:
        if followed.task is not None:
            followed.task.cancel()
        return followed.task

    async def _ask_again_and_again(self, key: Key, followed: _Followed) -> None:
        while True:
            followed.wake.clear()
            try:
                await self._ask(key, followed)
            except Exception:
                logger.exception("%s: what its launcher says could not be taken in", key)
            try:
                # Not wait_for: in Python 3.11 that forgets a cancellation that comes with the awakening.
                async with asyncio.timeout(followed.pause):
                    await followed.wake.wait()
            except TimeoutError:
                followed.pause = min(LONGEST_PAUSE, followed.pause * 2)

    async def _ask(self, key: Key, followed: _Followed) -> None:
        asked, before, was_silent = followed.target, followed.heard, followed.silent
        try:
            async with self._limit:
                report = _of_job(parse_report(await self._fetch(asked)), asked.job)
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            self._note_silence(key, followed, error)
        else:
            followed.silences = 0
            followed.heard = Heard(asked.uid, report)
            if before is None or before.uid != asked.uid or _has_changed(before.report, report):
                followed.pause = FIRST_PAUSE
        if (followed.heard, followed.silent) != (before, was_silent):
            self._changed(key)

    def _note_silence(self, key: Key, followed: _Followed, error: Exception) -> None:
        followed.silences += 1
        if followed.silences == MOST_SILENCES:
            logger.info("%s: the launcher in %s does not say how it goes: %r", key, followed.target.pod, error)
            followed.heard = None


def _of_job(report: Report, uid: str) -> Report:
    """The report; ValueError if it is another job's: chiefs that use one host's network share its address, and one that
    was given back may be given to another pod."""
    if report.job.uid not in ("", uid):
        raise ValueError("the launcher of another job answered")
    return report


def _has_changed(old: Report, new: Report) -> bool:
    """Whether there is more to it than progress, or soon will be."""
    return new.phase != "Training" or msgspec.structs.replace(new, progress=old.progress) != old


class Direct:
    """The way to pods from inside the cluster."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONCURRENCY, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=PATIENCE,
            auto_decompress=False,
            trust_env=False,
        )

    async def fetch(self, target: Target) -> bytes:
        """GET /status from the pod; an OSError, aiohttp's errors, TimeoutError or ValueError if that cannot be."""
        host = ip_address(target.ip)
        url = f"http://{f'[{host}]' if isinstance(host, IPv6Address) else host}:{STATUS_PORT}/status"
        async with self._session.get(url, allow_redirects=False) as response:
            if response.status != 200:
                raise ValueError(f"HTTP status {response.status}")
            return await read_bounded(response, LONGEST_ANSWER)

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()


def through(api: Api) -> Fetch:
    """The way to pods from outside the cluster: the API server's proxy, which needs the right to get pods/proxy."""

    async def fetch(target: Target) -> bytes:
        path = f"/api/v1/namespaces/{target.namespace}/pods/{target.pod}:{STATUS_PORT}/proxy/status"
        return await api.read(path, LONGEST_ANSWER, PATIENCE)

    return fetch
