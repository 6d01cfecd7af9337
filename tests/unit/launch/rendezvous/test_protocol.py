"""Frames over a real connection; forged, replayed, endless or invalid frames are refused."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any

import pytest

from tftraining.launch.rendezvous import protocol
from tftraining.launch.rendezvous.protocol import (
    CHUNK_BYTES,
    FRAME_BYTES,
    Channel,
    ConnectionClosedError,
    Frame,
    ProtocolError,
    accept,
    connect,
    open_connection,
)

SECRET = b"secret"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Streams, Streams]]:
    """Both ends of a connection: the chief's, the member's."""
    accepted: asyncio.Queue[Streams] = asyncio.Queue()
    server = await asyncio.start_server(lambda r, w: accepted.put_nowait((r, w)), "127.0.0.1", 0, limit=FRAME_BYTES)
    port = server.sockets[0].getsockname()[1]
    member = await asyncio.open_connection("127.0.0.1", port, limit=FRAME_BYTES)
    chief = await accepted.get()
    try:
        yield chief, member
    finally:
        server.close()
        for _, writer in (chief, member):
            writer.transport.abort()
        await asyncio.sleep(0)


@asynccontextmanager
async def channels() -> AsyncIterator[tuple[Channel, Channel, Frame]]:
    """Both ends after the greeting, and the member's first frame."""
    async with pair() as (chief, member):
        there = asyncio.create_task(accept(*chief, SECRET))
        near = await connect(*member, SECRET, {"type": "hello"})
        far, first = await there
        yield far, near, first


@contextmanager
def silent_server() -> Iterator[tuple[str, int]]:
    """An address that answers no connection, as that of a pod that is gone: the queue of its listener is full."""
    with socket.create_server(("127.0.0.2", 0), backlog=0) as server, ExitStack() as stack:
        address = server.getsockname()
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        yield address


async def test_the_next_address_of_a_name_is_tried_when_the_first_one_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with silent_server() as (gone, port):
        server = await asyncio.start_server(lambda _, writer: writer.transport.abort(), "127.0.0.1", port)

        loop = asyncio.get_running_loop()
        look_up = loop.getaddrinfo

        async def late_dns(host: str, *words: Any, **options: Any) -> list[Any]:
            hosts = (gone, "127.0.0.1") if host == "a-name" else (host,)
            return [found for each in hosts for found in await look_up(each, *words, **options)]

        monkeypatch.setattr(protocol, "CONNECT_SECONDS", 0.4)
        monkeypatch.setattr(loop, "getaddrinfo", late_dns)
        _, writer = await open_connection("a-name", port, limit=FRAME_BYTES)
        assert writer.get_extra_info("peername") == ("127.0.0.1", port)
        writer.transport.abort()
        server.close()
        with pytest.raises(asyncio.TimeoutError, match=f"^no answer from {gone}$"):
            await open_connection(gone, port, limit=FRAME_BYTES)


async def test_frames_pass_in_both_directions() -> None:
    async with channels() as (chief, member, first):
        assert first == {"type": "hello"}
        for number in range(3):
            chief.send({"n": number})
            member.send({"m": number})
        assert [await member.receive() for _ in range(3)] == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert [await chief.receive() for _ in range(3)] == [{"m": 0}, {"m": 1}, {"m": 2}]
        chief.close()
        with pytest.raises(ConnectionClosedError):
            await member.receive()


async def test_another_secret_is_refused() -> None:
    async with pair() as (chief, member):
        there = asyncio.create_task(accept(*chief, SECRET))
        await connect(*member, b"another", {"type": "hello"})
        with pytest.raises(ProtocolError, match="invalid signature"):
            await there


@pytest.mark.parametrize(
    "harm",
    [
        lambda lines: [lines[0], lines[0]],  # replayed
        lambda lines: [lines[1], lines[0]],  # reordered
        lambda lines: [lines[0].replace(b"1", b"2", 1)],
        lambda lines: [b"x" * 2 * FRAME_BYTES],
        lambda lines: [b"\n"],
    ],
    ids=["replayed", "reordered", "changed", "endless", "empty"],
)
async def test_a_tampered_frame_is_refused(harm: Callable[[list[bytes]], list[bytes]]) -> None:
    async with pair() as (chief, member):
        there = asyncio.create_task(accept(*chief, SECRET))
        near = await connect(*member, SECRET, {"type": "hello"})
        far, _ = await there
        lines: list[bytes] = []
        real = member[1].write
        member[1].write = lines.append  # type: ignore[method-assign,assignment]
        near.send({"n": 11})
        near.send({"n": 12})
        for line in harm(lines):
            real(line)
        with pytest.raises(ProtocolError):
            for _ in lines:
                await asyncio.wait_for(far.receive(), 5)


async def test_chunks_pass_between_frames() -> None:
    async with channels() as (chief, member, _):
        sent: list[Frame | bytes] = [{"n": 1}, b"x" * CHUNK_BYTES, b"", b"\n{}\n", {"n": 2}]
        for each in sent:
            await member.send_chunk(each) if isinstance(each, bytes) else member.send(each)
        assert [await chief.receive_chunk() for _ in sent] == sent


@pytest.mark.parametrize(
    "harm",
    [
        lambda lines: lines[:2] * 2,  # replayed
        lambda lines: lines[2:] + lines[:2],  # reordered
        lambda lines: [lines[0], lines[3]],  # with the bytes of another
        lambda lines: [lines[0].replace(b" 5\n", b" 6\n"), lines[1] + b"x"],
        lambda lines: [b"0" * 64 + b" %d\n" % (CHUNK_BYTES + 1)],
        lambda lines: [b"0" * 64 + b" 99999999999999999999\n"],
    ],
    ids=["replayed", "reordered", "changed", "longer", "too long", "endless"],
)
async def test_a_tampered_chunk_is_refused(harm: Callable[[list[bytes]], list[bytes]]) -> None:
    async with channels() as (chief, member, _):
        lines: list[bytes] = []
        real = member._writer.write
        member._writer.write = lines.append  # type: ignore[method-assign,assignment]
        await member.send_chunk(b"chunk")
        await member.send_chunk(b"other")
        for line in harm(lines):
            real(line)
        with pytest.raises(ProtocolError):
            for _ in range(2):
                await asyncio.wait_for(chief.receive_chunk(), 5)


async def test_a_reflected_frame_is_refused() -> None:
    async with pair() as (chief, member):
        there = asyncio.create_task(accept(*chief, SECRET))
        near = await connect(*member, SECRET, {"type": "hello"})
        far, _ = await there
        far.send({"type": "stop"})
        member[1].write(await member[0].readline())  # the chief's own words
        with pytest.raises(ProtocolError, match="invalid signature"):
            await far.receive()
        near.abort()


async def test_a_peer_that_does_not_read_is_disconnected() -> None:
    async with channels() as (chief, _, _):
        for _ in range(1000):
            chief.send({"text": "x" * 60_000})
        assert chief.is_aborted


@pytest.mark.parametrize("nonce", [b'"\\ud800"', b'"\\u00e9"', b"[]", b"null", b"7"])
async def test_a_greeting_that_no_launcher_sends_ends_the_connection_only(nonce: bytes) -> None:
    # Whoever has the chief's address may send it: nothing of it is signed.
    reader = asyncio.StreamReader()
    reader.feed_data(b'{"tftraining":1,"nonce":' + nonce + b"}\n")
    async with pair() as (_, (_, writer)):
        with pytest.raises(ProtocolError, match="greets like no launcher"):
            await connect(reader, writer, SECRET, {"type": "hello"})
