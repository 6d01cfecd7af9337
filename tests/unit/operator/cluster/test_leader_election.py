"""The leader election: one leader at a time under every fault of the network, and one again after it.

Everything runs in virtual time: the real electors and fences, a lease in memory, a network that does what it is told.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, cast

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tests.support.simulated_lease import Hop, LeaseConnection, LeaseServer
from tests.support.virtual_time import run
from tftraining_api.kube.api import Api
from tftraining_operator.cluster.election import Election
from tftraining_operator.cluster.fence import BEAT_SECONDS, STALL_SECONDS, Fence
from tftraining_operator.cluster.leader_election import LeaderElector
from tftraining_operator.cluster.lease import LEASE_SECONDS, RENEW_DEADLINE, RETRY_PERIOD, LeaderLease
from tftraining_operator.model.lease import LeaseClaim, LeaseRecord, Observation, Wait, decide, observe

SECONDS = 90.0
CALM = 3 * LEASE_SECONDS


class Surroundings(NamedTuple):
    """Of one candidate: a clock that is wrong by `skew` and runs at `rate`, the hops of its first requests, and the
    times (begin and duration) at which it is cut off."""

    skew: float = 0.0
    rate: float = 1.0
    hops: Sequence[Hop] = ()
    cuts: Sequence[tuple[int, int]] = ()

    def clock(self) -> float:
        return self.skew + self.rate * asyncio.get_running_loop().time()

    def is_cut(self) -> bool:
        now = asyncio.get_running_loop().time()
        return any(begin <= now < begin + duration for begin, duration in self.cuts)


QUIET = Surroundings()


class Candidate:
    """A process that starts again whenever it ends, as a container does. `older` is why it may not lead; so many
    questions for that are `unanswered`."""

    def __init__(self, name: str, server: LeaseServer, around: Surroundings = QUIET) -> None:
        self.name = name
        self.older = ""
        self.unanswered = 0
        self.lost: list[str] = []
        self._connection = LeaseConnection(server, iter(around.hops), around.is_cut)
        self._clock: Callable[[], float] = around.clock
        self._starts = 0
        self.start()

    def start(self) -> None:
        """Begin as a new process."""
        self._starts += 1
        self.fence = Fence(self._clock)
        identity = f"{self.name}-{self._starts}"
        self.elector = LeaderElector(cast(LeaderLease, self._connection), identity, self.fence, self._may_lead)
        self.task = asyncio.create_task(self._run())

    async def _may_lead(self) -> str:
        if self.unanswered:
            self.unanswered -= 1
            await asyncio.sleep(1e6)
        return self.older

    async def _run(self) -> None:
        self.lost.append(await self.elector.run())
        await asyncio.sleep(1)
        self.start()

    async def kill(self) -> None:
        """SIGKILL: the lease stays as it is."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.fence.close()

    async def stop(self) -> None:
        """SIGTERM."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        if await self.fence.drain(3.0):
            await self.elector.release()
        self.fence.close()

    @property
    def leads(self) -> bool:
        return self.fence.open


class Deed(NamedTuple):
    """Done to a candidate, by its number, at a time."""

    at: float
    candidate: int
    kind: str


async def leader(*candidates: Candidate) -> Candidate:
    """Wait until one leads."""
    while True:
        for each in candidates:
            if each.leads:
                return each
        await asyncio.sleep(0.01)


# --- the decision


ME, OTHER = "me", "other"


def record(holder: str, version: str = "1") -> LeaseRecord:
    return LeaseRecord(holder, 15, 4, version)


@pytest.mark.parametrize(
    ("seen", "now", "step"),
    [
        (Observation(None, 0), 0, LeaseClaim("", 0)),
        (Observation(None, 9), 8, Wait(9)),
        (Observation(record(""), 0), 0, LeaseClaim("1", 5)),
        (Observation(record(ME), 99), 0, LeaseClaim("1", 4)),
        (Observation(record(OTHER), 15), 14.9, Wait(15)),
        (Observation(record(OTHER), 15), 15, LeaseClaim("1", 5)),
    ],
    ids=["no lease", "a deleted lease", "released", "my own", "held by another", "expired"],
)
def test_what_a_candidate_does_next(seen: Observation, now: float, step: LeaseClaim | Wait) -> None:
    assert decide(ME, seen, now) == step


def test_the_age_of_a_lease_counts_from_its_last_change_that_this_process_saw() -> None:
    seen = observe(ME, None, record(OTHER, "1"), 100)
    assert observe(ME, seen, record(OTHER, "1"), 110) == seen and seen.free_at == 115
    assert observe(ME, seen, record(OTHER, "2"), 110).free_at == 125
    assert observe(ME, seen, record("", "2"), 110).free_at == 110


def test_the_holder_of_a_deleted_lease_may_lead_for_a_whole_lease_duration() -> None:
    """A process that last saw the lease long ago, because its network was down, has missed the later renewals."""
    seen = observe(ME, None, record(OTHER), 100)
    deleted = observe(ME, seen, None, 130)
    assert deleted == Observation(None, 145) and observe(ME, deleted, None, 140) == deleted
    assert observe(ME, observe(ME, None, record(""), 100), None, 130) == Observation(None, 145)
    assert observe(ME, None, None, 100) == Observation(None, 100)
    mine = observe(ME, None, record(ME), 100)
    assert observe(ME, mine, None, 101) == Observation(None, 101)


# --- one leader at a time


async def play(around: Sequence[Surroundings], deeds: Sequence[Deed]) -> None:
    """Let two candidates run, do the deeds, and see at each moment that at most one leads."""
    server = LeaseServer()
    candidates = [Candidate(f"c{number}", server, each) for number, each in enumerate(around)]
    loop, waiting = asyncio.get_running_loop(), sorted(deeds)
    while loop.time() < SECONDS + CALM:
        while waiting and waiting[0].at <= loop.time():
            deed = waiting.pop(0)
            candidate = candidates[deed.candidate]
            await (candidate.kill() if deed.kind == "kill" else candidate.stop())
            candidate.start()
        assert sum(each.leads for each in candidates) <= 1, f"two leaders at {loop.time():.2f}"
        await asyncio.sleep(0.1)
    assert sum(each.leads for each in candidates) == 1, "the network is well again, and nobody leads"


seconds = st.sampled_from([0.001, 0.2, 2.5, 4.9, 6.0, 12.0])
hop = st.builds(Hop, seconds, seconds, st.sampled_from([False] * 5 + [True]), st.sampled_from([False] * 3 + [True]))
cut = st.tuples(st.integers(1, 60), st.sampled_from([3, 9, 14, 20, 30]))
surroundings = st.builds(
    Surroundings,
    st.sampled_from([-1e6, 0.0, 3e9]),
    st.sampled_from([0.95, 1.0, 1.05]),
    st.lists(hop, max_size=20),
    st.lists(cut, max_size=2),
)
deed = st.builds(Deed, st.floats(0, SECONDS), st.integers(0, 1), st.sampled_from(["kill", "stop"]))


# Without shrinking: each example takes a tenth of a second.
@settings(max_examples=12, phases=[Phase.explicit, Phase.generate])
@example((Surroundings(cuts=[(20, 25)]), Surroundings(cuts=[(60, 25)])), [])
@given(st.tuples(surroundings, surroundings), st.lists(deed, max_size=4))
def test_never_two_leaders(around: tuple[Surroundings, Surroundings], deeds: list[Deed]) -> None:
    run(play(around, deeds))


# --- take-over


def test_a_clean_stop_hands_over_at_once() -> None:
    async def story() -> float:
        server = LeaseServer()
        candidates = Candidate("a", server), Candidate("b", server)
        first = await leader(*candidates)
        await asyncio.sleep(30)
        began = asyncio.get_running_loop().time()
        await first.stop()
        second = await leader(*candidates)
        assert second is not first and server.record is not None and server.record.transitions == 1
        return asyncio.get_running_loop().time() - began

    assert run(story()) < 0.1


def test_a_clean_stop_waits_for_the_write_in_flight() -> None:
    async def story() -> None:
        server = LeaseServer()
        candidates = Candidate("a", server), Candidate("b", server)
        first = await leader(*candidates)
        written = asyncio.create_task(_write(first.fence, 1.0))
        await asyncio.sleep(0.1)
        await first.stop()
        assert written.done() and await written
        assert (await leader(*candidates)) is not first

    run(story())


def test_a_write_that_does_not_end_keeps_the_lease_from_being_released() -> None:
    async def story() -> float:
        server = LeaseServer()
        candidates = Candidate("a", server), Candidate("b", server)
        first = await leader(*candidates)
        written = asyncio.create_task(_write(first.fence, 60.0))
        await asyncio.sleep(0.1)
        began = asyncio.get_running_loop().time()
        await first.stop()
        assert not first.leads and server.record is not None and server.record.holder == "a-1"
        await leader(*candidates)
        written.cancel()
        return asyncio.get_running_loop().time() - began

    assert LEASE_SECONDS - RETRY_PERIOD < run(story()) < LEASE_SECONDS + 1


def test_after_a_kill_the_lease_expires() -> None:
    async def story() -> float:
        server = LeaseServer()
        candidates = Candidate("a", server), Candidate("b", server)
        first = await leader(*candidates)
        await asyncio.sleep(20)
        began = asyncio.get_running_loop().time()
        await first.kill()
        await leader(*candidates)
        return asyncio.get_running_loop().time() - began

    assert LEASE_SECONDS - RETRY_PERIOD - 0.1 < run(story()) < LEASE_SECONDS + 0.1


def test_a_standby_asks_for_nothing_but_its_watch() -> None:
    async def story() -> int:
        server = LeaseServer()
        Candidate("a", server)
        await asyncio.sleep(1)
        asked = 0

        class Counted(LeaseConnection):
            async def read(self) -> LeaseRecord | None:
                nonlocal asked
                asked += 1
                return await super().read()

        standby = Candidate("b", server)
        standby._connection = Counted(server, iter(()))
        standby.task.cancel()
        standby.start()
        await asyncio.sleep(120)
        return asked

    assert run(story()) == 1


def test_a_lease_that_is_deleted_by_hand_comes_back_with_the_same_leader() -> None:
    async def story() -> None:
        server = LeaseServer()
        candidates = Candidate("a", server), Candidate("b", server)
        first = await leader(*candidates)
        await asyncio.sleep(5)
        server.delete()
        for _ in range(400):
            assert not (candidates[0].leads and candidates[1].leads)
            await asyncio.sleep(0.05)
        assert first.leads and first.lost == [] and server.record is not None

    run(story())


def test_a_lease_taken_by_hand_ends_the_leader_at_its_next_renewal() -> None:
    async def story() -> None:
        server = LeaseServer()
        first = Candidate("a", server)
        await leader(first)
        assert server.record is not None
        server.write("somebody", LeaseClaim(server.record.version, 9))
        await asyncio.sleep(RETRY_PERIOD + 0.5)
        assert first.lost == ["somebody holds it"] and not first.leads

    run(story())


def test_nobody_leads_while_an_operator_without_election_runs() -> None:
    async def story() -> None:
        server = LeaseServer()
        only = Candidate("a", server)
        only.older = "the pod old-1 runs"
        await asyncio.sleep(60)
        assert not only.leads and server.record is None
        only.older = ""
        await asyncio.sleep(3)
        assert only.leads

    run(story())


def test_a_request_for_older_operators_that_hangs_is_sent_again() -> None:
    async def story() -> None:
        only = Candidate("a", LeaseServer())
        only.unanswered = 1
        await asyncio.sleep(10)
        assert only.leads

    run(story())


# --- the fence


async def _write(fence: Fence, seconds: float) -> bool:
    async with fence.write():
        await asyncio.sleep(seconds)
        return True


def test_a_write_in_flight_is_cancelled_at_the_deadline_and_never_ends() -> None:
    async def story() -> None:
        fence = Fence(asyncio.get_running_loop().time)
        fence.extend(RENEW_DEADLINE)
        reached: list[str] = []

        async def write() -> None:
            with suppress(asyncio.CancelledError):
                async with fence.write():
                    try:
                        await asyncio.sleep(60)
                    finally:
                        reached.append(f"cancelled at {asyncio.get_running_loop().time():g}")
                reached.append("went on")

        task = asyncio.create_task(write())
        await asyncio.sleep(30)
        assert reached == ["cancelled at 10"] and not task.done()
        task.cancel()

    run(story())


def test_a_renewal_moves_the_deadline_of_the_writes_in_flight() -> None:
    async def story() -> bool:
        fence = Fence(asyncio.get_running_loop().time)
        fence.extend(10)
        task = asyncio.create_task(_write(fence, 15))
        await asyncio.sleep(8)
        fence.extend(18)
        return await task

    assert run(story())


def test_a_process_that_slept_past_its_deadline_sends_nothing_though_its_timers_are_late() -> None:
    async def story() -> None:
        now = 0.0
        fence = Fence(lambda: now)
        fence.extend(10)
        assert fence.open
        now = 20.0
        task = asyncio.create_task(_write(fence, 0))
        await asyncio.sleep(1)
        assert not task.done()
        fence.extend(30)
        assert not fence.open, "the answer to a renewal that was sent before the sleep opens nothing"
        task.cancel()

    run(story())


def test_before_the_first_lease_a_write_waits() -> None:
    async def story() -> bool:
        fence = Fence(asyncio.get_running_loop().time)
        task = asyncio.create_task(_write(fence, 0))
        await asyncio.sleep(5)
        assert not task.done() and not fence.open
        fence.extend(15)
        return await task

    assert run(story())


# --- the thread


def keep_busy(seconds: float) -> None:
    """Hold the event loop."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


