"""Copies of the training state pass from launcher to launcher over a real connection; no peer can do harm by it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.launchers.copies import is_whole, write_copy
from tests.support.launchers.harness import until
from tftraining.launch.config.settings import MemoryBackupSettings
from tftraining.launch.in_user_process.memory_backup import copy_file
from tftraining.launch.process import copy_files
from tftraining.launch.process.memory_store import MemoryStore
from tftraining.launch.rendezvous import copy_client, copy_server, protocol
from tftraining.launch.rendezvous.copy_client import CopyClient
from tftraining.launch.rendezvous.copy_server import CopyServer
from tftraining.launch.rendezvous.protocol import COPIES, RENDEZVOUS, Channel, Frame, ProtocolError

SECRET, UID = b"secret", "uid"
HOST = "127.0.0.1"
SIZE = 1_000_000


@pytest.fixture(autouse=True)
async def settled() -> AsyncIterator[None]:
    """Lets the loop close what a test has aborted."""
    yield
    await asyncio.sleep(0.01)


@asynccontextmanager
async def served(directory: Path, secret: bytes = SECRET, uid: str = UID) -> AsyncIterator[CopyServer]:
    server = CopyServer(directory, uid, lambda: secret)
    await server.open(HOST)
    try:
        yield server
    finally:
        await server.close()


@asynccontextmanager
async def client(place: Path, size: int | None = None) -> AsyncIterator[tuple[CopyClient, Path]]:
    store = MemoryStore.temporary(MemoryBackupSettings(size_limit=size), place)
    client = CopyClient(store, UID, lambda: SECRET)
    try:
        yield client, store.directory
    finally:
        client.close()
        store.close(ended=True)


def left(directory: Path) -> list[str]:
    """What is in a store beside its own files."""
    return sorted(path.name for path in directory.iterdir() if path.name not in ("lock", "request"))


async def test_a_copy_arrives_whole(tmp_path: Path) -> None:
    write_copy(tmp_path, 2, 5, SIZE)
    async with served(tmp_path) as server, client(tmp_path) as (receiver, directory):
        assert server.port is not None
        assert await receiver.fetch((2, 5), HOST, server.port) == SIZE + copy_file.HEAD
        assert left(directory) == ["copy-2-5"]
        assert is_whole(directory / "copy-2-5", 5)


@pytest.mark.parametrize("told", [[2, 5, 1], [2], [2, -1], [True, 5], ["../copy-2", 5], "copy-2-5", None, [2, 10**18]])
async def test_nothing_else_can_be_named(tmp_path: Path, told: object) -> None:
    write_copy(tmp_path, 1, 5)
    async with served(tmp_path) as server:
        channel = await connected(server, {"type": "fetch", "uid": UID, "copy": told})
        assert (await channel.receive())["type"] == "refused"
        channel.abort()


async def connected(
    server: CopyServer, order: Frame, secret: bytes = SECRET, purpose: bytes = COPIES, own: str = HOST
) -> Channel:
    assert server.port is not None
    reader, writer = await asyncio.open_connection(HOST, server.port, local_addr=(own, 0))
    return await protocol.connect(reader, writer, secret, order, purpose)


@pytest.mark.parametrize("order", [{}, {"type": "fetch"}, {"type": "fetch", "uid": "another", "copy": [1, 5]}])
async def test_a_stranger_or_another_job_gets_no_copy(tmp_path: Path, order: Frame) -> None:
    write_copy(tmp_path, 1, 5)
    async with served(tmp_path) as server:
        channel = await connected(server, order)
        assert (await channel.receive())["type"] == "refused"
        channel.abort()
        right = {"type": "fetch", "uid": UID, "copy": [1, 5]}
        for secret, purpose in ((b"another", COPIES), (SECRET, RENDEZVOUS)):
            channel = await connected(server, right, secret, purpose)
            with pytest.raises(ProtocolError):
                await channel.receive()
            channel.abort()


async def test_an_absent_copy_is_refused_and_the_program_told(tmp_path: Path) -> None:
    async with served(tmp_path) as server, client(tmp_path) as (receiver, directory):
        assert server.port is not None
        with pytest.raises(OSError, match="No such file"):
            await receiver.fetch((2, 5), HOST, server.port)
        assert left(directory) == ["failed-2-5"]


async def test_a_copy_that_is_overwritten_while_it_is_sent_does_not_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_copy(tmp_path, 2, 5, SIZE)
    real = copy_files.OutgoingCopy.read

    def read(copy: copy_files.OutgoingCopy, offset: int) -> bytes:
        if offset and path.exists():
            path.rename(tmp_path / "free-2-5")
        return real(copy, offset)

    monkeypatch.setattr(copy_files.OutgoingCopy, "read", read)
    async with served(tmp_path) as server, client(tmp_path) as (receiver, directory):
        assert server.port is not None
        with pytest.raises(ProtocolError, match="overwritten or removed meanwhile"):
            await receiver.fetch((2, 5), HOST, server.port)
        assert left(directory) == ["failed-2-5"]


async def test_a_full_memory_leaves_only_the_mark_of_the_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_copy(tmp_path, 2, 5, SIZE)

    def full(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    async with served(tmp_path) as server, client(tmp_path) as (receiver, directory):
        assert server.port is not None
        with pytest.raises(OSError, match="No space left"):
            await receiver.fetch((2, 5), HOST, server.port)
        assert left(directory) == ["failed-2-5"]


async def test_a_copy_above_the_size_limit_is_not_fetched(tmp_path: Path) -> None:
    write_copy(tmp_path, 2, 5, SIZE)
    async with served(tmp_path) as server, client(tmp_path, size=SIZE) as (receiver, directory):
        assert server.port is not None
        with pytest.raises(ValueError, match=f"where at most {SIZE // 2} are allowed"):
            await receiver.fetch((2, 5), HOST, server.port)
        assert left(directory) == ["failed-2-5"]


# A peer that is a member of the job, and sends rubbish.

Harm = Callable[[Channel], Awaitable[None]]
WHOLE = copy_file.MAGIC.ljust(copy_file.HEAD, b"\0")


async def refuse(channel: Channel) -> None:
    channel.send({"type": "refused", "why": "busy"})


async def announce_too_little(channel: Channel) -> None:
    channel.send({"type": "copy", "bytes": 10})


async def announce_no_number(channel: Channel) -> None:
    channel.send({"type": "copy", "bytes": "many"})


async def announce_nothing(channel: Channel) -> None:
    channel.send({"no": "type"})


async def send_too_much(channel: Channel) -> None:
    channel.send({"type": "copy", "bytes": copy_file.HEAD})
    await channel.send_chunk(WHOLE + b"x")


async def send_more_behind(channel: Channel) -> None:
    channel.send({"type": "copy", "bytes": copy_file.HEAD})
    await channel.send_chunk(WHOLE)
    with contextlib.suppress(ProtocolError):
        while True:
            await channel.send_chunk(WHOLE)


async def send_a_frame_in_place_of_a_chunk(channel: Channel) -> None:
    channel.send({"type": "copy", "bytes": copy_file.HEAD})
    channel.send({"type": "whole"})


async def send_an_empty_chunk(channel: Channel) -> None:
    channel.send({"type": "copy", "bytes": copy_file.HEAD})
    await channel.send_chunk(b"")


async def send_no_copy(channel: Channel) -> None:
    channel.send({"type": "copy", "bytes": copy_file.HEAD})
    await channel.send_chunk(bytes(copy_file.HEAD))
    channel.send({"type": "whole"})


async def send_a_forged_chunk(channel: Channel) -> None:
    channel.send({"type": "copy", "bytes": copy_file.HEAD})
    channel._writer.write(b"0" * 64 + b" %d\n" % copy_file.HEAD + WHOLE)


async def send_an_endless_chunk(channel: Channel) -> None:
    channel.send({"type": "copy", "bytes": copy_file.HEAD})
    channel._writer.write(b"0" * 64 + b" 99999999999\n")


async def send_an_endless_line(channel: Channel) -> None:
    channel._writer.write(b"0" * 1_000_000)


async def leave_in_the_middle(channel: Channel) -> None:
    channel.send({"type": "copy", "bytes": 2 * copy_file.HEAD})
    await channel.send_chunk(WHOLE)
    channel.close()
    await asyncio.sleep(0.1)


async def fall_silent(channel: Channel) -> None:
    channel.send({"type": "copy", "bytes": copy_file.HEAD})
    await asyncio.sleep(20)


HARMS: dict[Harm, str] = {
    refuse: "busy",
    announce_too_little: "a copy of 10 bytes",
    announce_no_number: "a copy of many bytes",
    announce_nothing: "type",
    send_too_much: "longer than announced",
    send_more_behind: "longer than announced",
    send_a_frame_in_place_of_a_chunk: "ended early",
    send_an_empty_chunk: "empty",
    send_no_copy: "no complete copy",
    send_a_forged_chunk: "invalid signature",
    send_an_endless_chunk: "too long",
    send_an_endless_line: "too long",
    leave_in_the_middle: "closed",
    fall_silent: "sent nothing for",
}


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: getattr(harm, "__name__", ""))
async def test_a_peer_that_sends_rubbish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: Harm) -> None:
    monkeypatch.setattr(copy_client, "STALL_SECONDS", 0.2 if harm is fall_silent else 20.0)
    tasks: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.ensure_future(misbehave(reader, writer)))

    async def misbehave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channel, _ = await protocol.accept(reader, writer, SECRET, COPIES)
        try:
            await harm(channel)
            await asyncio.sleep(20)
        finally:
            channel.abort()

    server = await asyncio.start_server(serve, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    async with client(tmp_path) as (receiver, directory):
        with pytest.raises((OSError, ValueError, KeyError), match=HARMS[harm]):
            await asyncio.wait_for(receiver.fetch((2, 5), HOST, port), 10)
        assert left(directory) == ["failed-2-5"]
    server.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_server_that_is_no_launcher(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(json.dumps({"hello": "world"}).encode() + b"\n")
        writer.close()

    server = await asyncio.start_server(serve, HOST, 0)
    async with client(tmp_path) as (receiver, directory):
        with pytest.raises(ProtocolError, match="no launcher of a compatible version"):
            await receiver.fetch((2, 5), HOST, server.sockets[0].getsockname()[1])
        server.close()
        await server.wait_closed()
        with pytest.raises(OSError):
            await receiver.fetch((2, 6), HOST, 1)
        assert left(directory) == ["failed-2-5", "failed-2-6"]


# Clients that are slow, silent or many.


async def test_silent_and_slow_clients_keep_no_member_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_server, "STRANGERS", 4)
    monkeypatch.setattr(copy_server, "STALL_SECONDS", 0.3)
    write_copy(tmp_path, 2, 5, 20 * SIZE)
    async with served(tmp_path) as server, client(tmp_path) as (receiver, directory):
        assert server.port is not None
        silent = [await asyncio.open_connection(HOST, server.port) for _ in range(10)]
        order = {"type": "fetch", "uid": UID, "copy": [2, 5]}
        slow = [await connected(server, order) for _ in range(copy_server.TRANSFERS + 2)]  # none of them reads
        await receiver.fetch((2, 5), HOST, server.port)
        assert is_whole(directory / "copy-2-5", 5)
        for _, writer in silent:
            writer.transport.abort()
        for channel in slow:
            channel.abort()


async def test_one_peer_with_many_connections_closes_its_own(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        assert server.port is not None
        reader, writer = await asyncio.open_connection(HOST, server.port, local_addr=("127.0.0.2", 0))
        crowd = [
            await asyncio.open_connection(HOST, server.port, local_addr=("127.0.0.3", 0))
            for _ in range(2 * copy_server.STRANGERS)
        ]
        channel = await protocol.connect(reader, writer, SECRET, {"type": "fetch"}, COPIES)
        assert (await channel.receive())["type"] == "refused"  # it is a member, and names no copy
        for _, each in crowd:
            each.transport.abort()
        channel.abort()


FLOOD = """
import socket, sys
opened = []
while True:
    each = socket.socket()
    each.setblocking(False)
    each.bind(("127.0.0.3", 0))
    try:
        each.connect(("127.0.0.1", int(sys.argv[1])))
    except BlockingIOError:
        pass
    opened.append(each)
    if len(opened) > 200:
        opened.pop(0).close()
