"""Copies of replicas that ought to be equal: who differs, in which variables, by more than rounding, and how often it
is told."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from typing import Any

import pytest

from tests.support.simulated_gang.copies import fail, report, restart, start_gang_with_copies
from tests.support.simulated_gang.simulation import heartbeat
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.gang.replica_values import compare, digests_of, summary_of

NAMES = ["first/kernel", "first/bias", "last/kernel", "last/bias", "iterations"]
RIGHT = [(1.0, 0.001), (2.0, 0.001), (3.0, 0.001), (4.0, 0.001), (77.0, 0.0)]
ROUNDED = [(1.0005, 0.001), *RIGHT[1:]]
WRONG = [(1.5, 0.001), *RIGHT[1:]]


def summary(step: int, *replicas: list[tuple[float, float]], names: list[str] = NAMES) -> dict[str, Any]:
    values = b"".join(struct.pack("<ff", *cell) for cells in replicas for cell in cells)
    packed = base64.b64encode(zlib.compress("\n".join(names).encode())).decode()
    return {
        "step": step,
        "replicas": len(replicas),
        "values": base64.b64encode(values).decode(),
        "names": packed,
    }


class Gang:
    """The chief's launcher of a gang whose members make a copy every 16 steps."""

    def __init__(self, *members: str, **policy: Any) -> None:
        self.chief: Coordinator = start_gang_with_copies(*members, **policy)
        self.names = list(self.chief.membership.gang)
        self.now = 5.0
        self.earlier = 0  # the steps of the program's earlier fits
        self.asked: dict[str, int] = {}  # by member, the step of which or behind which a summary is asked for
        self.held: dict[str, dict[int, Any]] = {name: {} for name in self.names}  # the cells of the two newest copies
        self.interval: int | None = 16
        self.orders = 0
        self.aside: dict[str, list[Any]] = {name: [] for name in self.names}  # what each member has set aside
        self.more: dict[str, dict[str, Any]] = {}  # of a member's report
        self.sent: list[tuple[str, dict[str, Any]]] = []

    def copy(self, step: int, values: dict[str, Any]) -> None:
        """A heartbeat of each member behind its copy of this step. `values`: the digest of members with another one, or
        those of all their replicas, and the cells of its summary."""
        self.now += 1.0
        self.sent = []
        for name in self.names:
            digest, *cells = values.get(name, ("right", RIGHT))
            digests = {str(step): digest if isinstance(digest, list) else [digest]}
            asked, held = self.asked.get(name, 1 << 40), self.held[name]
            told_of = asked if asked in held else step if step >= asked else None
            if told_of is not None:
                del self.asked[name]
            held[step] = cells
            told = report(step, digests=digests, interval=self.interval)
            told["summary"] = None if told_of is None else summary(told_of, *held[told_of])
            self.held[name] = dict(list(held.items())[-2:])
            told |= {"setAside": self.aside[name], **self.more.get(name, {})}
            self.beat(name, step, told)

    def beat(self, name: str, step: int, told: dict[str, Any]) -> None:
        made = {"step": step + self.earlier, "first_step": self.earlier, "fit_start": self.earlier}
        progress = {**made, "first_step_time": self.now - 5.0, "updated": 1000.0}
        peer = self.chief.membership.get_peer(name)
        frame = heartbeat(peer.round, self.now, **progress)
        self.chief.handle_frame(name, {**frame, "backup": told}, self.now)
        self.sent += (taken := self.chief.outbox.take_all())
        for receiver, sent in taken:
            if sent["type"] == "compare":
                self.asked[receiver] = sent["step"]
                self.orders += 1

    @property
    def found(self) -> tuple[bool, str]:
        found = self.chief.replicas.found
        return (False, "") if found is None else (found.differs, found.words)

    @property
    def compared(self) -> int:
        return self.chief.replicas.compared


@pytest.fixture
def gang() -> Gang:
    return Gang("worker-0", "worker-1", "worker-2")


WRONG_1 = {"worker-1": ("wrong", WRONG)}
NAMED = "worker-1 holds other values than the rest: first/kernel"


