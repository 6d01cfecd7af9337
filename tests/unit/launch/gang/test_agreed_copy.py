"""spec.restartPolicy.onDivergence: Restore: to which copy all go back, when, how often, and what it costs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.simulated_gang.copies import report, restart, restored
from tests.unit.launch.gang.test_replica_comparison import WRONG, Gang
from tftraining.launch.gang.agreed_copy import EVERY_SECONDS, are_equal
from tftraining.launch.http.pages import gang_summary


class Restoring(Gang):
    """A gang whose members set copies aside as they are told to."""

    def __init__(self, *members: str, **policy: Any) -> None:
        super().__init__(*members, **{"on_divergence": "Restore", **policy})
        self.order: dict[str, Any] = {}

    def step(self, step: int, values: dict[str, Any] | None = None, late: str = "") -> None:
        """All make a copy of this step, and the time goes on. `late`: the order has not reached this member."""
        self.copy(step, values or {})
        if self.order and step >= self.order["step"]:
            number, agreed = self.chief.rounds.number, [tuple(each) for each in self.order["agreed"]]
            for name in self.names:
                digest = (values or {}).get(name, ("right",))[0]
                kept = [each for each in self.aside[name] if tuple(each[:2]) in agreed]
                self.aside[name] = [*kept, [number, step, [digest]]] if name != late else self.aside[name]
            self.order = {}
        self.tick()

    def tick(self) -> None:
        self.chief.tick(self.now)
        orders = {name: sent for name, sent in self.chief.outbox.take_all() if sent["type"] == "setAside"}
        if orders:
            assert set(orders) == set(self.names)
            self.order = next(iter(orders.values()))

    def agree(self, *steps: int) -> None:
        for step in steps:
            self.step(step)
            self.now += EVERY_SECONDS
        self.step(steps[-1] + 16)

    def diverge(self, step: int, odd: str) -> None:
        """The members differ from this step on, until the chief knows it."""
        for each in (step, step + 16, step + 32):
            if self.chief.rounds.running:
                self.copy(each, {odd: ("wrong", WRONG)})

    @property
    def stops(self) -> dict[str, dict[str, Any]]:
        return {name: sent for name, sent in self.sent if sent["type"] == "stop"}


@pytest.fixture
def gang() -> Restoring:
    return Restoring("worker-0", "worker-1", "worker-2")


def test_all_go_back_to_the_newest_copy_on_which_all_agreed(gang: Restoring) -> None:
    gang.agree(16, 32, 48, 64)
    assert gang.chief.agreed.copy == (1, 64)
    gang.diverge(96, "worker-1")
    assert set(gang.stops) == set(gang.names)
    for name, sent in gang.stops.items():
        assert (sent["backTo"], sent["suspects"]) == ([(1, 64)], [(1, 65)])
        assert ("moves" in sent) == (name == "worker-1"), "the odd one gets a new pod"
        assert sent["why"].endswith("all go back to step 64, at which they have agreed")
        assert "worker-1 holds other values than the rest: first/kernel" in sent["why"]
        assert sent["ledger"]["wentBackTo"] == 64 and sent["ledger"]["wentBackFrom"] > 96
    ledger = gang.chief.verdict.ledger
    assert (ledger.process_failures, ledger.used, ledger.without_progress) == (0, 0, 1)
    incident = gang.chief.last_incident
    assert incident is not None and (incident.reason, incident.member) == ("ReplicasDiffer", "worker-1")


def test_the_next_round_restores_it_and_doubts_newer_backups_in_the_storage(gang: Restoring) -> None:
    gang.agree(16, 32)
    gang.diverge(64, "worker-2")
    ledger = gang.chief.verdict.ledger
    orders = restart(gang.chief, gang.now + 60.0, [1, 32], [1, 48], [1, 96])
    assert restored(orders) == [1, 32]
    assert {str(each["doubted"]) for each in orders.values()} == {str([32, ledger.went_back_from])}
    assert all(each["setsAside"] for each in orders.values())


def test_of_two_none_is_named_and_none_gets_a_new_pod() -> None:
    gang = Restoring("worker-0", "worker-1")
    gang.agree(16, 32)
    gang.diverge(64, "worker-1")
    assert len(gang.stops) == 2 and not any("moves" in each for each in gang.stops.values())
    assert "worker-0, worker-1 hold other values than each other" in gang.stops["worker-0"]["why"]


def test_with_report_nothing_is_set_aside_and_the_training_goes_on() -> None:
    gang = Restoring("worker-0", "worker-1", "worker-2", on_divergence="Report")
    gang.agree(16, 32)
    gang.diverge(64, "worker-1")
    assert gang.order == {} and gang.stops == {} and gang.found[0]
    assert told(gang)["replicas"].endswith("first/kernel")


def told(gang: Restoring) -> dict[str, Any]:
    found: dict[str, Any] = gang_summary(gang.chief)["backup"]
    return found


def test_without_a_copy_on_which_all_agreed_it_is_only_told(gang: Restoring) -> None:
    gang.diverge(16, "worker-1")
    assert gang.stops == {} and gang.chief.rounds.running
    assert told(gang)["replicas"].endswith(
        "; the training goes on with them, for there is no copy on which all have agreed"
    )
    assert told(gang)["agreedStep"] is None


def test_a_member_that_has_no_room_says_why_it_is_only_told(gang: Restoring) -> None:
    gang.more = {"worker-1": {"setAside": [], "setAsideReason": "four copies need 9 MiB"}}
    gang.agree(16, 32)
    gang.diverge(64, "worker-2")
    assert gang.stops == {} and gang.chief.rounds.running
    assert told(gang)["replicas"].endswith("; the training goes on with them, for four copies need 9 MiB")


@pytest.mark.parametrize("odd", ["worker-0", "worker-2"])
def test_a_copy_that_differs_or_that_one_has_not_set_aside_is_none_on_which_all_agree(
    gang: Restoring, odd: str
) -> None:
    gang.agree(16, 32)
    gang.now += EVERY_SECONDS
    gang.tick()
    assert gang.order
    gang.step(64, {}, late=odd)
    gang.now += EVERY_SECONDS
    gang.step(80)
    assert gang.chief.agreed.copy == (1, 32)
    gang.tick()
    gang.step(96)
    gang.step(112)
    assert gang.chief.agreed.copy == (1, 96), "the next one"


def test_once_until_a_newer_copy_has_compared_equal(gang: Restoring) -> None:
    gang.agree(16, 32)
    gang.diverge(64, "worker-1")
    restart(gang.chief, gang.now + 60.0, [1, 32])
    gang.now += 61.0
    gang.aside = {name: [[1, 32, []]] for name in gang.names}
    gang.diverge(48, "worker-1")
    assert gang.stops == {} and gang.chief.rounds.running
    assert "it has gone back before, and all have agreed on no copy behind step 32 since" in told(gang)["replicas"]


def test_again_once_a_newer_copy_has_compared_equal(gang: Restoring) -> None:
    gang.agree(16, 32)
    gang.diverge(64, "worker-1")
    restart(gang.chief, gang.now + 60.0, [1, 32])
    gang.now += 61.0
    gang.agree(48, 64, 80)
    gang.diverge(112, "worker-1")
    assert gang.stops["worker-0"]["backTo"] == [(2, 96)]
    assert gang.stops["worker-0"]["suspects"] == [(1, 33), (2, 97)]


def test_a_copy_that_nobody_has_any_more_is_gone(gang: Restoring) -> None:
    gang.agree(16, 32)
    gang.aside = {name: [] for name in gang.names}
    gang.diverge(64, "worker-1")
    assert gang.stops == {} and told(gang)["replicas"].endswith("for the copy of step 32 is gone")


def test_one_member_that_has_it_is_enough(gang: Restoring) -> None:
    gang.agree(16, 32)
    gang.aside = {**{name: [] for name in gang.names}, "worker-2": gang.aside["worker-2"]}
    gang.diverge(64, "worker-1")
    assert gang.stops["worker-0"]["backTo"] == [(1, 32)]


def test_no_new_order_comes_before_the_last_one_is_answered(gang: Restoring) -> None:
    gang.copy(16, {})
    gang.tick()
    first = gang.order
    for _ in range(5):
        gang.now += EVERY_SECONDS
        gang.order = {}
        gang.tick()
        assert gang.order == {}
    gang.order = first
    gang.step(first["step"])
    gang.now += EVERY_SECONDS
    gang.step(first["step"] + 16)
    assert gang.order["agreed"] == [(1, first["step"])]


@pytest.mark.parametrize(
    ("reports", "equal"),
    [
        ([{(1, 5): ["a", "a"]}, {(1, 5): ["a", "a"]}], True),
        ([{(1, 5): ["a", "b"]}, {(1, 5): ["a", "a"]}], False),
        ([{(1, 5): ["a"]}, {}], False),
        ([{(1, 5): []}, {(1, 5): []}], False),
    ],
)
def test_equal_is_what_all_replicas_hold_alike(reports: list[Any], equal: bool) -> None:
    assert are_equal(reports, (1, 5)) == equal


@pytest.mark.parametrize("hostile", ["x", [[1]], [[1, 2, 3]], [["a", "b", []]], [[-1, 5, ["a"]]], [[1, 5, ["a"]]] * 99])
def test_a_hostile_report_of_what_is_set_aside_is_as_none(gang: Restoring, hostile: object) -> None:
    for name in gang.names:
        gang.beat(name, 16, {**report(16, digests={"16": ["right"]}), "setAside": hostile})
    gang.tick()
    assert gang.chief.rounds.running and gang.chief.agreed.copy in (None, (1, 5))


def test_the_only_member_that_has_the_copy_stays_in_its_pod(gang: Restoring) -> None:
    gang.agree(16, 32)
    gang.aside = {**{name: [] for name in gang.names}, "worker-1": gang.aside["worker-1"]}
    gang.diverge(64, "worker-1")
    assert gang.stops["worker-1"]["backTo"] == [(1, 32)]
    assert not any("moves" in each for each in gang.stops.values())
