"""The server of the dashboard: files of the page, and server-sent events made of the feeds.

It serves the loopback interface only. A request needs the token in its path, and comes from the page itself or from
the address bar: another site that resolves to this machine (DNS rebinding) and other users of the machine get nothing.
"""

import asyncio
import ipaddress
import os
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from tftraining_client.cluster.models import LogLine
from tftraining_client.commands.dashboard.feeds import Feeds, JobFeed, JobsFeed
from tftraining_client.errors import JobFailed, UserError
from tftraining_client.visible import uncoloured_log_line, visible_object

ADDRESS = "127.0.0.1"
FILES = {
    "dashboard.css": "text/css",
    "dashboard.js": "text/javascript",
    "curves.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
LOG_LINES = 500
# Changes that come together are one message.
GATHER_SECONDS = 0.05
# Of silence, after which a stream says that it lives: a tunnel may drop a connection without a word.
PING_SECONDS = 15.0
PING = b"event: ping\ndata: -\n\n"
LONGEST_INDEX = 9  # digits
LogQueue = asyncio.Queue[LogLine | str | None]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(feeds: Feeds, port: int) -> AsyncIterator[str]:
    """Serve the dashboard; its address, with the token. UserError if the port is taken; port 0 is any free one."""
    token = secrets.token_urlsafe(32)
    runner = web.AppRunner(application(feeds, token), access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, ADDRESS, port).start()
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise UserError(f"port {port} of {ADDRESS} cannot be used: {reason}; choose another --port") from error
        yield f"http://{ADDRESS}:{runner.addresses[0][1]}/{token}/"
    finally:
        await runner.cleanup()


def application(feeds: Feeds, token: str) -> web.Application:
    """The routes, all of them behind the token."""
    pages = Pages(feeds)
    app = web.Application(middlewares=[_guard(token)])
    app.on_response_prepare.append(_add_headers)
    app.router.add_get(f"/{token}/", pages.index)
    app.router.add_get(f"/{token}/static/{{name}}", pages.file)
    # No HEAD: it would wait for the end of a stream.
    app.router.add_get(f"/{token}/api/jobs", pages.jobs, allow_head=False)
    app.router.add_get(f"/{token}/api/jobs/{{namespace}}/{{name}}", pages.job, allow_head=False)
    app.router.add_get(f"/{token}/api/jobs/{{namespace}}/{{name}}/logs", pages.logs, allow_head=False)
    app.router.add_post(f"/{token}/api/retry", pages.retry)
    return app


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)


def _guard(token: str) -> Any:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if refusal := refused(request.method, request.headers):
            raise web.HTTPForbidden(text=f"{refusal}\n")
        # The path may be `*`, and may have bytes that are no text.
        given = request.path.removeprefix("/").partition("/")[0].encode(errors="replace")
        if not secrets.compare_digest(given, token.encode()):
            raise web.HTTPForbidden(text="Open the address that `tftj dashboard` has printed: it contains the token.\n")
        try:
            return await handler(request)
        except ConnectionResetError:  # the page is closed
            return web.Response()

    return guard


def refused(method: str, headers: Mapping[str, str]) -> str:
    """Why a request with these headers is refused; "" if it is not."""
    host, origin = headers.get("Host", ""), headers.get("Origin")
    if not is_loopback(host):
        return "The host of the address must be 127.0.0.1 or localhost."
    if origin is not None and urlsplit(origin).netloc != host:
        return "The request comes from another site."
    if origin is None and method not in ("GET", "HEAD"):
        return "The request does not come from the page."
    if headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        return "The request comes from another site."
    return ""


