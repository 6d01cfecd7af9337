"""Connections without a member's key, or of former members, cannot disturb the rendezvous."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.launchers.gang import UID, LocalGang
from tests.support.ports import free_ports
from tests.support.simulated_gang.simulation import make_coordinator
from tftraining.launch.rendezvous.protocol import Channel, ProtocolError, connect
from tftraining.launch.rendezvous.server import RendezvousServer

SECRET = b"a secret of the tests"
NOISES = (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 200_000, b"nonce\n" + b"{}\n" * 10)
ENDLESS = ("--epochs", "100000", "--steps", "10")


def hello(member: str, **fields: Any) -> dict[str, Any]:
    frame = {"type": "hello", "t": 0.0, "uid": UID, "attempt": 1, "member": member, "incarnation": "of the test"}
    last = {"round": 0, "known": 0, "witness": 0, "ledger": {}, "running": False, "down": None, "step": None}
    return {**frame, **last, **fields}


@asynccontextmanager
async def dialled(
    gang: LocalGang, first: dict[str, Any], secret: bytes = SECRET
) -> AsyncIterator[tuple[Channel, dict[str, Any]]]:
    """A connection of a member, and the chief's first word."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gang.rendezvous)
    try:
        channel = await connect(reader, writer, secret, first)
        yield channel, await asyncio.wait_for(channel.receive(), 60)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_a_handshake_is_aborted_when_the_server_closes() -> None:
    async def nothing() -> None:
        """No verdict is left anywhere."""

    port = free_ports(1)[0]
    rendezvous = RendezvousServer(make_coordinator(), lambda: SECRET, nothing)
    await rendezvous.open("127.0.0.1", port)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await reader.readline()  # it is asked who it is
    await rendezvous.close()
    assert await asyncio.wait_for(reader.read(), 2) == b""
    writer.close()


def talk_to(gang: LocalGang, said: bytes) -> None:
    """Say something to the rendezvous, and read until it closes the connection."""
    with socket.create_connection(("127.0.0.1", gang.rendezvous), 10) as loud, contextlib.suppress(ConnectionError):
        loud.sendall(said)
        while loud.recv(4096):
            pass


async def test_unauthenticated_connections_are_dropped(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, *ENDLESS) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        with ThreadPoolExecutor(100) as crowd:
            list(crowd.map(partial(talk_to, gang), [b""] * 97 + list(NOISES)))
        with pytest.raises(ProtocolError):
            async with dialled(gang, hello("worker-1"), b"another secret"):
                pass
        status = gang.status()
        assert (status["phase"], status["round"]) == ("Training", 1)


@pytest.mark.slow_fault
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"attempt": 0}, "the attempt is 1, not 0"),
        ({"uid": "another"}, "belongs to another job"),
        ({"member": "worker-7"}, "worker-7 is not a member"),
        ({"member": "worker-1"}, "another launcher of worker-1 is connected"),
    ],
)
async def test_a_refused_member_gets_the_reason(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    with LocalGang(tmp_path, {"worker": 2}, *ENDLESS) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        async with dialled(gang, hello(**{"member": "worker-1", **change})) as (_, answer):
            assert (answer["type"], why in answer["why"]) == ("refused", True)
        await asyncio.sleep(0.3)
        assert (gang.status()["phase"], gang.status()["round"]) == ("Training", 1)


async def test_a_half_open_connection_is_replaced(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, *ENDLESS, memberTimeoutSeconds=1) as gang:
        gang.start("worker-0")
        gang.wait_for(lambda: gang.get("worker-0", "/healthz")[0] == 200)
        await asyncio.sleep(0.3)
        async with dialled(gang, hello("worker-1")) as (_, answer):
            assert answer["type"] == "welcome"
            gang.start("worker-1")
            status = gang.wait_for_phase("Training")
            assert status["lastRestart"]["member"] == "worker-1"
            assert status["members"]["worker-1"]["pid"] is not None


async def test_a_member_that_sends_invalid_frames_is_disconnected(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, *ENDLESS) as gang:
        gang.start("worker-0")
        gang.wait_for(lambda: gang.get("worker-0", "/healthz")[0] == 200)
        await asyncio.sleep(0.3)
        async with dialled(gang, hello("worker-1")) as (channel, _):
            beat = {"type": "beat", "t": 1.0, "round": 1, "mode": "", "pid": None, "stuck": "very", "progress": []}
            channel.send(beat)
            with pytest.raises(ProtocolError):
                while True:
                    await asyncio.wait_for(channel.receive(), 60)
