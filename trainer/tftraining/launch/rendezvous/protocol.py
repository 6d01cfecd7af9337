"""Frames between two launchers: each a line of JSON with an HMAC-SHA256 that only the job's members can compute.

The key of a connection is derived from the job's secret and a nonce of each side, and every frame is counted, so no
frame can be replayed, reordered or sent back. It must never accept a frame of unlimited length, nor wait for a peer
that does not read. The content is not secret and not encrypted.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
from collections.abc import Awaitable
from typing import Any, TypeVar

from tftraining.launch.config.json_text import parse

FRAME_BYTES = 64 * 1024
UNSENT_BYTES = 4 * FRAME_BYTES  # a peer that leaves this much unread counts as gone
HANDSHAKE_SECONDS = 5.0

Frame = dict[str, Any]
_encode = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps would create an encoder for each frame
_T = TypeVar("_T")


class WireError(ConnectionError):
    """The peer is gone, is no member of this job, or violates the protocol."""


class GoneError(WireError):
    """The peer, or its kernel, has closed the connection; silence alone does not raise this."""


class Channel:
    """An authenticated connection. `receive` has one caller at a time; `send` never waits."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: bytes, side: bytes) -> None:
        self._reader = reader
        self._writer = writer
        self.aborted = False
        self._arrived = b""  # received and not yet returned
        self._sending = _Sealer(key, side)
        self._receiving = _Sealer(key, b"chief" if side == b"member" else b"member")

    def send(self, frame: Frame) -> None:
        """Send a frame, or close the connection if the peer has not read the earlier ones. Never raises."""
        if self._writer.is_closing():
            return
        body = _encode(frame).encode()
        self._writer.write(self._sending.seal(body) + b" " + body + b"\n")
        if self._writer.transport.get_write_buffer_size() > UNSENT_BYTES:
            self.abort()

    @property
    def pending(self) -> bool:
        """Whether another frame has arrived already: the reader has fallen behind."""
        return b"\n" in self._arrived

    async def receive(self) -> Frame:
        """The next frame; WireError if the connection fails."""
        while not self.pending:
            if len(self._arrived) > FRAME_BYTES:
                raise WireError("a frame is too long")
            self._arrived += await _heard(self._reader.read(FRAME_BYTES))
        line, _, self._arrived = self._arrived.partition(b"\n")
        seal, _, body = line.partition(b" ")
        if not hmac.compare_digest(seal, self._receiving.seal(body)):
            raise WireError("a frame has an invalid signature: the launchers have different keys")
        return _parse(body)

    def close(self) -> None:
        """Send the buffered frames, then close."""
        self._writer.close()

    def abort(self) -> None:
        """Close at once, and drop unsent frames."""
        self.aborted = True
        self._writer.transport.abort()


class _Sealer:
    """The signatures of one direction of one connection, in order."""

    def __init__(self, key: bytes, side: bytes) -> None:
        self._key = key
        self._side = side
        self._count = 0

    def seal(self, body: bytes) -> bytes:
        self._count += 1
        text = b"%s %d " % (self._side, self._count) + body
        return hmac.new(self._key, text, "sha256").hexdigest().encode()


async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes) -> tuple[Channel, Frame]:
    """The chief's side: greet a new connection; return the channel and the member's first frame, or raise WireError."""
    ours = secrets.token_hex(16)
    writer.write(json.dumps({"tftraining": 1, "nonce": ours}).encode() + b"\n")
    return await _limited(_accepted(reader, writer, secret, ours))


async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes, first: Frame) -> Channel:
    """The member's side: answer the greeting with the first frame. The chief's signed reply authenticates the chief."""
    ours = secrets.token_hex(16)
    greeting = _parse(await _limited(_line(reader)))
    if greeting.get("tftraining") != 1:
        raise WireError("the server at this address is no launcher of a compatible version")
    channel = Channel(reader, writer, _key(secret, str(greeting.get("nonce")), ours), b"member")
    writer.write(ours.encode() + b"\n")
    channel.send(first)
    return channel


async def _accepted(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes, ours: str
) -> tuple[Channel, Frame]:
    theirs = (await _line(reader)).decode("ascii", "replace")
    channel = Channel(reader, writer, _key(secret, ours, theirs), b"chief")
    return channel, await channel.receive()


async def _limited(step: Awaitable[_T]) -> _T:
    try:
        return await asyncio.wait_for(step, HANDSHAKE_SECONDS)
    except asyncio.TimeoutError:
        raise WireError(f"the handshake timed out after {HANDSHAKE_SECONDS:g} s") from None


def _key(secret: bytes, chiefs: str, members: str) -> bytes:
    return hmac.new(secret, f"tftraining/1 {chiefs} {members}".encode(), hashlib.sha256).digest()


async def _line(reader: asyncio.StreamReader) -> bytes:
    """A line without its end. The reader's own limit bounds the length of a line."""
    line = await _heard(reader.readline())
    if not line.endswith(b"\n"):
        raise GoneError("the connection was closed")
    return line[:-1]


async def _heard(reading: Awaitable[bytes]) -> bytes:
    """The bytes read, never empty; WireError if the connection ends."""
    try:
        heard = await reading
    except (ConnectionResetError, BrokenPipeError):
        raise GoneError("the connection was reset") from None
    except (ValueError, OSError) as error:
        raise WireError(str(error) or "the connection broke") from None
    if not heard:
        raise GoneError("the connection was closed")
    return heard


def _parse(body: bytes) -> Frame:
    try:
        frame = parse(body.decode())  # given bytes, the parser would first have to detect their encoding
    except ValueError:
        raise WireError("a frame is not JSON") from None
    if not isinstance(frame, dict):
        raise WireError("a frame is not an object")
    return frame