def is_loopback(host: str) -> bool:
    """Whether a Host header names this machine. The port may be that of a tunnel (`ssh -L`)."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


class Pages:
    """The handlers. A stream lasts until the browser closes it."""

    def __init__(self, feeds: Feeds) -> None:
        self._feeds = feeds

    async def index(self, request: web.Request) -> web.StreamResponse:
        """The page."""
        return web.Response(body=_static("index.html"), content_type="text/html", charset="utf-8")

    async def file(self, request: web.Request) -> web.StreamResponse:
        """A script or the style of the page."""
        name = request.match_info["name"]
        if name not in FILES:
            raise web.HTTPNotFound
        return web.Response(body=_static(name), content_type=FILES[name], charset="utf-8")

    async def retry(self, request: web.Request) -> web.StreamResponse:
        """Connect to the API server again."""
        await self._feeds.retry()
        return web.Response(status=204)

    async def jobs(self, request: web.Request) -> web.StreamResponse:
        """The list: first `all` rows, in whose place the page may have older ones, then those that have changed."""
        feed, sent, first = self._feeds.jobs, dict[str, Any](), True
        response = await _open(request)
        with feed.subscribed() as changed:
            while True:
                await _next(changed)
                rows = dict(feed.rows)
                news = [row for key, row in rows.items() if sent.get(key) != row]
                gone = [key for key in sent if key not in rows]
                state = {**self._scope(), **_state(feed), "all": first, "listed": feed.listed}
                await _send(response, {**state, "jobs": news, "gone": gone})
                sent, first = rows, False

    async def job(self, request: web.Request) -> web.StreamResponse:
        """One job: its whole view after each change."""
        namespace, name = self._named(request)
        sent: dict[str, Any] = {}
        response = await _open(request)
        async with self._feeds.of_job(namespace, name) as (feed, changed):
            with self._feeds.jobs.subscribed() as connection:
                while True:
                    await _next(changed, connection)
                    feed.look_again(self._feeds.jobs.rows.get(f"{namespace}/{name}"))
                    state = _state(feed if feed.broken else self._feeds.jobs)
                    view = {**self._scope(), **state, "job": feed.job, "gone": feed.gone}
                    # Changes of other jobs wake this stream too.
                    if view != sent:
                        await _send(response, view)
                    else:
                        await response.write(PING)
                    sent = view

    async def logs(self, request: web.Request) -> web.StreamResponse:
        """The log of all replicas, or of one (`?role=worker&index=1`), until the job has ended."""
        namespace, name = self._named(request)
        index = request.query.get("index", "")
        if index and not (index.isdecimal() and len(index) <= LONGEST_INDEX):
            raise web.HTTPBadRequest(text="index must be a number\n")
        response = await _open(request)
        queue: LogQueue = asyncio.Queue()
        client = self._feeds.client.in_namespace(namespace, notify=queue.put_nowait)
        lines = client.logs(
            name, follow=True, role=request.query.get("role", ""), index=int(index) if index else None, tail=LOG_LINES
        )
        room = asyncio.Semaphore(LOG_LINES)
        reader = asyncio.create_task(_fill(queue, lines, room))
        try:
            ended = False
            while not ended:
                batch = [await queue.get()]
                await asyncio.sleep(GATHER_SECONDS)
                while not queue.empty():
                    batch.append(queue.get_nowait())
                ended = None in batch
                for line in batch:
                    if isinstance(line, LogLine):
                        room.release()
                await _send(response, {"lines": [_log_line(each) for each in batch if each is not None], "end": ended})
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        return response

    def _scope(self) -> dict[str, str]:
        return {"namespace": self._feeds.namespace, "context": self._feeds.context}

    def _named(self, request: web.Request) -> tuple[str, str]:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        if not self._feeds.shows(namespace):
            raise web.HTTPForbidden(text=f"this dashboard is about namespace {self._feeds.namespace}\n")
        return namespace, name


async def _fill(queue: LogQueue, lines: AsyncGenerator[LogLine, None], room: asyncio.Semaphore) -> None:
    """Read the log into the queue, as far as there is room: lines, messages about the log, and None at the end."""
    try:
        async with aclosing(lines):
            async for line in lines:
                await room.acquire()
                queue.put_nowait(line)
    except UserError as error:
        queue.put_nowait(error.summary if isinstance(error, JobFailed) else str(error))
    finally:
        queue.put_nowait(None)


def _log_line(line: LogLine | str) -> list[Any]:
    """Replica, text; the replica of a message about the log is empty."""
    return ["", line] if isinstance(line, str) else [line.replica, uncoloured_log_line(line.text)]


def _state(feed: JobsFeed | JobFeed) -> dict[str, Any]:
    return {"problem": feed.problem, "broken": feed.broken}


async def _next(*changes: asyncio.Event) -> None:
    """Wait until one of them is set, and a little longer for what comes with it; PING_SECONDS at most."""
    waits = [asyncio.ensure_future(each.wait()) for each in changes]
    try:
        await asyncio.wait(waits, timeout=PING_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    await asyncio.sleep(GATHER_SECONDS)
    for change in changes:
        change.clear()


async def _open(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    return response


async def _send(response: web.StreamResponse, content: dict[str, Any]) -> None:
    # JSON has no line feed outside of a text, and escapes those inside.
    await response.write(b"data: " + msgspec.json.encode(visible_object(content)) + b"\n\n")


def _static(name: str) -> bytes:
    return files("tftraining_client.commands.dashboard").joinpath("static", name).read_bytes()
