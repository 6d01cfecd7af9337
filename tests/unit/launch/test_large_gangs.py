"""A gang of thousands: what comes thousands of times a second must cost the same however many members there are.

What a frame costs is counted in calls and in bytes, not in seconds, so these tests do not depend on the machine.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.unit.launch.simulation import beat, coordinator, hello
from tftraining.launch.coordinator import Coordinator

SMALL, LARGE = 20, 2000
BYTES = 4096  # a dict of the large gang has twenty times as many


def gang(members: int, come: int, **policy: Any) -> Coordinator:
    """The coordinator of so many members, of which the first have come."""
    chief = coordinator(*(f"worker-{index}" for index in range(members)), **policy)
    for index in range(come):
        chief.hello(hello(f"worker-{index}"), 0.0)
    chief.outbox.take()
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
        chief.heard("worker-1", beat(number, 1.0, **progress), 1.0)
        chief.outbox.take()

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
def test_a_beat_costs_the_same_in_a_large_gang(missing: int, progress: dict[str, Any]) -> None:
    found = {}
    for members in (SMALL, LARGE):
        chief = gang(members, members - missing)
        found[members] = one_beat(chief, 0 if missing else 1, **progress)
    assert calls(found[LARGE]) == calls(found[SMALL])
    assert bytes_used(found[LARGE]) < BYTES


def test_a_beat_of_a_member_that_is_not_in_the_round_costs_the_same_in_a_large_gang() -> None:
    found = {}
    for members in (SMALL, LARGE):
        chief = gang(members, members)
        chief.change(chief.roster.job.gang.resized(members + 1), chief.roster.policy, 1.0)
        newcomer = f"worker-{members}"
        frame = beat(0, 1.0) | {"prepared": False}
        chief.hello(hello(newcomer), 1.0)
        found[members] = partial(chief.heard, newcomer, frame, 1.0)
    assert calls(found[LARGE]) == calls(found[SMALL])
    assert bytes_used(found[LARGE]) < BYTES


@pytest.mark.parametrize("order", ["forwards", "backwards"])
def test_a_greeting_costs_the_same_in_a_large_gang(order: str) -> None:
    def greeted(members: int) -> float:
        chief, names = gang(members, 0), [f"worker-{index}" for index in range(members)]
        names = names if order == "forwards" else names[::-1]
        return calls(lambda: [chief.hello(hello(name), 0.0) for name in names[:-1]]) / members

    assert greeted(LARGE) < greeted(SMALL) * 1.5


def test_a_gang_that_stops_costs_each_member_the_same_in_a_large_one() -> None:
    def become_ready(chief: Coordinator, names: list[str]) -> None:
        for name in names:
            chief.heard(name, {"type": "ready", "round": 1}, 1.0)

    def restarted(members: int) -> float:
        chief = gang(members, members)
        chief.lost("worker-1", 1.0)
        names = [name for name in chief.roster.gang if name != "worker-1"]
        return calls(partial(become_ready, chief, names)) / members

    assert restarted(LARGE) < restarted(SMALL) * 1.5
