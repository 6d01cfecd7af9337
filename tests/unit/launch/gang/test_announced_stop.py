"""A round whose end is known before ends after a copy of all members, so that no step is lost."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.simulated_gang.copies import make_steps, report, restart, restored, start_gang_with_copies
from tests.support.simulated_gang.members import take_sent
from tests.support.simulated_gang.simulation import exited, heartbeat, hello
from tftraining.launch.config.settings_and_defaults import Gang, Policy
from tftraining.launch.gang.coordinator import Coordinator

GRACE = 30.0


def training_gang(
    *members: str,
    now: float = 9.0,
    step: int = 100,
    backup: dict[str, Any] | None = None,
    scope: str = "Job",
    **fields: Any,
) -> Coordinator:
    """A gang that makes ten steps a second and copies; an empty outbox."""
    chief = start_gang_with_copies(*members, termination_grace_seconds=GRACE, min_replicas=1, scope=scope)
    make_steps(chief, now, step, backup or report(96), **{"steps_per_second": 10.0, **fields})
    chief.outbox.take_all()
    return chief


def ordered(chief: Coordinator) -> dict[str, int]:
    """The step of each copy that has been ordered; the outbox must have nothing else."""
    frames = [(name, frame) for name, frame in chief.outbox.take_all() if frame["type"] != "beat"]
    assert {frame["type"] for _, frame in frames} <= {"copy"}
    assert {frame["round"] for _, frame in frames} <= {chief.rounds.number}
    return {name: frame["step"] for name, frame in frames}


def leave(chief: Coordinator, name: str, now: float) -> None:
    chief.handle_frame(name, {"type": "leaving"}, now)


def hold(chief: Coordinator, name: str, now: float, step: int) -> None:
    """The program has made the copy, and waits."""
    frame = heartbeat(chief.rounds.number, now, step=step, first_step_time=5.0, updated=1.0, steps_per_second=10.0)
    chief.handle_frame(name, {**frame, "backup": report(step)}, now)


def test_a_round_ends_when_all_members_have_made_the_copy_that_a_leaving_member_causes() -> None:
    chief = training_gang("worker-0", "worker-1")
    leave(chief, "worker-1", 9.0)
    assert ordered(chief) == {"worker-0": 105, "worker-1": 105}
    hold(chief, "worker-0", 9.5, 105)
    assert take_sent(chief) == []
    hold(chief, "worker-1", 9.6, 105)
    assert take_sent(chief) == [("worker-0", "stop"), ("worker-1", "stop")]
    incident = chief.last_incident
    assert incident is not None and (incident.reason, incident.member, incident.step) == ("Terminated", "worker-1", 105)
    assert (incident.charged, incident.backup_skipped, incident.at) == (False, "", 9.6)
    orders = restart(chief, 10.0, [1, 96], [1, 105])
    assert list(orders) == ["worker-0"], "the other one leaves"
    assert restored(orders) == [1, 105]


@pytest.mark.parametrize(
    ("told", "age", "step"),
    [
        ({"steps_per_second": 10.0}, 0.0, 105),
        ({"steps_per_second": 10.0}, 0.25, 108),
        ({"steps_per_second": 2.0}, 0.0, 103),
        ({"steps_per_second": 0.0}, 0.5, 103),
        ({"steps_per_second": 0.0, "last_step_time": 0.0}, 0.0, 113),  # 99 steps in 4 s
        ({"steps_per_second": 0.0, "last_step_time": 0.0, "first_step": 79}, 0.0, 103),  # 20 steps in 4 s
        ({"steps_per_second": 0.0, "last_step_time": 0.0, "first_step": 59}, 0.0, 105),
        ({"steps_per_second": 0.0, "last_step_time": 4.0}, 0.0, 103),
    ],
)
def test_the_order_arrives_before_any_member_has_made_the_step(told: Any, age: float, step: int) -> None:
    chief = training_gang("worker-0", "worker-1", **told)
    leave(chief, "worker-1", 9.0 + age)
    assert set(ordered(chief).values()) == {step}


@pytest.mark.parametrize(("rate", "step"), [(0.5, 101), (1.0, 101), (0.3, 101), (2.1, 102), (4.0, 104)])
def test_long_steps_leave_no_time_for_more_than_needed(rate: float, step: int) -> None:
    chief = start_gang_with_copies("worker-0", "worker-1", termination_grace_seconds=5.0)
    make_steps(chief, 9.0, 100, report(96), steps_per_second=rate)
    chief.outbox.take_all()
    leave(chief, "worker-1", 9.1)
    assert set(ordered(chief).values()) == {step}


@pytest.mark.parametrize(
    ("fields", "earlier", "step"),
    [({"begun": 40}, 0, 125), ({"begun": 0}, 0, 85), ({"begun": 20}, 0, 105), ({}, 0, 105), ({"begun": 0}, 70, 35)],
)
def test_the_order_is_in_steps_of_the_present_fit(fields: dict[str, Any], earlier: int, step: int) -> None:
    backup = report(96 - earlier, **fields)
    chief = training_gang("worker-0", "worker-1", backup=backup, first_step=20, fit_start=earlier)
    leave(chief, "worker-1", 9.0)
    assert set(ordered(chief).values()) == {step}


def test_the_newest_known_step_of_any_member_counts() -> None:
    chief = training_gang("worker-0", "worker-1")
    hold(chief, "worker-1", 9.0, 120)
    chief.outbox.take_all()
    leave(chief, "worker-1", 9.0)
    assert set(ordered(chief).values()) == {125}


def test_a_round_ends_without_the_copy_after_a_bound() -> None:
    chief = training_gang("worker-0", "worker-1")
    leave(chief, "worker-1", 9.0)
    hold(chief, "worker-0", 9.5, 105)
    make_steps(chief, 12.9, 104, report(96))
    chief.tick(12.9)
    assert chief.rounds.running, "3 s, and twice the time of five steps"
    chief.tick(13.1)
    assert not chief.rounds.running
    assert chief.last_incident is not None and chief.last_incident.reason == "Terminated"
    assert chief.last_incident.backup_skipped == "no copy at step 105 in worker-1 after 4.1 s"
    assert restored(restart(chief, 14.0, [1, 88], [1, 96])) == [1, 96]
    assert chief.last_incident.backup_skipped


def test_the_bound_of_a_leaving_member_is_half_of_its_grace_period() -> None:
    chief = training_gang("worker-0", "worker-1", steps_per_second=0.1)
    leave(chief, "worker-1", 9.0)
    for now in (11.0, 14.0, 17.0, 20.0, 23.0):
        make_steps(chief, now, 101, report(96), steps_per_second=0.1)
        chief.tick(now)
    assert chief.rounds.running
    make_steps(chief, 24.1, 101, report(96), steps_per_second=0.1)
    assert not chief.rounds.running


def test_a_leaving_member_that_ends_its_program_too_early_is_the_reason_for_no_copy() -> None:
    chief = training_gang("worker-0", "worker-1")
    leave(chief, "worker-1", 9.0)
    chief.handle_frame("worker-1", exited(1, number_of_signal=15), 10.0)
    assert chief.last_incident is not None and chief.last_incident.reason == "Terminated"
    assert chief.last_incident.backup_skipped == "no copy at step 105 in worker-0, worker-1 after 1.0 s"


def test_a_failure_before_the_copy_is_handled_as_always() -> None:
    chief = training_gang("worker-0", "worker-1")
    leave(chief, "worker-1", 9.0)
    chief.handle_frame("worker-0", exited(1, number_of_signal=9), 9.2)
    incident = chief.last_incident
    assert incident is not None and (incident.reason, incident.charged) == ("Killed", True)
    assert incident.backup_skipped == ""
    restart(chief, 9.5, [1, 96])
    assert chief.rounds.number == 2
    make_steps(chief, 30.0, 110, report(105))
    assert chief.rounds.running, "the announced end was that of the round before"


def test_a_second_leaving_member_changes_nothing() -> None:
    chief = training_gang("worker-0", "worker-1", "worker-2")
    leave(chief, "worker-1", 9.0)
    assert set(ordered(chief).values()) == {105}
    leave(chief, "worker-2", 9.1)
    assert ordered(chief) == {}
    for name in chief.membership.gang:
        hold(chief, name, 9.5, 105)
    assert chief.last_incident is not None and chief.last_incident.member == "worker-1"


@pytest.mark.parametrize(
    ("reason", "why"),
    [("the state does not fit", "the state does not fit"), ("", "not all members make copies")],
)
def test_without_copies_a_leaving_member_ends_its_program_itself(reason: str, why: str) -> None:
    chief = training_gang("worker-0", "worker-1", backup={"on": False, "reason": reason})
    leave(chief, "worker-1", 9.0)
    chief.tick(9.5)
    assert ordered(chief) == {}
    chief.handle_frame("worker-1", exited(1, number_of_signal=15), 10.0)
    assert chief.last_incident is not None and chief.last_incident.reason == "Terminated"
    assert chief.last_incident.backup_skipped == why


def test_the_copy_is_ordered_once_all_members_make_copies() -> None:
    chief = training_gang("worker-0", "worker-1", backup={"on": False, "reason": "waits for the first epoch"})
    leave(chief, "worker-1", 9.0)
    chief.handle_frame("worker-0", {**heartbeat(1, 9.5, step=104, steps_per_second=10.0), "backup": report()}, 9.5)
    chief.tick(9.5)
    assert ordered(chief) == {}
    chief.handle_frame("worker-1", {**heartbeat(1, 9.5, step=104, steps_per_second=10.0), "backup": report()}, 9.5)
    chief.tick(9.5)
    assert set(ordered(chief).values()) == {109}
    for name in chief.membership.gang:
        hold(chief, name, 10.0, 109)
    assert chief.last_incident is not None
    assert (chief.last_incident.reason, chief.last_incident.backup_skipped) == ("Terminated", "")


def test_no_copy_is_ordered_after_a_leaving_member_has_waited_long_enough() -> None:
    chief = training_gang("worker-0", "worker-1", backup={"on": False, "reason": "no room"})
    leave(chief, "worker-1", 9.0)
    chief.tick(10.5)
    for now in (11.0, 13.0, 15.0, 17.0, 19.0, 21.0, 23.0, 24.5):
        make_steps(chief, now, 104, {"on": False, "reason": "no room"})
    make_steps(chief, 25.0, 104, report())
    chief.tick(25.0)
    assert {frame["type"] for _, frame in chief.outbox.take_all()} == {"beat"}


@pytest.mark.parametrize("backup", [None, report(0)], ids=["no backup yet", "backups are on"])
def test_no_copy_is_missed_before_the_first_step(backup: dict[str, Any] | None) -> None:
    chief = start_gang_with_copies("worker-0", "worker-1")
    for name in ("worker-0", "worker-1"):
        chief.handle_frame(name, {**heartbeat(1, 8.0), "backup": backup}, 8.0)
    leave(chief, "worker-1", 9.0)
    assert ordered(chief) == {}
    chief.handle_disconnect("worker-1", 9.5)
    assert chief.last_incident is not None
    assert (chief.last_incident.reason, chief.last_incident.backup_skipped) == ("Terminated", "")


def test_a_program_that_has_ended_makes_no_copy() -> None:
    chief = training_gang("worker-0", "worker-1", "worker-2")
    chief.handle_frame("worker-2", exited(1, 0, step=100, updated=1.0), 9.0)
    leave(chief, "worker-1", 9.0)
    assert ordered(chief) == {}


def test_newcomers_wait_for_a_copy_and_not_for_the_end_of_the_epoch() -> None:
    epoch: dict[str, Any] = {"epoch": 1, "epochs": 9, "steps_per_epoch": 200}
    chief = training_gang("worker-0", "worker-1", "worker-2", **epoch)
    leave(chief, "worker-2", 9.0)
    for name in chief.membership.gang:
        hold(chief, name, 9.5, 105)
    restart(chief, 9.7, [1, 105])
    chief.handle_disconnect("worker-2", 9.8)
    make_steps(chief, 19.0, 150, report(144, resumed=105), steps_per_second=10.0, **epoch)
    chief.outbox.take_all()
    back = hello("worker-2", 19.0, incarnation="worker-2/2", known=2, copiesHeld=[], copyPort=7)
    assert chief.handle_hello(back, 19.0) == ""
    chief.handle_frame("worker-2", {**heartbeat(0, 19.0), "prepared": True}, 19.0)
    chief.tick(19.0)
    steps = {name: frame["step"] for name, frame in chief.outbox.take_all() if frame["type"] == "copy"}
    assert steps == {"worker-0": 155, "worker-1": 155}
    chief.tick(19.1)
    assert chief.rounds.running and ordered(chief) == {}, "the copy is ordered already"
    for name in steps:
        hold(chief, name, 19.5, 155)
    incident = chief.last_incident
    assert incident is not None and (incident.reason, incident.message) == ("Grown", "worker-2 is back")
    orders = restart(chief, 20.0, [2, 144], [2, 155])
    assert restored(orders) == [2, 155]
    assert orders["worker-2"]["fetchFrom"] == {"member": "worker-1", "host": "worker-1", "port": 7}


def resize(chief: Coordinator, size: int, now: float) -> None:
    names = tuple(f"worker-{index}" for index in range(size))
    policy = Policy(termination_grace_seconds=GRACE, min_replicas=1)
    chief.apply_spec_update(Gang(names, names[0]), policy, now)


def test_a_gang_shrinks_after_a_copy() -> None:
    chief = training_gang("worker-0", "worker-1", "worker-2")
    resize(chief, 2, 9.0)
    assert set(ordered(chief)) == {"worker-0", "worker-1", "worker-2"}
    leave(chief, "worker-2", 9.1)
    for name in ("worker-0", "worker-1", "worker-2"):
        hold(chief, name, 9.5, 105)
    assert chief.last_incident is not None
    assert (chief.last_incident.reason, chief.last_incident.message) == ("Resized", "the gang shrinks to 2 members")
    assert list(restart(chief, 10.0, [1, 105])) == ["worker-0", "worker-1"]


def test_only_a_leaving_member_is_in_a_hurry() -> None:
    chief = training_gang("worker-0", "worker-1", "worker-2", steps_per_second=0.1)
    resize(chief, 2, 9.0)
    for second in range(11, 60, 2):
        make_steps(chief, float(second), 101, report(96), steps_per_second=0.1)
    assert chief.rounds.running
    leave(chief, "worker-2", 60.0)
    for now in (62.0, 64.0, 66.0, 68.0):
        make_steps(chief, now, 101, report(96), steps_per_second=0.1)
    assert chief.rounds.running
    make_steps(chief, 69.0, 101, report(96), steps_per_second=0.1)
    assert not chief.rounds.running, "a minute is the longest wait"


def test_a_gang_without_copies_shrinks_at_once() -> None:
    chief = training_gang("worker-0", "worker-1", "worker-2", backup={"on": False, "reason": "off"})
    resize(chief, 2, 9.0)
    assert not chief.rounds.running
    assert chief.last_incident is not None and chief.last_incident.backup_skipped == "off"


def test_a_leaving_worker_beside_parameter_servers_ends_no_round() -> None:
    """It restarts alone, and the coordinator gives its steps to the others."""
    chief = training_gang("chief-0", "worker-0", "ps-0", scope="Pod")
    leave(chief, "worker-0", 9.0)
    chief.tick(9.1)
    assert ordered(chief) == {}
    leave(chief, "chief-0", 9.2)
    assert list(ordered(chief)) == ["chief-0"]