def test_equal_copies_are_counted_and_cost_no_frame(gang: Gang) -> None:
    for step in (16, 32, 48):
        gang.copy(step, {})
    assert (gang.compared, gang.found, gang.orders) == (3, (False, ""), 0)


@pytest.mark.parametrize("earlier", [0, 1000], ids=["the first fit", "a later fit"])
def test_a_member_with_another_value_is_named_within_two_copies(gang: Gang, earlier: int) -> None:
    gang.earlier = earlier
    gang.copy(16, {})
    gang.copy(32, WRONG_1)
    assert set(gang.asked) == {"worker-0", "worker-1"}, "one member of each digest"
    assert gang.found == (False, ""), "until it is known to be more than rounding"
    gang.copy(48, WRONG_1)
    assert gang.found == (True, f"at step 32 {NAMED}")
    assert gang.compared == 1


@pytest.mark.parametrize("values", [{}, {"worker-1": ("rounded", ROUNDED)}], ids=["equal", "within the tolerance"])
def test_a_difference_is_told_though_the_next_copy_has_forgotten_it(gang: Gang, values: dict[str, Any]) -> None:
    gang.copy(16, {})
    gang.copy(32, WRONG_1)
    gang.copy(48, values)
    assert gang.found == (True, f"at step 32 {NAMED}")


def test_a_copy_that_is_overwritten_before_the_order_arrives_is_not_asked_for(gang: Gang) -> None:
    gang.interval = 1
    gang.copy(16, {})
    gang.copy(32, WRONG_1)
    assert set(gang.asked.values()) != {32}
    gang.copy(48, WRONG_1)
    assert gang.found == (True, f"at step 48 {NAMED}")


def test_a_difference_is_told_once_a_round_and_holds_until_a_later_round_compares_equal(gang: Gang) -> None:
    for step in (16, 32, 48, 64, 80):
        gang.copy(step, WRONG_1)
    assert gang.orders == 2
    gang.copy(96, {})
    assert gang.found == (True, f"at step 16 {NAMED}")
    fail(gang.chief, "worker-1", gang.now)
    restart(gang.chief, gang.now + 60)
    assert gang.found[0], "nothing is known of the new round yet"
    gang.copy(112, {})
    assert gang.found == (False, "")


def test_rounding_is_told_once_and_looked_at_again_after_a_minute(gang: Gang) -> None:
    rounded = {"worker-1": ("rounded", ROUNDED)}
    for step in range(16, 160, 16):
        gang.copy(step, rounded)
    words = "at step 16 the values of worker-0, worker-1, worker-2 differ in their last bits only"
    assert gang.found == (False, words) and gang.orders == 2
    gang.copy(160, WRONG_1)
    gang.now += 60
    gang.copy(176, WRONG_1)
    gang.copy(192, WRONG_1)
    assert gang.found == (True, f"at step 160 {NAMED}")


def test_two_members_cannot_tell_which_one_is_wrong() -> None:
    gang = Gang("worker-0", "worker-1")
    gang.copy(16, WRONG_1)
    gang.copy(32, WRONG_1)
    assert gang.found == (True, "at step 16 worker-0, worker-1 hold other values than each other: first/kernel")


def test_replicas_of_one_member_are_compared_too() -> None:
    gang = Gang("worker-0")
    values: dict[str, Any] = {"worker-0": (["right", "right", "wrong"], RIGHT, RIGHT, WRONG)}
    gang.copy(16, values)
    gang.copy(32, values)
    assert gang.found == (True, "at step 16 replica 2 of worker-0 holds other values than the rest: first/kernel")


def test_members_report_at_other_times_and_keep_what_others_have_not_reported(gang: Gang) -> None:
    digests = {str(step): ["right"] for step in range(16, 16 * 33, 16)}
    for name, steps in (("worker-0", (16, 32)), ("worker-1", (16, 32, 48)), ("worker-2", (32, 48))):
        gang.beat(name, 48, report(48, digests={str(step): digests[str(step)] for step in steps}))
    assert gang.compared == 1, "step 32 is the newest that all have reported"
    gang.beat("worker-0", 64, report(64, digests={"48": ["right"], "64": ["right"]}))
    assert gang.compared == 2


