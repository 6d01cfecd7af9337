"""A gang of thousands: what comes thousands of times a second must cost the same however many members there are.

What a frame costs is counted in calls and in bytes, not in seconds, so these tests do not depend on the machine.
"""

from __future__ import annotations

import asyncio
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.support.ports import free_ports
from tests.support.simulated_gang.simulation import heartbeat, hello, make_coordinator
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.gang.outbox import drop_stale_echoes
from tftraining.launch.rendezvous.chief_contact import LEASE
from tftraining.launch.rendezvous.client import heartbeat_interval
from tftraining.launch.rendezvous.protocol import connect
from tftraining.launch.rendezvous.server import RendezvousServer

SECRET = b"a secret of the tests"
SMALL, LARGE = 20, 2000
BYTES = 4096  # a dict of the large gang has twenty times as many


def gang(members: int, come: int, **policy: Any) -> Coordinator:
    """The coordinator of so many members, of which the first have come."""
    chief = make_coordinator(*(f"worker-{index}" for index in range(members)), **policy)
    for index in range(come):
        chief.handle_hello(hello(f"worker-{index}"), 0.0)
    chief.outbox.take_all()
    return chief


def calls(action: Callable[[], object]) -> int:
    """How many functions an action calls, those of the interpreter included."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def bytes_used(action: Callable[[], object]) -> int:
    """The most memory that an action needs at a time."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        action()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def one_beat(chief: Coordinator, number: int, **progress: Any) -> Callable[[], None]:
    """A beat of worker-1, and the answer."""

    def heard() -> None:
        chief.handle_frame("worker-1", heartbeat(number, 1.0, **progress), 1.0)
        chief.outbox.take_all()

    heard()  # the first may be a special one
    return heard


@pytest.mark.parametrize(
    ("missing", "progress"),
    [
        pytest.param(1, {}, id="while the gang gathers"),
        pytest.param(0, {}, id="before the first step"),
        pytest.param(0, {"step": 5, "updated": 1.0, "first_step_time": 0.5}, id="before the others' first steps"),
    ],
)
def test_a_heartbeat_costs_the_same_in_a_large_gang(missing: int, progress: dict[str, Any]) -> None:
    found = {}
    for members in (SMALL, LARGE):
        chief = gang(members, members - missing)
        found[members] = one_beat(chief, 0 if missing else 1, **progress)
    assert calls(found[LARGE]) == calls(found[SMALL])
    assert bytes_used(found[LARGE]) < BYTES


def test_a_heartbeat_of_a_member_outside_the_round_costs_the_same_in_a_large_gang() -> None:
    found = {}
    for members in (SMALL, LARGE):
        chief = gang(members, members)
        chief.apply_spec_update(chief.membership.job.gang.resized(members + 1), chief.membership.policy, 1.0)
        newcomer = f"worker-{members}"
        frame = heartbeat(0, 1.0) | {"prepared": False}
        chief.handle_hello(hello(newcomer), 1.0)
        found[members] = partial(chief.handle_frame, newcomer, frame, 1.0)
    assert calls(found[LARGE]) == calls(found[SMALL])
    assert bytes_used(found[LARGE]) < BYTES


@pytest.mark.parametrize(
    "last_round",
    [
        pytest.param({}, id="first"),
        pytest.param({"round": 2, "known": 2, "witness": 2, "down": 0.5, "left": 0.5}, id="again"),
    ],
)
@pytest.mark.parametrize("order", ["forwards", "backwards"])
def test_a_hello_costs_the_same_in_a_large_gang(order: str, last_round: dict[str, Any]) -> None:
    """Members join a job's first launcher of the chief, or come back to one that replaces a dead one."""

    def greeted(members: int) -> float:
        chief, names = gang(members, 0), [f"worker-{index}" for index in range(members)]
        names = names if order == "forwards" else names[::-1]
        return calls(lambda: [chief.handle_hello(hello(name, **last_round), 0.0) for name in names[:-1]]) / members

    assert greeted(LARGE) < greeted(SMALL) * 1.5


def test_a_stop_costs_the_same_for_each_member_of_a_large_gang() -> None:
    def become_ready(chief: Coordinator, names: list[str]) -> None:
        for name in names:
            chief.handle_frame(name, {"type": "ready", "round": 1}, 1.0)

    def restarted(members: int) -> float:
        chief = gang(members, members)
        chief.handle_disconnect("worker-1", 1.0)
        names = [name for name in chief.membership.gang if name != "worker-1"]
        return calls(partial(become_ready, chief, names)) / members

    assert restarted(LARGE) < restarted(SMALL) * 1.5


def test_only_the_last_echo_to_a_member_is_sent() -> None:
    def echo(name: str, at: float) -> tuple[str, dict[str, Any]]:
        return name, {"type": "beat", "echo": at}

    stop: tuple[str, dict[str, Any]] = ("worker-0", {"type": "stop"})
    frames = [echo("worker-0", 1.0), echo("worker-1", 1.0), echo("worker-0", 2.0), stop, echo("worker-0", 3.0)]
    assert drop_stale_echoes(frames) == [frames[1], stop, frames[4]]


async def no_verdict() -> None:
    """None is left anywhere."""


async def test_queued_heartbeats_get_one_echo() -> None:
    """A launcher that has fallen behind by half a second must not spend the next one on echoes of no use."""
    port = free_ports(1)[0]
    rendezvous = RendezvousServer(gang(2, 0, start_deadline_seconds=1e9), lambda: SECRET, no_verdict)
    await rendezvous.open("127.0.0.1", port)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        channel = await connect(reader, writer, SECRET, hello("worker-1"))
        assert (await channel.receive())["type"] == "welcome"
        for number in range(50):
            channel.send({**heartbeat(0, 1.0), "t": float(number)})
        echoes = [await channel.receive()]
        while echoes[-1]["echo"] < 49.0:
            echoes.append(await channel.receive())
        assert len(echoes) < 10, "fifty beats came in a few segments"
        writer.close()
    finally:
        await rendezvous.close()


def test_a_large_gang_sends_fewer_heartbeats_but_three_in_a_lease() -> None:
    assert (heartbeat_interval(3.0, 1000), heartbeat_interval(3.0, 1001)) == (0.5, 0.75)
    assert 3 * heartbeat_interval(3.0, 10_000) < LEASE * 3.0
