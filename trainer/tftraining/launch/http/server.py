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

from tftraining.launch.http.long_polls import Wait, Waits

REQUEST_BYTES = 8192
REQUEST_SECONDS = 5.0
CONNECTIONS = 64

# A launcher that ends cancels waiting requests; asyncio would print a traceback for CancelledError.
ENDED = (OSError, ValueError, asyncio.IncompleteReadError, asyncio.TimeoutError, asyncio.CancelledError)

_PHRASES = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


@dataclass(frozen=True)
class Answer:
    """An HTTP response: status code, body and content type."""

    code: int
    body: str
    kind: str = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class Target:
    """The requested page, and whether the client waits for a change of it."""

    path: str
    wait: Wait


class Server:
    """`pages` maps each path to its answer, `waits` the paths that can be waited for to their waiting clients, `short`
    some paths to a shorter answer on request."""

    def __init__(
        self,
        pages: Mapping[str, Callable[[], Answer]],
        waits: Mapping[str, Waits] | None = None,
        short: Mapping[str, Callable[[], Answer]] | None = None,
    ) -> None:
        self._pages = pages
        self._waits = waits or {}
        self._short = short or {}
        self._open: dict[asyncio.StreamWriter, None] = {}  # the oldest first
        self._server: asyncio.AbstractServer | None = None

    async def open(self, host: str, port: int) -> None:
        """Listen; OSError if the port cannot be bound."""
        self._server = await asyncio.start_server(self._serve, host or None, port, limit=REQUEST_BYTES)

    def close(self) -> None:
        """Stop listening, and answer all waiting clients."""
        if self._server is not None:
            self._server.close()
        for each in self._waits.values():
            each.release()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._count(writer)
        try:
            with contextlib.suppress(*ENDED):
                asked = await asyncio.wait_for(self._read(reader), REQUEST_SECONDS)
                answer = asked if isinstance(asked, Answer) else await self._changed(asked, reader, writer)
                await asyncio.wait_for(self._write(answer, reader, writer), REQUEST_SECONDS)
        finally:
            self._open.pop(writer, None)
            writer.transport.abort()

    def _count(self, writer: asyncio.StreamWriter) -> None:
        """Count a connection; close the oldest if there are too many."""
        self._open[writer] = None
        if len(self._open) > CONNECTIONS:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()

    async def _read(self, reader: asyncio.StreamReader) -> Answer | Target:
        """The target of the request, or an error answer."""
        try:
            request = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return Answer(400, "the request is too long\n")
        words = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return Answer(400, "this is an HTTP server\n")
        if words[0] != "GET":
            return Answer(405, "only GET is supported\n")
        path, _, query = words[1].partition("?")
        if path not in self._pages:
            return Answer(404, f"there are: {' '.join(self._pages)}\n")
        try:
            return Target(path, Wait.of(query if path in self._waits else ""))
        except ValueError as error:
            return Answer(400, f"{error}\n")

    async def _changed(self, target: Target, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Answer:
        """The page, once it differs from the client's revision. A waiting client is not counted as a connection."""
        if target.wait.known:
            gone = asyncio.ensure_future(reader.read(1))
            self._open.pop(writer, None)
            try:
                await self._waits[target.path].until_changed(target.wait, gone)
            finally:
                self._count(writer)
                gone.cancel()
                await asyncio.gather(gone, return_exceptions=True)
        page = self._short.get(target.path) if target.wait.short else None
        return (page or self._pages[target.path])()

    async def _write(self, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = answer.body.encode()
        lines = (
            f"HTTP/1.1 {answer.code} {_PHRASES[answer.code]}",
            f"Content-Type: {answer.kind}",
            f"Content-Length: {len(body)}",
            "Connection: close",
        )
        writer.write("\r\n".join((*lines, "", "")).encode() + body)
        await writer.drain()
        writer.write_eof()
        await reader.read(1)  # the client closes after the last byte
