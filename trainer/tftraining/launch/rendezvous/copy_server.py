"""Serves the copies of the training state in this launcher's memory to the other launchers of the job.

It must never send mixed bytes of two copies, nor a file by a name from outside, nor let a slow or silent client keep
others out: connections, transfers and their time are bounded, and strangers keep no member out.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tftraining.launch.process.copy_files import Name, OutgoingCopy
from tftraining.launch.rendezvous.protocol import (
    COPIES,
    FRAME_BYTES,
    FRAME_ERRORS,
    Channel,
    Frame,
    ProtocolError,
    accept,
)
from tftraining.launch.rendezvous.strangers import Strangers

TRANSFERS = 8  # chunks at once; transfers take turns by chunks
MEMBERS = 64  # that fetch or wait; a further one is refused
STRANGERS = 64  # in the handshake; a further one ends the oldest of the address that has the most
TRANSFER_SECONDS = 600.0  # the connection's whole time
STALL_SECONDS = 5.0  # for one chunk
CLOSE_SECONDS = 1.0  # for connections to notice that they are closed
PAUSE_SECONDS = 0.1  # after a connection that cannot be accepted
BACKLOG = 1024  # connections that wait in the kernel, first come, first served: a flood must not fill it

_T = TypeVar("_T")


class CopyServer:
    """Serves the copies in `directory` to launchers that have the secret of the job `uid`."""

    def __init__(self, directory: Path, uid: str, key: Callable[[], bytes]) -> None:
        self.port: int | None = None
        self._directory = directory
        self._uid = uid
        self._key = key
        self._listening: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._threads = ThreadPoolExecutor(TRANSFERS, "tftraining-copies")
        self._strangers: Strangers[asyncio.StreamWriter] = Strangers()
        self._members: set[asyncio.StreamWriter] = set()
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._free = asyncio.Semaphore(TRANSFERS)

    async def open(self, host: str) -> None:
        """Listen on a free port, at every address of this machine if `host` is empty. OSError if that fails."""
        self._listening = _listen(host)
        self._listening.setblocking(False)
        self.port = int(self._listening.getsockname()[1])
        self._accepting = asyncio.ensure_future(self._accept(self._listening))

    async def close(self) -> None:
        """End all connections."""
        if self._accepting is not None and self._listening is not None:
            self._accepting.cancel()
            await asyncio.wait({self._accepting})
            self._listening.close()
        for writer in self._open.values():
            writer.transport.abort()
        if self._open:
            await asyncio.wait(list(self._open), timeout=CLOSE_SECONDS)
        self._threads.shutdown(wait=False)

    async def _accept(self, listening: socket.socket) -> None:
        """Accept all that waits, again and again. What is too many is closed at once, before it costs more."""
        while True:
            waiting: Strangers[socket.socket] = Strangers()
            pause = 0.0
            try:
                with contextlib.suppress(BlockingIOError):
                    _add(waiting, *await asyncio.get_running_loop().sock_accept(listening))
                    for _ in range(BACKLOG):
                        _add(waiting, *listening.accept())
            except OSError:  # too many open files, or a connection that is gone already
                pause = PAUSE_SECONDS
            await self._open_streams(waiting)
            await asyncio.sleep(pause)

    async def _open_streams(self, waiting: Strangers[socket.socket]) -> None:
        loop = asyncio.get_running_loop()
        try:
            for connection in list(waiting):
                waiting.remove(connection)
                connection.setblocking(False)
                reader = asyncio.StreamReader(FRAME_BYTES, loop)
                stream = partial(asyncio.StreamReaderProtocol, reader, self._serve, loop)
                with contextlib.suppress(OSError):
                    await loop.connect_accepted_socket(stream, connection)
        finally:
            for connection in waiting:
                connection.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        limit = asyncio.get_running_loop().call_later(TRANSFER_SECONDS, writer.transport.abort)
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        if (closed := self._strangers.add(writer, writer.get_extra_info("peername"), STRANGERS)) is not None:
            closed.transport.abort()
        try:
            channel, order = await accept(reader, writer, self._key(), COPIES)
            self._strangers.remove(writer)
            await self._answer(channel, order, writer)
        except (OSError, RuntimeError):  # the connection is gone, or this launcher ends
            writer.transport.abort()
        finally:
            limit.cancel()
            self._strangers.remove(writer)
            self._members.discard(writer)
            self._open.pop(task)
            writer.close()

    async def _answer(self, channel: Channel, order: Frame, writer: asyncio.StreamWriter) -> None:
        """Send the copy that the member names, or why not."""
        try:
            copy = self._find(order)
        except FRAME_ERRORS as error:
            channel.send({"type": "refused", "why": describe(error)})
            return
        self._members.add(writer)
        try:
            await self._send(channel, copy)
        except ProtocolError:
            raise
        except OSError as error:
            channel.send({"type": "failed", "why": describe(error)})
        finally:
            copy.close()

    def _find(self, order: Frame) -> OutgoingCopy:
        """The copy of the order, not yet opened. KeyError, TypeError or ValueError says why there is none."""
        if order["type"] != "fetch" or order["uid"] != self._uid:
            raise ValueError("this launcher belongs to another job")
        if len(self._members) >= MEMBERS:
            raise ValueError("too many members fetch copies here")
        return OutgoingCopy(self._directory, _name(order["copy"]))

    async def _send(self, channel: Channel, copy: OutgoingCopy) -> None:
        """Send the whole copy. ProtocolError if the member is gone or too slow, another OSError if the copy is gone."""
        await in_thread(self._threads, copy.open)
        channel.send({"type": "copy", "bytes": copy.size})  # at once: the member reserves its memory meanwhile
        sent = 0
        while sent < copy.size:
            async with self._free:  # for a chunk, or the last of many would wait too long for its first one
                data = await in_thread(self._threads, copy.read, sent)
                stalled = asyncio.get_running_loop().call_later(STALL_SECONDS, channel.abort)
                try:
                    await channel.send_chunk(data)
                finally:
                    stalled.cancel()
            sent += len(data)
        channel.send({"type": "whole"})


def _add(waiting: Strangers[socket.socket], connection: socket.socket, peer: tuple[object, ...]) -> None:
    if (closed := waiting.add(connection, peer, STRANGERS)) is not None:
        closed.close()


async def in_thread(threads: ThreadPoolExecutor, function: Callable[..., _T], *arguments: Any) -> _T:
    """The result of a function that blocks for a moment. A cancelled caller waits for its end too, because the function
    uses a file that the caller closes next."""
    running = asyncio.get_running_loop().run_in_executor(threads, function, *arguments)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({running})
        running.exception()  # it has been noticed
        raise


def describe(error: BaseException) -> str:
    """One line about an error."""
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()[0]


def _name(told: object) -> Name:
    """Round and step of a frame. ValueError if they are no two natural numbers: a path cannot come from outside."""
    if isinstance(told, list) and len(told) == 2 and all(type(each) is int and 0 <= each < 10**18 for each in told):
        return told[0], told[1]
    raise ValueError("a copy is named by its round and step")


def _listen(host: str) -> socket.socket:
    """A listening socket on a free port; for IPv6 and IPv4 on the same port if there is no host."""
    if host:
        family = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, 0), family=family, backlog=BACKLOG)
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG)
    return socket.create_server(("", 0), backlog=BACKLOG)
