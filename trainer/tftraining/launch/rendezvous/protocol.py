"""Frames between two launchers: each a line of JSON with an HMAC-SHA256 that only the job's members can compute.

The key of a connection is derived from the job's secret and a nonce of each side, and every frame is counted, so no
frame can be replayed, reordered or sent back. It must never accept a frame of unlimited length, nor wait for a peer
that does not read. The content is not secret and not encrypted. A connection for copies of the training state has keys
of its own, and carries chunks of raw bytes too, each behind a line with its HMAC and length.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from tftraining.launch.config.json_text import parse
from tftraining.launch.wait_for import wait_for

FRAME_BYTES = 64 * 1024
UNSENT_BYTES = 4 * FRAME_BYTES  # a peer that leaves this much unread counts as gone
HANDSHAKE_SECONDS = 5.0
CONNECT_SECONDS = 3.0  # a new attempt resolves the host name again
CHUNK_BYTES = 256 * 1024
RENDEZVOUS, COPIES = b"tftraining/1", b"tftraining/1 copies"  # the purposes of a connection
# What the reading of an invalid frame of a member may raise; JSON has numbers that no integer can be (1e999).
FRAME_ERRORS = (KeyError, TypeError, ValueError, AttributeError, OverflowError)

Frame = dict[str, Any]
_encode = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps would create an encoder for each frame
_T = TypeVar("_T")


class ProtocolError(ConnectionError):
    """The peer is gone, is no member of this job, or violates the protocol."""


class ConnectionClosedError(ProtocolError):
    """The peer, or its kernel, has closed the connection; silence alone does not raise this."""


class Channel:
    """An authenticated connection. `receive` has one caller at a time; `send` never waits."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: bytes, side: bytes) -> None:
        self._reader = reader
        self._writer = writer
        self.is_aborted = False
        self._received = b""  # received and not yet returned
        self._sending = _Signer(key, side)
        self._receiving = _Signer(key, b"chief" if side == b"member" else b"member")

    def send(self, frame: Frame) -> None:
        """Send a frame, or close the connection if the peer has not read the earlier ones. Never raises."""
        if self._writer.is_closing():
            return
        body = _encode(frame).encode()
        self._writer.write(self._sending.sign(body) + b" " + body + b"\n")
        if self._writer.transport.get_write_buffer_size() > UNSENT_BYTES:
            self.abort()

    @property
    def has_pending(self) -> bool:
        """Whether another frame has arrived already: the reader has fallen behind."""
        return b"\n" in self._received

    async def receive(self) -> Frame:
        """The next frame; ProtocolError if the connection fails."""
        line = self._take(await self._find_line_end())
        seal, _, body = line.partition(b" ")
        _compare(seal, self._receiving.sign(body))
        return _parse(body)

    async def send_chunk(self, data: bytes) -> None:
        """Send raw bytes, at most CHUNK_BYTES, and wait until the peer has read most; ProtocolError if it is gone."""
        if self._writer.is_closing():
            raise ConnectionClosedError("the connection was closed")
        self._writer.write(b"%s %d\n" % (self._sending.sign_chunk(data), len(data)))
        self._writer.write(data)
        try:
            await self._writer.drain()
        except OSError as error:
            raise ProtocolError(str(error) or "the connection broke") from None

    async def receive_chunk(self) -> bytes | Frame:
        """The next chunk, or the frame that comes in place of one; ProtocolError if the connection fails."""
        end = await self._find_line_end()
        seal, _, told = self._received[:end].partition(b" ")
        if not told.isdigit():
            return await self.receive()
        size = int(told) if len(told) < 9 else CHUNK_BYTES + 1
        if size > CHUNK_BYTES:
            raise ProtocolError("a chunk is too long")
        self._take(end)
        data = await self._read_exactly(size)
        _compare(seal, self._receiving.sign_chunk(data))
        return data

    async def _find_line_end(self) -> int:
        """The place of the next line's end in the buffer."""
        while (end := self._received.find(b"\n")) < 0:
            if len(self._received) > FRAME_BYTES:
                raise ProtocolError("a frame is too long")
            self._received += await _read_bytes(self._reader.read(FRAME_BYTES))
        return end

    def _take(self, end: int) -> bytes:
        """Remove and return the line that ends there."""
        line, self._received = self._received[:end], self._received[end + 1 :]
        return line

    async def _read_exactly(self, size: int) -> bytes:
        """So many bytes, the buffered ones first."""
        head, self._received = self._received[:size], self._received[size:]
        if len(head) == size:
            return head
        try:
            return head + await _read_bytes(self._reader.readexactly(size - len(head)))
        except asyncio.IncompleteReadError:
            raise ConnectionClosedError("the connection was closed") from None

    def close(self) -> None:
        """Send the buffered frames, then close."""
        self._writer.close()

    def abort(self) -> None:
        """Close at once, and drop unsent frames."""
        self.is_aborted = True
        self._writer.transport.abort()


class _Signer:
    """The signatures of one direction of one connection, in order."""

    def __init__(self, key: bytes, side: bytes) -> None:
        self._key = key
        self._side = side
        self._count = 0

    def sign(self, body: bytes) -> bytes:
        self._count += 1
        text = b"%s %d " % (self._side, self._count) + body
        return hmac.new(self._key, text, "sha256").hexdigest().encode()

    def sign_chunk(self, data: bytes) -> bytes:
        """The signature of raw bytes, which no frame can have: a frame begins with a brace."""
        self._count += 1
        signature = hmac.new(self._key, b"%s %d chunk %d " % (self._side, self._count, len(data)), "sha256")
        signature.update(data)  # not concatenated: a chunk is long
        return signature.hexdigest().encode()


