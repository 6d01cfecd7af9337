"""A way to a server that can be interrupted, as one of `ssh -L`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


class Tunnel:
    """Passes on what comes, while it is `flowing`."""

    def __init__(self, port: int) -> None:
        self.flowing = asyncio.Event()
        self.flowing.set()
        self._port = port
        self._writers: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """End all connections, which both sides notice."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        there, onward = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers |= {writer, onward}
        await asyncio.gather(self._pass(reader, onward), self._pass(there, writer), return_exceptions=True)

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                await self.flowing.wait()
                target.write(data)
                await target.drain()
        finally:
            target.close()


@asynccontextmanager
async def tunnelled(url: str) -> AsyncIterator[tuple[str, Tunnel]]:
    """The address of the same page through a tunnel, and the tunnel."""
    port = urlsplit(url).port
    assert port is not None
    tunnel = Tunnel(port)
    async with await asyncio.start_server(tunnel.serve, "127.0.0.1", 0) as server:
        yield url.replace(f":{port}/", f":{server.sockets[0].getsockname()[1]}/"), tunnel
        tunnel.flowing.set()
        tunnel.cut()