def test_an_order_that_comes_too_late_is_repeated_for_a_later_copy(gang: Gang) -> None:
    gang.copy(16, WRONG_1)
    assert set(gang.asked.values()) == {16}
    for step in range(32, 97, 16):
        gang.asked.clear()  # the copy is overwritten
        gang.copy(step, WRONG_1)
    assert gang.orders == 4 and gang.found == (False, "")
    assert min(gang.asked.values()) > 96


def test_an_older_trainer_without_digests_ends_no_comparison_of_the_others(gang: Gang) -> None:
    gang.beat("worker-0", 16, report(16))
    gang.copy(32, {})
    assert gang.compared == 1


# The verdict.


def verdict(*cells: list[tuple[float, float]], counts: tuple[int, ...] = (), names: list[str] = NAMES) -> Any:
    groups, summaries, number = {}, {}, 0
    for place, values in enumerate(cells):
        members = [(f"worker-{number + each}", 0) for each in range((counts or (1,) * len(cells))[place])]
        number += len(members)
        groups[f"{place}"] = members
        summaries[members[0][0]] = summary_of(summary(8, values, names=names))
    return compare(groups, {name: each for name, each in summaries.items() if each is not None}, several=True)


def test_most_replicas_are_right() -> None:
    found = verdict(WRONG, RIGHT, ROUNDED, counts=(1, 1, 2))
    assert (found.differs, found.words) == (
        True,
        "at step 8 worker-0 holds other values than the rest: first/kernel",
    )
    found = verdict(WRONG, RIGHT, counts=(2, 2))
    assert found.words.startswith("at step 8 worker-0, worker-1, worker-2 and 1 more hold other values than each other")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_number_differs_from_one(value: float) -> None:
    odd = [*RIGHT[:3], (value, math.inf), RIGHT[4]]
    assert verdict(RIGHT, odd, RIGHT).words == "at step 8 worker-1 holds other values than the rest: last/bias"
    assert not verdict(odd, odd, odd).differs


def test_whole_numbers_have_no_tolerance() -> None:
    assert "worker-2 holds other values than the rest: iterations" in verdict(RIGHT, RIGHT, [*RIGHT[:4], (78, 0)]).words


def test_many_variables_are_counted() -> None:
    other = [(each + 1, apart) for each, apart in RIGHT]
    assert verdict(RIGHT, RIGHT, other).words.endswith("first/kernel, first/bias, last/kernel and 2 more")
    assert verdict(RIGHT, RIGHT, WRONG, names=[""]).words.endswith(": variable 1")


def test_other_variables_are_a_difference() -> None:
    assert verdict(RIGHT, RIGHT[:3]).words == "at step 8 worker-0, worker-1 hold other variables than each other"


@pytest.mark.parametrize(
    "told",
    [
        None,
        [],
        {},
        {**summary(8, RIGHT), "replicas": 0},
        {**summary(8, RIGHT), "replicas": 2},
        {**summary(8, RIGHT), "values": "?"},
        {**summary(8, RIGHT), "values": ""},
        {**summary(8, RIGHT), "names": "AAAA"},
        {**summary(8, RIGHT), "step": "x"},
        {**summary(8, RIGHT), "step": None},
        summary(8, RIGHT * 1000),
    ],
)
def test_a_malformed_summary_is_none(told: object) -> None:
    assert summary_of(told) is None


def test_names_are_bounded() -> None:
    packed = base64.b64encode(zlib.compress(b"x" * (1 << 26))).decode()
    found = summary_of({**summary(8, RIGHT), "names": packed})
    assert found is not None and [len(each) for each in found.names] == [80]


@pytest.mark.parametrize(
    "told", [None, [], {"x": ["a"]}, {"-1": ["a"]}, {"1": "a"}, {"1" * 16: ["a"]}, {str(n): [] for n in range(33)}]
)
def test_malformed_digests_are_none(told: object) -> None:
    assert digests_of(told) == {}
