"""The rendezvous: a TCP server in the chief's launcher that passes frames to the coordinator and sends its decisions.

It must never decide anything itself, nor let a stranger cost more than a connection for a few seconds. When too many
connections are unauthenticated, the oldest of the address that has the most is closed: strangers keep no member out.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

from tftraining.launch.config.settings_and_defaults import Gang, Policy
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.gang.outbox import CLOSE, drop_stale_echoes
from tftraining.launch.rendezvous.protocol import FRAME_BYTES, FRAME_ERRORS, Channel, ProtocolError, accept
from tftraining.launch.rendezvous.strangers import Strangers
from tftraining.launch.wait_for import wait_for

TICKS_PER_TIMEOUT = 6  # ticks of the coordinator in one member timeout
BACKLOG = 4096  # connections that a gang of thousands opens at once; the kernel has its own limit (net.core.somaxconn)
UNAUTHENTICATED_LIMIT = 64  # unauthenticated connections allowed beyond the size of the gang


class RendezvousServer:
    """The server of one coordinator. `key` gives the job's secret; `on_result` is awaited once, between the verdict
    and its announcement."""

    def __init__(
        self, coordinator: Coordinator, key: Callable[[], bytes], on_result: Callable[[], Awaitable[None]]
    ) -> None:
        self.coordinator = coordinator
        self._key = key
        self._on_result = on_result
        self._channels: dict[str, Channel] = {}
        self._handshaking: Strangers[asyncio.StreamWriter] = Strangers()
        self._closed = False  # True rejects connections that are still in the handshake
        self._server: asyncio.AbstractServer | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._all_others_left = asyncio.Event()

    async def open(self, host: str, port: int) -> None:
        """Listen, and start the ticks; OSError if the port cannot be bound."""
        self._server = await asyncio.start_server(self._serve, host or None, port, limit=FRAME_BYTES, backlog=BACKLOG)
        self._tasks.append(asyncio.create_task(self._tick_repeatedly()))

    def apply_spec_update(self, gang: Gang, policy: Policy) -> None:
        """Pass a changed spec to the coordinator."""
        self.coordinator.apply_spec_update(gang, policy, time.monotonic())
        self._send_outbox()

    async def drain(self, timeout: float) -> None:
        """Wait until every other member of the gang has disconnected after the verdict."""
        with contextlib.suppress(asyncio.TimeoutError):
            await wait_for(self._all_others_left.wait(), timeout)

    async def close(self, say_bye: bool = False) -> None:
        """End all connections. `say_bye`: tell the members that no process of the chief's program runs any more."""
        self._closed = True
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        for writer in self._handshaking:
            writer.transport.abort()
        for channel in self._channels.values():
            if say_bye:
                channel.send({"type": "bye"})
                channel.close()
            else:
                channel.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _tick_repeatedly(self) -> None:
        while True:
            self.coordinator.tick(time.monotonic())
            self._send_outbox()
            await asyncio.sleep(self.coordinator.membership.policy.member_timeout_seconds / TICKS_PER_TIMEOUT)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = writer.get_extra_info("peername")
        limit = UNAUTHENTICATED_LIMIT + len(self.coordinator.membership.gang)
        if (closed := self._handshaking.add(writer, address, limit)) is not None:
            closed.transport.abort()
        try:
            channel, hello = await accept(reader, writer, self._key())
        except ProtocolError:
            writer.transport.abort()
            return
        finally:
            self._handshaking.remove(writer)
        with contextlib.suppress(ProtocolError, *FRAME_ERRORS):
            await self._admit(channel, {"copyHost": address[0] if address else "", **hello})
        channel.close()

    async def _admit(self, channel: Channel, hello: dict[str, Any]) -> None:
        if self._closed:
            return
        name = str(hello["member"])
        refusal = self.coordinator.handle_hello(hello, time.monotonic())
        if refusal:
            channel.send({"type": "refused", "why": refusal})
            return
        if name in self._channels:  # the same launcher reconnects before the end of its old connection was seen
            self._channels.pop(name).abort()
        self._channels[name] = channel
        try:
            self._send_outbox()
            while True:
                frame = await channel.receive()
                self.coordinator.handle_frame(name, frame, time.monotonic())
                if not channel.has_pending:
                    self._send_outbox()
        finally:
            self._handle_disconnect(name, channel)

    def _handle_disconnect(self, name: str, channel: Channel) -> None:
        if self._channels.get(name) is not channel:
            return
        del self._channels[name]
        self.coordinator.handle_disconnect(name, time.monotonic())
        self._send_outbox()
        gang = self.coordinator.membership.gang
        if self.coordinator.verdict.result is not None and not any(each in gang for each in self._channels):
            self._all_others_left.set()

    def _send_outbox(self) -> None:
        """Send the frames of the coordinator's outbox, in order."""
        for name, frame in drop_stale_echoes(self.coordinator.outbox.take_all()):
            channel = self._channels.get(name)
            if channel is None:
                continue
            if frame["type"] == CLOSE:
                channel.abort()
            else:
                channel.send(frame)
        if self.coordinator.verdict.result is not None and len(self._tasks) == 1:
            self._tasks.append(asyncio.create_task(self._announce_result()))

    async def _announce_result(self) -> None:
        await self._on_result()
        self.coordinator.announce_result()
        self._send_outbox()
