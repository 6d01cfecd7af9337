"""A very small HTTP server: GET of a few paths, one answer a connection. For probes, the operator and `tftj run`.

It must never let a client hold more than a connection for a few seconds, nor answer anything but what it was given.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

REQUEST_BYTES = 8192
REQUEST_SECONDS = 5.0
CONNECTIONS = 64

_PHRASES = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


@dataclass(frozen=True)
class Answer:
    """The status code, the body, and what it is."""

    code: int
    body: str
    kind: str = "text/plain; charset=utf-8"


class Server:
    """`pages` maps each path to what answers it."""

    def __init__(self, pages: Mapping[str, Callable[[], Answer]]) -> None:
        self._pages = pages
        self._open = 0
        self._server: asyncio.AbstractServer | None = None

    async def open(self, host: str, port: int) -> None:
        """Listen; OSError if the port cannot be had."""
        self._server = await asyncio.start_server(self._serve, host or None, port, limit=REQUEST_BYTES)

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= CONNECTIONS:
                with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError, asyncio.TimeoutError):
                    await asyncio.wait_for(self._talk(reader, writer), REQUEST_SECONDS)
        finally:
            self._open -= 1
            writer.transport.abort()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            answer = Answer(400, "the request is too long\n")
        else:
            answer = self._answer(request.split(b"\r\n", 1)[0].decode("latin-1").split(" "))
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
        await reader.read(1)  # the client closes when it has everything

    def _answer(self, request: list[str]) -> Answer:
        if len(request) != 3 or not request[2].startswith("HTTP/1."):
            return Answer(400, "this is an HTTP server\n")
        if request[0] != "GET":
            return Answer(405, "only GET\n")
        page = self._pages.get(request[1].partition("?")[0])
        return page() if page is not None else Answer(404, f"there are: {' '.join(self._pages)}\n")
