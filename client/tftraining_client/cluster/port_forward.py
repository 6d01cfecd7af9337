"""Forwards connections to a loopback port into a pod, one WebSocket each (Kubernetes' protocol v4.channel.k8s.io).

The kubelet connects inside the pod, so no NetworkPolicy has to let it. Each message begins with the number of its
channel: 0 has the data, 1 an error; the first message of each channel is the port.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import aiohttp

from tftraining_api.kube.api import Api, ApiError
from tftraining_client.errors import UserError

HOST = "127.0.0.1"
PROTOCOL = "v4.channel.k8s.io"
DATA, ERROR = 0, 1
CHUNK = 65536
ENDS = (401, 403, 404)  # statuses that hold for each further connection


class PortForward:
    """The forwarding of one port of a pod. `failed` is the error that ends it."""

    def __init__(self, api: Api, pod_path: str, port: int) -> None:
        self._api = api
        self._path = f"{pod_path}/portforward"
        self._port = port
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection until either side ends it."""
        try:
            async with self._api.websocket(self._path, [("ports", str(self._port))], PROTOCOL) as socket:
                # When one side ends, so does the other: TensorBoard keeps a connection that the browser has closed.
                both = [asyncio.create_task(each) for each in (_send(reader, socket), _receive(socket, writer))]
                try:
                    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for each in both:
                        each.cancel()
                    await asyncio.gather(*both, return_exceptions=True)
        except ApiError as error:
            if error.status in ENDS and not self.failed.done():
                self.failed.set_exception(error)
        except (OSError, aiohttp.ClientError):
            pass  # the browser has closed the connection
        finally:
            writer.close()


@asynccontextmanager
async def forwarded(api: Api, pod_path: str, port: int, local_port: int) -> AsyncIterator[tuple[int, PortForward]]:
    """Listen on the loopback port (0: any free one) as long as the block runs; the port, and the forwarding."""
    forward = PortForward(api, pod_path, port)
    try:
        server = await asyncio.start_server(forward.take, HOST, local_port)
    except OSError as error:
        raise UserError(f"cannot listen on {HOST}:{local_port}: {error.strerror}; choose another --port") from error
    try:
        yield server.sockets[0].getsockname()[1], forward
    finally:
        server.close()
        forward.failed.cancel()


async def _send(reader: asyncio.StreamReader, socket: aiohttp.ClientWebSocketResponse) -> None:
    with suppress(OSError, aiohttp.ClientError):
        while chunk := await reader.read(CHUNK):
            await socket.send_bytes(bytes([DATA]) + chunk)


async def _receive(socket: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter) -> None:
    began: set[int] = set()
    async for message in socket:
        if message.type != aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel not in began:
            began.add(channel)
        elif channel == ERROR:
            return  # nothing listens in the pod yet
        else:
            writer.write(data)
            await writer.drain()
