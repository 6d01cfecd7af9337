"""A very small HTTP server: GET of a few paths, one answer a connection. For probes, the operator and `tftj run`.

It must never let a client hold more than a connection for a few seconds, nor serve anything but its given pages. One
connection too many closes the oldest, so idle connections keep no probe out. A few clients may wait for a change (see
waits): their connections are not counted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tftraining.launch.http.long_polls import LongPolls, PollQuery
from tftraining.launch.wait_for import wait_for

REQUEST_BYTES = 8192
REQUEST_SECONDS = 5.0
CONNECTIONS = 64
CLOSE_SECONDS = 1.0  # for the last answers; the launcher's process ends after that

# A launcher that ends cancels waiting requests; asyncio would print a traceback for CancelledError.
CONNECTION_ERRORS = (OSError, ValueError, asyncio.IncompleteReadError, asyncio.TimeoutError, asyncio.CancelledError)

_PHRASES = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


@dataclass(frozen=True)
class Response:
    """An HTTP response: status code, body and content type."""

    code: int
    body: str
    content_type: str = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class Request:
    """The requested page, and whether the client waits for a change of it."""

    path: str
    query: PollQuery


class HttpServer:
    """`pages` maps each path to its answer, `waits` the paths that can be waited for to their waiting clients, `short`
    some paths to a shorter answer on request."""

    def __init__(
        self,
        pages: Mapping[str, Callable[[], Response]],
        waits: Mapping[str, LongPolls] | None = None,
        short: Mapping[str, Callable[[], Response]] | None = None,
    ) -> None:
        self._pages = pages
        self._long_polls = waits or {}
        self._short = short or {}
        self._open: dict[asyncio.StreamWriter, None] = {}  # the oldest first
        self._responding: set[asyncio.Task[None]] = set()  # connections whose request has been read
        self._server: asyncio.AbstractServer | None = None

    async def open(self, host: str, port: int) -> None:
        """Listen; OSError if the port cannot be bound."""
        self._server = await asyncio.start_server(self._serve, host or None, port, limit=REQUEST_BYTES)

    async def close(self) -> None:
        """Stop listening, and answer all waiting clients. A client that does not read its answer is left after
        CLOSE_SECONDS: the process that served it ends next, and would cut the answers of the others."""
        if self._server is not None:
            self._server.close()
        for each in self._long_polls.values():
            each.answer_all()
        if self._responding:
            await asyncio.wait(self._responding, timeout=CLOSE_SECONDS)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._count_connection(writer)
        try:
            with contextlib.suppress(*CONNECTION_ERRORS):
                request = await wait_for(self._read_request(reader), REQUEST_SECONDS)
                task: asyncio.Task[None] | None = asyncio.current_task()
                assert task is not None
                self._responding.add(task)
                task.add_done_callback(self._responding.discard)
                answer = request if isinstance(request, Response) else await self._respond(request, reader, writer)
                await wait_for(self._write_response(answer, reader, writer), REQUEST_SECONDS)
        finally:
            self._open.pop(writer, None)
            writer.transport.abort()

    def _count_connection(self, writer: asyncio.StreamWriter) -> None:
        """Count a connection; close the oldest if there are too many."""
        self._open[writer] = None
        if len(self._open) > CONNECTIONS:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()

    async def _read_request(self, reader: asyncio.StreamReader) -> Response | Request:
        """The target of the request, or an error answer."""
        try:
            request = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return Response(400, "the request is too long\n")
        request_line = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(request_line) != 3 or not request_line[2].startswith("HTTP/1."):
            return Response(400, "this is an HTTP server\n")
        if request_line[0] != "GET":
            return Response(405, "only GET is supported\n")
        path, _, query = request_line[1].partition("?")
        if path not in self._pages:
            return Response(404, f"there are: {' '.join(self._pages)}\n")
        try:
            return Request(path, PollQuery.parse(query if path in self._long_polls else ""))
        except ValueError as error:
            return Response(400, f"{error}\n")

    async def _respond(self, target: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Response:
        """The page, once it differs from the client's revision. A waiting client is not counted as a connection."""
        if target.query.known_revision:
            disconnected = asyncio.ensure_future(reader.read(1))
            self._open.pop(writer, None)
            try:
                await self._long_polls[target.path].wait_for_change(target.query, disconnected)
            finally:
                self._count_connection(writer)
                disconnected.cancel()
                await asyncio.gather(disconnected, return_exceptions=True)
        page = self._short.get(target.path) if target.query.short else None
        return (page or self._pages[target.path])()

    async def _write_response(
        self, answer: Response, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        body = answer.body.encode()
        lines = (
            f"HTTP/1.1 {answer.code} {_PHRASES[answer.code]}",
            f"Content-Type: {answer.content_type}",
            f"Content-Length: {len(body)}",
            "Connection: close",
        )
        writer.write("\r\n".join((*lines, "", "")).encode() + body)
        await writer.drain()
        writer.write_eof()
        await reader.read(1)  # the client closes after the last byte
