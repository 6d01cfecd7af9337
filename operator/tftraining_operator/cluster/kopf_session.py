"""kopf's connection to the API server, with pauses between watches that end at once, and with the operator's metrics.

kopf opens the next watch as soon as one has ended, without a pause: an API server or a proxy that ends each watch at
once would be asked hundreds of times a second.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Protocol

import aiohttp
import kopf
from kopf._cogs.structs.references import Insights, NamespaceName

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
# After a watch that lasted so long, the next one needs no pause.
STEADY_SECONDS = 10.0
SAMPLE_SECONDS = 1.0
# A pattern, which stands for no namespace as long as kopf may not look for namespaces.
NO_NAMESPACE = "!*"


class WatchedNamespaces:
    """The namespaces whose jobs kopf watches, unless it watches all. kopf itself finds none without the right to list
    all namespaces, and ends if it may not watch one of them: so it gets each as soon as its jobs may be watched. What
    kopf calls its insights is an argument of its public functions, but has no public constructor."""

    def __init__(self) -> None:
        self.insights = Insights()

    async def add(self, namespace: str) -> None:
        """Watch this namespace, too."""
        if namespace:
            async with self.insights.revised:
                self.insights.namespaces.add(NamespaceName(namespace))
                self.insights.revised.notify_all()


class WatchPauses:
    """The pause before each watch, by path. No clock but `clock`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began: dict[str, float] = {}
        self._pauses: dict[str, float] = {}

    def next(self, path: str) -> float:
        """The pause before a watch of this path that is about to begin."""
        now, before = self._clock(), self._began.get(path)
        pause = 0.0
        if before is not None and now - before < STEADY_SECONDS:
            pause = min(LONGEST_PAUSE, self._pauses.get(path, 0.0) * 2 or FIRST_PAUSE)
        self._pauses[path], self._began[path] = pause, now + pause
        return pause


class Content(Protocol):
    """An answer that is being read."""

    total_bytes: int


class WatchAges:
    """The time since the API server last sent anything to a watch, by path, exact to `SAMPLE_SECONDS`: aiohttp reports
    no part of an answer that is read as it arrives, but counts the bytes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: dict[str, float] = {}
        self._open: dict[str, tuple[Content, int, float]] = {}

    def expect(self, namespace: str) -> None:
        """kopf has been told to watch this namespace. It looks once for the resource: if the API server does not list
        it at that moment, kopf warns, and watches nothing for ever."""
        self._due[namespace] = self._clock()

    def begin(self, path: str, content: Content) -> None:
        """A watch has begun, in the place of an earlier one of this path."""
        self._open[path] = (content, content.total_bytes, self._clock())

    def sample(self) -> None:
        """Note which watches have got anything since the last sample."""
        for path, (content, known, _) in self._open.items():
            if content.total_bytes != known:
                self.begin(path, content)

    async def sample_until_cancelled(self) -> None:
        """Take samples."""
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            self.sample()

    def by_namespace(self) -> dict[str, float]:
        """The ages in seconds; of the watch of all namespaces under an empty name. One that has not begun is as old as
        it is due."""
        begun = {_namespace(path): since for path, (_, _, since) in self._open.items()}
        return {namespace: self._clock() - since for namespace, since in {**self._due, **begun}.items()}


def _namespace(path: str) -> str:
    """The namespace in the path of a collection; empty for none."""
    *_, parent, name, _ = path.split("/")
    return name if parent == "namespaces" else ""


class KopfSessions:
    """The sessions by their credentials. The same credentials give the same session: kopf recognises credentials that
    the API server has refused. `requests` and `answered` are those of Api, for the metrics."""

    def __init__(self, requests: Counter[str], answered: Callable[[str, int, float], None]) -> None:
        self._sessions: dict[tuple[object, ...], kopf.AiohttpSession] = {}
        self._pauses = WatchPauses()
        self._requests, self._answered = requests, answered
        self.ages = WatchAges()

    def of(self, info: kopf.ConnectionInfo) -> kopf.AiohttpSession:
        """The session with these credentials."""
        key = tuple(vars(info).values())
        if key not in self._sessions:
            # Earlier credentials never come back; kopf closes their session.
            self._sessions = {key: self._made(info)}
        return self._sessions[key]

    def _made(self, info: kopf.ConnectionInfo) -> kopf.AiohttpSession:
        trace = aiohttp.TraceConfig()
        trace.on_request_start.append(self._before_request)
        trace.on_request_end.append(self._after_request)
        trace.on_request_exception.append(self._after_failure)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
            headers=info.as_http_headers(),
            proxy=info.proxy_url,
            trust_env=info.trust_env,
            trace_configs=[trace],
        )
        return kopf.AiohttpSession(
            server=info.server,
            aiohttp_session=session,
            default_namespace=info.default_namespace,
            priority=info.priority,
            expiration=info.expiration,
        )

    async def _before_request(
        self, _: aiohttp.ClientSession, request: SimpleNamespace, start: aiohttp.TraceRequestStartParams
    ) -> None:
        request.kind = "WATCH" if start.url.query.get("watch") == "true" else start.method
        if request.kind == "WATCH":
            await asyncio.sleep(self._pauses.next(start.url.path))
        self._requests[start.method] += 1
        request.began = time.monotonic()

    async def _after_request(
        self, _: aiohttp.ClientSession, request: SimpleNamespace, end: aiohttp.TraceRequestEndParams
    ) -> None:
        self._answered(request.kind, end.response.status, time.monotonic() - request.began)
        if request.kind == "WATCH" and end.response.status == 200:
            self.ages.begin(end.url.path, end.response.content)

    async def _after_failure(
        self, _: aiohttp.ClientSession, request: SimpleNamespace, failure: aiohttp.TraceRequestExceptionParams
    ) -> None:
        if isinstance(failure.exception, (aiohttp.ClientError, TimeoutError)):
            self._answered(request.kind, 0, time.monotonic() - request.began)
