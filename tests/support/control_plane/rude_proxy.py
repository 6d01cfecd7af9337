"""A proxy before the real API server that delays, refuses, cuts and freezes as a test tells it to.

It speaks plain HTTP unless it gets a certificate, so that the operator's kubeconfig needs nothing but its address. It
must never answer in the place of the API server but with a fault, nor change what it lets through.
"""

import asyncio
import json
import random
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import aiohttp
import yaml
from aiohttp import web

EXPIRED = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n'
CLOSE_SECONDS = 0.3
KEPT = ("Authorization", "Content-Type", "Accept", "User-Agent")


class Fault(NamedTuple):
    """An answer in the place of the API server's: a status, with Retry-After if `retry_after` is not 0."""

    status: int
    retry_after: int = 0


class Request(NamedTuple):
    """One request that came: when, its method (WATCH for a watch), its path, the status of the answer (0: none), and
    what a creation creates: creations of different objects have one path."""

    at: float
    method: str
    path: str
    status: int
    created: str = ""


class Server(Protocol):
    """The API server behind the proxy, and the file with the authority of its certificate."""

    @property
    def url(self) -> str:
        """Its address."""

    @property
    def ca(self) -> Path:
        """The file."""


class RudeProxy:
    """The faults of the moment, and the requests so far. The attributes are set by the test's thread.

    `delay` holds every request for so many seconds, `slow` one that it chooses (seconds), `fault` chooses a fault for a
    request (or None), `expired` answers each watch with a 410, `away` closes each connection. `frozen` lets no byte of
    a watch through whose path ends with that; None for no watch.
    """

    def __init__(self, plane: Server) -> None:
        self._plane = plane
        self.port = 0
        self.requests: list[Request] = []
        self.behave()

    def behave(self) -> None:
        """No faults from now on."""
        self.delay = 0.0
        self.slow: Callable[[str, str], float] = lambda method, path: 0.0
        self.fault: Callable[[str, str], Fault | None] = lambda method, path: None
        self.frozen: str | None = None
        self.expired = self.away = self.cut = False

    def count(self, since: float = 0.0) -> Counter[str]:
        """The requests since that time, by method."""
        return Counter(each.method for each in list(self.requests) if each.at >= since)

    def kubeconfig(self, original: Path, directory: Path) -> Path:
        """The same account, by way of this proxy."""
        config = yaml.safe_load(original.read_text())
        config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{self.port}"}
        path = directory / "proxied.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    async def handle(self, request: web.Request, session: aiohttp.ClientSession) -> web.StreamResponse:
        """Answer one request, with a fault or by way of the API server."""
        method = "WATCH" if request.query.get("watch") == "true" else request.method
        await asyncio.sleep(self.delay + self.slow(method, request.path))
        fault = None if self.away else self.fault(method, request.path)
        if self.away:
            self._note(method, request.path, 0)
            return cut(request)
        if fault is not None:
            self._note(method, request.path, fault.status, created(method, await request.read()))
            told = {"Retry-After": str(fault.retry_after)} if fault.retry_after else {}
            body = {"kind": "Status", "code": fault.status, "reason": "Rude", "message": "a fault of the test"}
            return web.json_response(body, status=fault.status, headers=told)
        if method == "WATCH" and (self.expired or self.cut):
            self._note(method, request.path, 200)
            return web.Response(body=EXPIRED if self.expired else b"")
        return await self._forward(request, session, method)

    async def _forward(self, request: web.Request, session: aiohttp.ClientSession, method: str) -> web.StreamResponse:
        # A long list would come compressed, and the answer here does not say so.
        headers = {"Accept-Encoding": "identity"} | {
            name: request.headers[name] for name in KEPT if name in request.headers
        }
        body = await request.read()
        async with session.request(
            request.method, f"{self._plane.url}{request.path_qs}", headers=headers, data=body or None
        ) as up:
            self._note(method, request.path, up.status, created(method, body))
            told = {name: up.headers[name] for name in ("Content-Type", "Retry-After") if name in up.headers}
            answer = web.StreamResponse(status=up.status, headers=told)
            await answer.prepare(request)
            async for chunk in up.content.iter_any():
                while method == "WATCH" and self.frozen is not None and request.path.endswith(self.frozen):  # noqa: ASYNC110  # another thread ends it
                    await asyncio.sleep(0.05)
                await answer.write(chunk)
            return answer

    def _note(self, method: str, path: str, status: int, created: str = "") -> None:
        self.requests.append(Request(time.monotonic(), method, path, status, created))


def created(method: str, body: bytes) -> str:
    """The name of the object that a request creates; its text if the API server chooses the name; otherwise empty."""
    if method != "POST":
        return ""
    text = body.decode()
    return str(json.loads(text)["metadata"].get("name") or text)


def cut(request: web.Request) -> web.Response:
    """End the connection without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


@contextmanager
def rude_proxy(
    plane: Server, address: str = "127.0.0.1", certificate: ssl.SSLContext | None = None
) -> Iterator[RudeProxy]:
    """A proxy that behaves, until the test changes its attributes."""
    proxy, loop, ready = RudeProxy(plane), asyncio.new_event_loop(), threading.Event()
    ended: asyncio.Event

    async def serve() -> None:
        nonlocal ended
        ended = asyncio.Event()
        tls = ssl.create_default_context(cafile=plane.ca)
        connector = aiohttp.TCPConnector(limit=0, ssl=tls)
        async with aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(), auto_decompress=False
        ) as up:
            app = web.Application(client_max_size=2**26)

            async def handle(request: web.Request) -> web.StreamResponse:
                try:
                    return await proxy.handle(request, up)
                except aiohttp.ClientError:
                    # The API server is away: so is this connection, whatever it was in the middle of.
                    return cut(request)

            app.router.add_route("*", "/{path:.*}", handle)
            runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, address, 0, ssl_context=certificate).start()
            proxy.port = runner.addresses[0][1]
            ready.set()
            await ended.wait()
            await runner.cleanup()
        # The connections end in their own time; a closed loop would leave them open.
        await asyncio.sleep(CLOSE_SECONDS)

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(60), "the proxy did not start"
        yield proxy
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()


def one_in(share: float, fault: Fault, seed: int = 1) -> Callable[[str, str], Fault | None]:
    """Choose the fault for so large a share of the requests, at random."""
    chance = random.Random(seed)
    return lambda method, path: fault if chance.random() < share else None