class _NoApi:
    async def close(self) -> None:
        """There is no connection."""


async def test_a_busy_event_loop_keeps_its_lease_and_one_that_hangs_is_not_renewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A quarter of the times."""
    monkeypatch.setattr("tftraining_operator.cluster.leader_election.RETRY_PERIOD", RETRY_PERIOD / 4)
    monkeypatch.setattr("tftraining_operator.cluster.fence.STALL_SECONDS", STALL_SECONDS / 4)
    monkeypatch.setattr("tftraining_operator.cluster.fence.BEAT_SECONDS", BEAT_SECONDS / 4)

    async def may_lead() -> str:
        return ""

    server, fence = LeaseServer(), Fence()
    elector = LeaderElector(cast(LeaderLease, LeaseConnection(server, iter(()))), "me", fence, may_lead)
    election = Election(elector, cast(Api, _NoApi()))
    tasks = [asyncio.create_task(each) for each in (fence.keep_moving(), election.run())]
    await fence.opened()
    before = len(server.history)
    keep_busy(1.1)
    assert len(server.history) > before, "renewed while the loop was busy"
    keep_busy(1.0)
    hung = len(server.history)
    keep_busy(1.0)
    assert len(server.history) == hung and fence.open
    async with asyncio.timeout(5):
        await server.after(hung)
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await election.resign(1.0)
    await election.close()
    assert server.record is not None and server.record.holder == "" and not fence.open
