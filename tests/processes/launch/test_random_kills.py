"""Hundreds of rounds with random kills, over real sockets, with programs that are only noted.

Processes would make each round cost a second of this machine; the tests beside this one have them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.launchers.gang import UID
from tests.support.ports import free_ports
from tftraining.launch.config.settings import read
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.gang.membership import JobContext
from tftraining.launch.http.pages import gang_status
from tftraining.launch.process.lease import Lease
from tftraining.launch.process.program import Exit
from tftraining.launch.process.reaper import Reaper
from tftraining.launch.progress import Snapshot
from tftraining.launch.rendezvous.client import RendezvousClient
from tftraining.launch.rendezvous.server import RendezvousServer
from tftraining.launch.success_record import FileRecord

SECRET = b"secret"
NAMES = ("worker-0", "worker-1", "worker-2")


class RecordedProgram:
    """A program that exists only as the number of its round; each round brings a new epoch, so that none waits."""

    mode, is_prepared = "noted", True

    def __init__(self, at_work: dict[RecordedProgram, int]) -> None:
        self.at_work = at_work
        self.round = 0
        self.lease = Lease(Reaper())  # never in force
        self.on_exit: Callable[[Exit], None] | None = None

    @property
    def pid(self) -> int | None:
        return None

    @property
    def is_idle(self) -> bool:
        return self not in self.at_work

    @property
    def gpu_count(self) -> int | None:
        return None

    def log(self, line: str) -> None:
        """Nobody listens."""

    def note_failed_member(self, member: str) -> None:
        """It has no output to fold."""

    def pause_warmup(self, wanted: bool) -> None:
        """Nothing is imported."""

    def snapshot(self) -> Snapshot:
        return Snapshot(epoch=self.round + 1, first_epoch=self.round - 1, updated=1.0)

    async def start(self, env: Mapping[str, str], on_exit: Callable[[Exit], None], deadline: float) -> None:
        assert self not in self.at_work, "started twice"
        self.round, self.on_exit = int(env["TFTRAINING_ROUND"]), on_exit
        self.at_work[self] = self.round
        assert set(self.at_work.values()) == {self.round}, "two rounds at once"

    async def kill(self) -> None:
        await asyncio.sleep(0)
        self.at_work.pop(self, None)

    def die(self) -> None:
        """As by a SIGKILL from outside."""
        if self.at_work.pop(self, None) is not None and self.on_exit is not None:
            self.on_exit(Exit(None, 9))


class InProcessLauncher:
    """What a launcher has of the rendezvous, as tasks that can be killed."""

    def __init__(self, name: str, place: Path, port: int, at_work: dict[RecordedProgram, int]) -> None:
        cluster = {"worker": [f"127.0.0.1:{index + 1}" for index in range(len(NAMES))]}
        told = {
            "job": {"namespace": "n", "name": "j", "uid": UID},
            "attempt": 1,
            "rendezvous": f"127.0.0.1:{port}",
            "host": "127.0.0.1",
            "statusPort": 1,
            "secretFile": str(place / "key"),
            "memberTimeoutSeconds": 2,
            "maxRestarts": 1_000_000,
        }
        config = {"cluster": cluster, "task": {"type": "worker", "index": int(name[-1])}}
        environment = {"TF_CONFIG": json.dumps(config)}
        self.settings = read({**environment, "TFTRAINING_LAUNCHER": json.dumps(told)})
        self.program = RecordedProgram(at_work)
        record = FileRecord(self.settings.directory, self.settings.job["uid"])
        self.member = RendezvousClient(self.settings, lambda: SECRET, self.program, environment, record)  # type: ignore[arg-type]
        self.rendezvous: RendezvousServer | None = None
        self.task: asyncio.Task[object] | None = None

    async def start(self) -> None:
        settings = self.settings
        if settings.is_chief:
            job = JobContext(UID, 1, settings.gang, settings.policy)
            coordinator = Coordinator(job, settings.ledger, time.time, time.monotonic())
            self.rendezvous = RendezvousServer(coordinator, lambda: SECRET, _nothing)
            await self.rendezvous.open("127.0.0.1", settings.rendezvous[1])
        self.task = asyncio.create_task(self.member.run())

    async def kill(self) -> None:
        """The launcher goes, and its program before it."""
        await self.program.kill()
        if self.task is not None:
            while not self.task.done():
                self.task.cancel()
                await asyncio.wait([self.task], timeout=0.02)
            with contextlib.suppress(asyncio.CancelledError):
                self.task.result()
        await self.program.kill()
        if self.rendezvous is not None:
            await self.rendezvous.close(say_bye=True)


async def _nothing() -> None:
    """No verdict is left anywhere."""


class Crowd:
    """The launchers of one gang in this process."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.port = free_ports(1)[0]
        self.at_work: dict[RecordedProgram, int] = {}
        self.launchers: dict[str, InProcessLauncher] = {}

    async def start(self, name: str) -> None:
        self.launchers[name] = InProcessLauncher(name, self.place, self.port, self.at_work)
        await self.launchers[name].start()

    def describe(self) -> str:
        """For a person, when a test has failed."""
        chief = self.launchers[NAMES[0]].rendezvous
        states = [each.member.control.state for each in self.launchers.values()]
        return f"{states} {gang_status(chief.coordinator, time.monotonic()) if chief is not None else None}"

    async def settled(self, beyond: int) -> int:
        """The round that all are in, once they are in one beyond that."""
        deadline = time.monotonic() + 20
        while len(self.at_work) < len(NAMES) or min(self.at_work.values()) <= beyond:
            assert time.monotonic() < deadline, self.describe()
            for each in self.launchers.values():
                assert each.task is not None
                assert not each.task.done(), each.task
            await asyncio.sleep(0.001)
        assert len(set(self.at_work.values())) == 1
        return min(self.at_work.values())


@pytest.mark.parametrize(("seed", "rounds"), [(1, 100), pytest.param(2, 1000, marks=pytest.mark.slow_fault)])
async def test_random_kills_end_with_all_members_in_one_round(tmp_path: Path, seed: int, rounds: int) -> None:
    dice, crowd = random.Random(seed), Crowd(tmp_path)
    try:
        for name in NAMES:
            await crowd.start(name)
        number = await crowd.settled(0)
        for _ in range(rounds):
            for name in dice.sample(NAMES, dice.choice([1, 1, 1, 2])):
                if dice.random() < 0.8:
                    crowd.launchers[name].program.die()
                else:
                    await crowd.launchers[name].kill()
                    await asyncio.sleep(dice.random() * 0.02)
                    await crowd.start(name)
                await asyncio.sleep(dice.random() * 0.004)
            number = await crowd.settled(number)
    finally:
        for launcher in crowd.launchers.values():
            await launcher.kill()
