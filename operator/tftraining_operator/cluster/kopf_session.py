"""kopf's connection to the API server, with pauses between watches that end at once.

kopf opens the next watch as soon as one has ended, without a pause: an API server or a proxy that ends each watch at
once would be asked hundreds of times a second.
"""

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace

import aiohttp
import kopf

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
# After a watch that lasted so long, the next one needs no pause.
STEADY_SECONDS = 10.0


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


class KopfSessions:
    """The sessions by their credentials. The same credentials give the same session: kopf recognises credentials that
    the API server has refused."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[object, ...], kopf.AiohttpSession] = {}
        self._pauses = WatchPauses()

    def of(self, info: kopf.ConnectionInfo) -> kopf.AiohttpSession:
        """The session with these credentials."""
        key = tuple(vars(info).values())
        if key not in self._sessions:
            # Earlier credentials never come back; kopf closes their session.
            self._sessions = {key: self._made(info)}
        return self._sessions[key]

    def _made(self, info: kopf.ConnectionInfo) -> kopf.AiohttpSession:
        pauses = aiohttp.TraceConfig()
        pauses.on_request_start.append(self._before_request)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
            headers=info.as_http_headers(),
            proxy=info.proxy_url,
            trust_env=info.trust_env,
            trace_configs=[pauses],
        )
        return kopf.AiohttpSession(
            server=info.server,
            aiohttp_session=session,
            default_namespace=info.default_namespace,
            priority=info.priority,
            expiration=info.expiration,
        )

    async def _before_request(
        self, _: aiohttp.ClientSession, __: SimpleNamespace, request: aiohttp.TraceRequestStartParams
    ) -> None:
        if request.url.query.get("watch") == "true":
            await asyncio.sleep(self._pauses.next(request.url.path))
