"""A gang of hundreds over real connections: each restart keeps the rounds apart, and loses no lease."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.support.ports import free_ports
from tests.support.simulated_gang.connected_members import Crowd, Job, SignedMember, overlaps
from tests.support.simulated_gang.simulation import make_coordinator
from tftraining.launch.rendezvous.server import RendezvousServer

MEMBERS = 300
SECRET = b"a secret of the tests"
LEASE_SECONDS = 2.5
END_SECONDS = 0.2
PATIENCE = 20.0


@asynccontextmanager
async def connected_gang() -> AsyncIterator[Crowd]:
    """A rendezvous, and its members; each takes up to END_SECONDS to end its program."""

    async def nothing() -> None:
        """No verdict is left anywhere."""

    def ignore(what: str) -> None:
        """The tests look at the counts."""

    names = [f"worker-{index}" for index in range(MEMBERS)]
    coordinator = make_coordinator(*names, start_deadline_seconds=math.inf)  # it was created at second 0
    rendezvous = RendezvousServer(coordinator, SECRET, nothing)
    (port,) = free_ports(1)
    await rendezvous.open("127.0.0.1", port)
    chance = random.Random(1)
    job = Job(("127.0.0.1", port), SECRET, "uid", beat_seconds=0.5)
    crowd = Crowd(job, names, ignore, lambda: chance.uniform(0.0, END_SECONDS))
    crowd.connect(SignedMember)
    try:
        yield crowd
    finally:
        crowd.close()
        await rendezvous.close()


async def wait_for(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def wait_for_round(crowd: Crowd, number: int) -> None:
    """Return when as many members as there are have started in the round."""
    await wait_for(lambda: number in crowd.rounds and crowd.rounds[number].starts.total() >= MEMBERS)


async def test_a_killed_program_starts_each_member_once_more_after_all_have_ended() -> None:
    async with connected_gang() as crowd:
        await wait_for_round(crowd, 1)
        crowd.members["worker-7"].kill()
        await wait_for_round(crowd, 2)
        for name in ("worker-8", "worker-299"):  # two at once are one restart
            crowd.members[name].kill()
        await wait_for_round(crowd, 3)
        await asyncio.sleep(0.2)  # for a start too many
        assert sorted(crowd.rounds) == [1, 2, 3]
        assert all(set(log.starts.values()) == {1} for log in crowd.rounds.values())
        assert overlaps(crowd.rounds) == 0
        counts = crowd.count()
        assert (counts["lost"], counts["oldestLease"] < LEASE_SECONDS) == (0, True)
