"""Fetches a copy of the training state from another launcher of the job into this launcher's memory.

It must never leave a copy that is not whole, nor use more memory than allowed, nor run without an end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tftraining.launch.in_user_process.memory_backup import copy_file
from tftraining.launch.process.copy_files import CHUNK_BYTES, IncomingCopy, Name
from tftraining.launch.process.memory_store import MemoryStore
from tftraining.launch.rendezvous.copy_server import in_thread
from tftraining.launch.rendezvous.protocol import COPIES, Channel, Frame, ProtocolError, connect, open_connection

FETCH_SECONDS = 600.0  # for a large state, or behind many others
STALL_SECONDS = 20.0  # without a chunk: others may be served first
LARGEST = 1 << 40  # no machine has so much; a peer's number is not trusted


class CopyClient:
    """The fetches of one launcher, one at a time."""

    def __init__(self, store: MemoryStore, uid: str, key: Callable[[], bytes]) -> None:
        self._store = store
        self._uid = uid
        self._key = key
        self._threads = ThreadPoolExecutor(1, "tftraining-fetch")

    async def fetch(self, name: Name, host: str, port: int) -> int:
        """Fetch the copy from the launcher at this address; its size. OSError or ValueError if that fails: then the
        program finds a `failed-…` file."""
        try:
            return await self._fetch(name, host, port)
        except (OSError, ValueError, asyncio.TimeoutError, KeyError, TypeError):
            with contextlib.suppress(OSError):
                self._store.fail(name)
            raise

    def close(self) -> None:
        """Release the thread."""
        self._threads.shutdown(wait=False)

    async def _fetch(self, name: Name, host: str, port: int) -> int:
        reader, writer = await open_connection(host, port, limit=CHUNK_BYTES)
        timers = _Timers(writer)
        try:
            order = {"type": "fetch", "uid": self._uid, "copy": list(name)}
            channel = await connect(reader, writer, self._key(), order, COPIES)
            timers.renew()
            size = self._size(await channel.receive())
            await in_thread(self._threads, self._store.make_room)
            temporary = f"{copy_file.FETCHED}{name[0]}-{name[1]}"
            incoming = IncomingCopy(self._store.directory, name, size, temporary)
            try:
                await in_thread(self._threads, incoming.reserve)
                await self._receive(channel, incoming, timers)
                await in_thread(self._threads, incoming.complete)
            finally:
                incoming.close()
        except ProtocolError as error:
            raise ProtocolError(timers.reason or str(error)) from None
        finally:
            timers.cancel()
            writer.transport.abort()
        return size

    def _size(self, answer: Frame) -> int:
        """The announced size. OSError or ValueError if there is no copy, or one that is too large."""
        if answer["type"] != "copy":
            raise ProtocolError(str(answer.get("why"))[:200])
        size, most = answer["bytes"], (self._store.settings.size_limit or LARGEST) // copy_file.SLOTS
        if not isinstance(size, int) or not copy_file.HEAD <= size <= most:
            raise ValueError(f"a copy of {str(size)[:40]} bytes, where at most {most} are allowed")
        return size

    async def _receive(self, channel: Channel, incoming: IncomingCopy, timers: _Timers) -> None:
        """Receive the chunks, and the frame behind the last. ProtocolError or ValueError if they do not fit."""
        missing = 1
        while missing:
            data = await channel.receive_chunk()
            if not isinstance(data, bytes):
                raise ProtocolError(str(data.get("why", "the copy ended early"))[:200])
            if not data:
                raise ProtocolError("a chunk is empty")
            timers.renew()
            missing = await in_thread(self._threads, incoming.write, data)
        if (last := await channel.receive_chunk()) != {"type": "whole"}:
            why = last.get("why") if isinstance(last, dict) else None
            raise ProtocolError(str(why or "the copy is longer than announced")[:200])


class _Timers:
    """Ends a connection that takes too long as a whole, or for one chunk; `reason` then says so."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.reason = ""
        self._writer = writer
        loop = asyncio.get_running_loop()
        why = f"the copy took more than {FETCH_SECONDS:g} s"
        self._whole = loop.call_later(FETCH_SECONDS, self._abort, why)
        self._chunk: asyncio.TimerHandle | None = None

    def renew(self) -> None:
        """A chunk has come; the next one has its full time."""
        if self._chunk is not None:
            self._chunk.cancel()
        why = f"the other launcher sent nothing for {STALL_SECONDS:g} s"
        self._chunk = asyncio.get_running_loop().call_later(STALL_SECONDS, self._abort, why)

    def cancel(self) -> None:
        """The connection is over."""
        self._whole.cancel()
        if self._chunk is not None:
            self._chunk.cancel()

    def _abort(self, why: str) -> None:
        self.reason = why
        self._writer.transport.abort()
