"""Idle connections keep nobody out, neither a probe of the pages nor a member of the rendezvous."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.ports import free_ports
from tests.support.simulated_gang.simulation import hello, make_coordinator
from tftraining.launch.http.server import CONNECTIONS, HttpServer, Response
from tftraining.launch.rendezvous.protocol import connect
from tftraining.launch.rendezvous.server import UNAUTHENTICATED_LIMIT, RendezvousServer

SECRET = b"a secret of the tests"


@asynccontextmanager
async def crowd(port: int, size: int) -> AsyncIterator[list[asyncio.StreamReader]]:
    """So many connections that say nothing, each accepted before the next."""
    held = []
    for _ in range(size):
        held.append(await asyncio.open_connection("127.0.0.1", port))
        await asyncio.sleep(0)
    try:
        yield [reader for reader, _ in held]
    finally:
        for _, writer in held:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def test_idle_connections_do_not_keep_a_probe_out() -> None:
    port = free_ports(1)[0]
    server = HttpServer({"/healthz": lambda: Response(200, "ok\n")})
    await server.open("127.0.0.1", port)
    async with crowd(port, CONNECTIONS) as readers:
        for number in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert await asyncio.wait_for(reader.readline(), 2) == b"HTTP/1.1 200 OK\r\n", number
            writer.close()
        assert await asyncio.wait_for(readers[0].read(), 2) == b"", "the oldest was closed"
        assert not readers[-1].at_eof()
    await server.close()


async def test_unauthenticated_connections_do_not_keep_a_member_out() -> None:
    async def nothing() -> None:
        """No verdict is left anywhere."""

    port, chief = free_ports(1)[0], make_coordinator()
    rendezvous = RendezvousServer(chief, lambda: SECRET, nothing)
    await rendezvous.open("127.0.0.1", port)
    async with crowd(port, UNAUTHENTICATED_LIMIT + len(chief.membership.gang)) as readers:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        channel = await connect(reader, writer, SECRET, hello("worker-1"))
        assert (await asyncio.wait_for(channel.receive(), 2))["type"] == "welcome"
        assert await asyncio.wait_for(readers[0].readline(), 2), "it was greeted"
        assert await asyncio.wait_for(readers[0].read(), 2) == b"", "the oldest was closed"
        assert not readers[-1].at_eof()
        writer.close()
    await rendezvous.close()
