"""Hundreds of members over loopback: each gets every round once, and no round starts before the last one has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.heartbeat_members import Crowd, LauncherMember, RoundCount
from tests.support.ports import free_ports
from tests.support.simulated_gang.simulation import make_coordinator
from tftraining.launch.rendezvous.server import RendezvousServer

SECRET = b"a secret of the tests"
MEMBERS = 300
NAMES = [f"worker-{index}" for index in range(MEMBERS)]
PATIENCE = 60.0  # seconds; a busy machine needs a few


async def no_verdict() -> None:
    """None is left anywhere."""


async def open_rendezvous(port: int) -> RendezvousServer:
    """A new rendezvous of the chief, for all members."""
    coordinator = make_coordinator(*NAMES, start_deadline_seconds=1e9, member_timeout_seconds=PATIENCE)
    rendezvous = RendezvousServer(coordinator, lambda: SECRET, no_verdict)
    await rendezvous.open("127.0.0.1", port)
    return rendezvous


async def until_all_run(crowd: Crowd, number: int) -> None:
    """Return when all members are in the round."""
    async with asyncio.timeout(PATIENCE):
        while crowd.rounds.get(number, RoundCount()).starts < MEMBERS:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@asynccontextmanager
async def connected(crowd: Crowd) -> AsyncIterator[list[LauncherMember]]:
    """All members, until the end of the test."""
    members = [LauncherMember(crowd, name) for name in NAMES]
    await asyncio.gather(*(member.dial() for member in members))
    try:
        yield members
    finally:
        for member in members:
            member.leave()


async def test_rounds_of_a_large_gang_are_apart_and_reach_each_member_once() -> None:
    (port,) = free_ports(1)
    crowd = Crowd(("127.0.0.1", port), NAMES, SECRET, "uid", MEMBERS)
    rendezvous = await open_rendezvous(port)
    try:
        async with connected(crowd) as members:
            await until_all_run(crowd, 1)
            members[7].kill()
            await until_all_run(crowd, 2)
            await rendezvous.close(say_bye=True)
            rendezvous = await open_rendezvous(port)
            await until_all_run(crowd, 3)
    finally:
        await rendezvous.close()
    assert {number: found.starts for number, found in crowd.rounds.items()} == dict.fromkeys((1, 2, 3), MEMBERS)
    assert crowd.rounds[1].ended < crowd.rounds[2].begun
    assert crowd.rounds[2].ended < crowd.rounds[3].begun