def _compare(seal: bytes, expected: bytes) -> None:
    """ProtocolError if a frame or chunk was not signed by a member of this job."""
    if not hmac.compare_digest(seal, expected):
        raise ProtocolError("a frame has an invalid signature: the launchers have different keys")


async def open_connection(host: str, port: int, limit: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection with this limit for a line, in bytes. OSError, or asyncio.TimeoutError: both say what is wrong.

    A name may have several addresses: that of a pod that is gone, while the DNS is late, or one of a family that is not
    routed. Each has its share of CONNECT_SECONDS, or the first would use up the time of each attempt. (asyncio's own
    way, happy_eyeballs_delay, leaves sockets open when it is cancelled.)
    """
    addresses = await _resolve(host, port)
    problem: OSError | None = None
    for address in addresses:
        try:
            return await _open(address, port, limit, CONNECT_SECONDS / len(addresses))
        except asyncio.TimeoutError:
            continue
        except OSError as error:
            problem = error
    raise problem or asyncio.TimeoutError(f"no answer from {', '.join(addresses)}")


async def _resolve(host: str, port: int) -> list[str]:
    """The addresses of a host, without duplicates."""
    try:
        looking = asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        found = await wait_for(looking, CONNECT_SECONDS)
    except asyncio.TimeoutError:
        raise asyncio.TimeoutError(f"no answer from the DNS for {host}") from None
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def _open(
    address: str, port: int, limit: int, seconds: float
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    opening = asyncio.ensure_future(asyncio.open_connection(address, port, limit=limit))
    try:
        return await wait_for(opening, seconds)
    except asyncio.CancelledError:
        opening.add_done_callback(_abort_connection)  # it may have been opened in the same moment
        raise


def _abort_connection(opening: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result()[1].transport.abort()


async def accept(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes, purpose: bytes = RENDEZVOUS
) -> tuple[Channel, Frame]:
    """The server's side, in the rendezvous the chief's: greet a connection; return the channel and the member's first
    frame, or raise ProtocolError."""
    own_nonce = secrets.token_hex(16)
    writer.write(json.dumps({"tftraining": 1, "nonce": own_nonce}).encode() + b"\n")
    return await _with_timeout(_read_first_frame(reader, writer, partial(_derive_key, purpose, secret, own_nonce)))


async def connect(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    secret: bytes,
    first_frame: Frame,
    purpose: bytes = RENDEZVOUS,
) -> Channel:
    """The member's side: answer the greeting with the first frame. The chief's signed reply authenticates the chief."""
    own_nonce = secrets.token_hex(16)
    greeting = _parse(await _with_timeout(_read_line(reader)))
    if greeting.get("tftraining") != 1:
        raise ProtocolError("the server at this address is no launcher of a compatible version")
    nonce = greeting.get("nonce")
    if not isinstance(nonce, str) or not nonce.isascii():
        raise ProtocolError("the server at this address greets like no launcher")
    channel = Channel(reader, writer, _derive_key(purpose, secret, nonce, own_nonce), b"member")
    writer.write(own_nonce.encode() + b"\n")
    channel.send(first_frame)
    return channel


async def _read_first_frame(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, derive_key: Callable[[str], bytes]
) -> tuple[Channel, Frame]:
    member_nonce = (await _read_line(reader)).decode("ascii", "replace")
    channel = Channel(reader, writer, derive_key(member_nonce), b"chief")
    return channel, await channel.receive()


async def _with_timeout(step: Awaitable[_T]) -> _T:
    try:
        return await wait_for(step, HANDSHAKE_SECONDS)
    except asyncio.TimeoutError:
        raise ProtocolError(f"the handshake timed out after {HANDSHAKE_SECONDS:g} s") from None


def _derive_key(purpose: bytes, secret: bytes, server_nonce: str, member_nonce: str) -> bytes:
    text = b"%s %s %s" % (purpose, server_nonce.encode(), member_nonce.encode())
    return hmac.new(secret, text, hashlib.sha256).digest()


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    """A line without its end. The reader's own limit bounds the length of a line."""
    line = await _read_bytes(reader.readline())
    if not line.endswith(b"\n"):
        raise ConnectionClosedError("the connection was closed")
    return line[:-1]


async def _read_bytes(reading: Awaitable[bytes]) -> bytes:
    """The bytes read, never empty; ProtocolError if the connection ends."""
    try:
        data = await reading
    except (ConnectionResetError, BrokenPipeError):
        raise ConnectionClosedError("the connection was reset") from None
    except (ValueError, OSError) as error:
        raise ProtocolError(str(error) or "the connection broke") from None
    if not data:
        raise ConnectionClosedError("the connection was closed")
    return data


def _parse(body: bytes) -> Frame:
    try:
        frame = parse(body.decode())  # given bytes, the parser would first have to detect their encoding
    except ValueError:
        raise ProtocolError("a frame is not JSON") from None
    if not isinstance(frame, dict):
        raise ProtocolError("a frame is not an object")
    return frame