"""


@pytest.mark.slow_fault
async def test_one_peer_that_floods_a_server_keeps_no_other_out(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        flood = await asyncio.create_subprocess_exec(sys.executable, "-c", FLOOD, str(server.port))
        try:
            await asyncio.sleep(1.0)
            for _ in range(6):
                opening = connected(server, {"type": "fetch"}, own="127.0.0.2")
                channel = await asyncio.wait_for(opening, protocol.HANDSHAKE_SECONDS)
                answer = await asyncio.wait_for(channel.receive(), protocol.HANDSHAKE_SECONDS)
                assert answer["type"] == "refused"
                channel.abort()
        finally:
            flood.kill()
            await flood.wait()


async def test_a_server_without_a_free_descriptor_serves_again_when_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    real, failed = loop.sock_accept, asyncio.Event()

    async def fail_once(listening: Any) -> Any:
        if failed.is_set():
            return await real(listening)
        failed.set()
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(loop, "sock_accept", fail_once)
    async with served(tmp_path) as server:
        channel = await connected(server, {"type": "fetch"})
        assert (await channel.receive())["type"] == "refused"
        assert failed.is_set()
        channel.abort()


async def test_more_members_than_allowed_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_server, "MEMBERS", 1)
    write_copy(tmp_path, 2, 5, 20 * SIZE)
    async with served(tmp_path) as server:
        order = {"type": "fetch", "uid": UID, "copy": [2, 5]}
        first, second = [await connected(server, order) for _ in range(2)]
        answers = [await first.receive(), await second.receive()]
        assert sorted(each["type"] for each in answers) == ["copy", "refused"]
        first.abort()
        second.abort()


async def test_a_fetch_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    write_copy(tmp_path, 2, 5, 20 * SIZE)
    async with served(tmp_path) as server, client(tmp_path) as (receiver, directory):
        assert server.port is not None
        for turns in range(1, 60, 3):
            fetching = asyncio.ensure_future(receiver.fetch((2, 5), HOST, server.port))
            for _ in range(turns):
                await asyncio.sleep(0.0003)
            fetching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await fetching
            assert [name for name in left(directory) if name != "copy-2-5"] == []


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def threads() -> list[str]:
    names = [each.name for each in threading.enumerate()]
    return [name for name in names if name.startswith(("tftraining-fetch", "tftraining-copies"))]


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("count", [50, pytest.param(1000, marks=pytest.mark.slow_fault)])
async def test_many_fetches_leave_no_descriptor_thread_file_or_memory(tmp_path: Path, count: int) -> None:
    write_copy(tmp_path, 2, 5, SIZE)
    async with served(tmp_path) as server, client(tmp_path) as (receiver, directory):
        assert server.port is not None
        for _ in range(20):
            await receiver.fetch((2, 5), HOST, server.port)
        before, memory = descriptors(), resident_bytes()
        for step in range(count):
            name = (2, 5) if step % 3 else (2, 6)  # which is absent
            with contextlib.suppress(OSError):
                await receiver.fetch(name, HOST, server.port)
        await asyncio.sleep(0.05)
        assert descriptors() <= before
        assert resident_bytes() < memory + count * SIZE / 10
        assert left(directory) == ["copy-2-5", "failed-2-6"]
    await until(lambda: not threads(), "the threads to end")
