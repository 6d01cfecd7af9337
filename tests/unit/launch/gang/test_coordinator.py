"""The decisions of the coordinator, one at a time: frames in, frames out, with an injected clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.simulated_gang.members import disconnect_cleanly, send_heartbeats, send_ready, start_gang, take_sent
from tests.support.simulated_gang.simulation import exited, heartbeat, hello, make_coordinator
from tftraining.launch.failure.restart_budget import Ledger
from tftraining.launch.failure.restart_rules import Rule
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.gang.outbox import CLOSE
from tftraining.launch.http.pages import gang_status, gang_summary


def blamed(chief: Coordinator) -> tuple[str, str, bool]:
    """Who is named for the last incident, why, and whether it is charged."""
    assert chief.last_incident is not None
    return chief.last_incident.member, chief.last_incident.reason, chief.last_incident.charged


def test_a_round_starts_once_all_members_are_ready() -> None:
    chief = make_coordinator()
    chief.handle_hello(hello("worker-1"), 1.0)
    assert (chief.rounds.running, chief.rounds.missing) == (False, ["worker-0"])
    chief.handle_hello(hello("worker-0"), 2.0)
    assert take_sent(chief) == [
        ("worker-1", "welcome"),
        ("worker-0", "welcome"),
        ("worker-0", "start"),
        ("worker-1", "start"),
    ]
    assert chief.rounds.number == 1


@pytest.mark.parametrize(
    ("commands", "agreed"),
    [
        ({"chief-0": "x", "worker-0": "x", "ps-0": "y"}, True),
        ({"chief-0": "x", "worker-0": "y", "ps-0": "x"}, False),
        ({"chief-0": "x", "worker-0": "", "ps-0": "x"}, False),  # a launcher of an earlier version
    ],
)
def test_finished_fits_are_kept_if_all_trainers_have_the_same_command(commands: dict[str, str], agreed: bool) -> None:
    """A program that takes no part in the agreement, which is a collective, would keep the others waiting for ever."""
    chief = make_coordinator(*commands)
    for name, command in commands.items():
        chief.handle_hello(hello(name) | ({"keepsFits": command} if command else {}), 1.0)
    told = [frame["keepsFits"] for _, frame in chief.outbox.take_all() if frame["type"] == "start"]
    assert told == [agreed] * 3


def test_the_next_round_number_exceeds_all_known_ones() -> None:
    chief = make_coordinator()
    chief.handle_hello(hello("worker-0", known=0), 0.0)
    chief.handle_hello(hello("worker-1", known=7, witness=7, farewell=7), 0.0)
    assert chief.rounds.number == 8


def test_the_welcome_has_the_last_round_and_the_start_deadline() -> None:
    chief = make_coordinator(start_deadline_seconds=60.0)
    chief.handle_hello(hello("worker-1", now=5.0, known=7, witness=7, farewell=7), 0.0)
    ((name, frame),) = chief.outbox.take_all()
    assert (name, frame["type"], frame["echo"], frame["round"], frame["startDeadline"]) == (
        "worker-1",
        "welcome",
        5.0,
        7,
        60.0,
    )


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"uid": "other"}, "this rendezvous belongs to another job"),
        ({"attempt": 2}, "the attempt is 1, not 2"),
        ({"member": "worker-2"}, "worker-2 is not a member of this job"),
    ],
)
def test_launchers_outside_the_gang_are_refused(other: dict[str, Any], words: str) -> None:
    chief = make_coordinator()
    assert chief.handle_hello(hello("worker-1") | other, 1.0) == words
    assert chief.rounds.missing == ["worker-0", "worker-1"]


def test_a_changed_limit_is_no_resize() -> None:
    chief = start_gang()
    chief.apply_spec_update(chief.membership.job.gang, replace(chief.membership.policy, max_restarts=9), 5.0)
    assert (chief.membership.policy.max_restarts, chief.rounds.resized, take_sent(chief)) == (9, False, [])


def test_the_first_exit_is_the_incident_and_the_others_are_not_charged() -> None:
    chief = start_gang()
    chief.handle_frame("worker-1", exited(1, number_of_signal=9), 5.0)
    assert take_sent(chief) == [("worker-0", "stop"), ("worker-1", "stop")]
    chief.handle_frame("worker-0", exited(1, 1), 5.1)
    assert chief.verdict.ledger.process_failures == 1
    assert blamed(chief) == ("worker-1", "Killed", True)
    send_ready(chief, 5.2)
    assert (chief.rounds.number, chief.rounds.running, chief.verdict.ledger.in_place) == (2, True, 1)


def test_the_stop_frame_names_the_failed_member() -> None:
    chief = start_gang()
    send_heartbeats(chief, 4.9)
    chief.handle_frame("worker-1", exited(1, 1), 5.0)
    assert [frame["member"] for _, frame in chief.outbox.take_all() if frame["type"] == "stop"] == [
        "worker-1",
        "worker-1",
    ]


def test_an_exit_of_an_older_round_is_ignored() -> None:
    chief = start_gang()
    send_heartbeats(chief, 4.9)
    chief.handle_frame("worker-1", exited(1, 1), 5.0)
    send_ready(chief, 5.1)
    chief.handle_frame("worker-0", exited(1, 1), 5.2)
    chief.handle_frame("worker-0", {"type": "ready", "round": 1}, 5.3)
    assert (chief.rounds.number, chief.rounds.running, chief.verdict.ledger.process_failures) == (2, True, 1)
    assert chief.membership.gang["worker-0"].state == "running"


def test_the_chiefs_success_ends_the_job_right_after_a_workers_failure() -> None:
    chief = start_gang()
    chief.handle_frame("worker-1", exited(1, 1), 5.0)
    take_sent(chief)
    chief.handle_frame("worker-0", exited(1, 0), 5.01)
    assert chief.verdict.result is not None
    assert chief.verdict.result.verdict == "Succeeded"
    chief.announce_result()
    assert take_sent(chief) == [("worker-0", "end"), ("worker-1", "end")]


def test_exit_0_of_a_terminated_chief_is_no_success() -> None:
    chief = start_gang()
    chief.handle_frame("worker-0", {"type": "leaving"}, 5.0)
    chief.handle_frame("worker-0", exited(1, 0), 5.1)
    assert chief.verdict.result is None
    assert chief.last_incident is not None
    assert (chief.last_incident.reason, chief.last_incident.charged) == ("Terminated", False)


def test_a_terminated_member_joins_no_round_even_if_it_reconnects() -> None:
    chief = start_gang()
    chief.handle_frame("worker-1", {"type": "leaving"}, 5.0)
    chief.handle_disconnect("worker-1", 5.1)
    chief.handle_frame("worker-0", {"type": "ready", "round": 1}, 5.2)
    # The end of its program takes longer than a break of the network.
    chief.handle_hello(hello("worker-1", 5.3, round=1, known=1, leaving=True), 5.3)
    assert (chief.rounds.running, chief.rounds.missing) == (False, ["worker-1"])
    disconnect_cleanly(chief, "worker-1", 5.4)
    chief.handle_hello(hello("worker-1", 6.0, incarnation="new", known=1), 6.0)
    assert (chief.rounds.number, chief.rounds.running, chief.verdict.ledger.in_place) == (2, True, 0)


def test_a_finished_worker_waits_for_the_chief() -> None:
    chief = start_gang()
    chief.handle_frame("worker-1", exited(1, 0), 5.0)
    assert (chief.rounds.running, chief.verdict.result) == (True, None)
    chief.handle_disconnect("worker-1", 6.0)
    assert chief.rounds.running
    chief.handle_hello(hello("worker-1", 7.0, incarnation="new"), 7.0)
    chief.handle_frame("worker-0", exited(1, 0), 8.0)
    assert chief.verdict.result is not None


def test_members_that_join_after_the_result_receive_it_at_once() -> None:
    chief = start_gang()
    chief.handle_frame("worker-0", exited(1, 0), 5.0)
    chief.handle_disconnect("worker-1", 6.0)
    take_sent(chief)
    chief.handle_hello(hello("worker-1", 7.0, incarnation="new"), 7.0)
    assert take_sent(chief) == [("worker-1", "welcome"), ("worker-1", "end")]


def test_a_member_silent_for_the_member_timeout_is_lost_without_a_charge() -> None:
    chief = start_gang()
    for tenths in range(1, 40):
        chief.handle_frame("worker-0", heartbeat(1, tenths / 10), tenths / 10)
        chief.tick(tenths / 10)
    assert ("worker-1", CLOSE) in take_sent(chief)
    assert chief.last_incident is not None
    assert (chief.last_incident.member, chief.last_incident.reason) == ("worker-1", "MemberLost")
    assert chief.last_incident.at == pytest.approx(3.1)
    assert (chief.verdict.ledger.process_failures, chief.rounds.missing) == (0, ["worker-0", "worker-1"])


def test_a_suspended_chief_does_not_count_its_own_pause_as_silence() -> None:
    chief = start_gang()
    chief.tick(0.5)
    chief.tick(10.0)
    assert chief.rounds.running
    chief.handle_frame("worker-0", heartbeat(1, 9.0), 10.0)
    chief.handle_frame("worker-1", heartbeat(1, 9.0), 10.0)
    chief.tick(10.5)
    assert chief.rounds.running


def test_a_suspended_chief_loses_no_member_with_unread_frames() -> None:
    chief = start_gang("worker-0", "worker-1", "worker-2")
    for now in (0.5, 1.0):
        send_heartbeats(chief, now)
        chief.tick(now)
    chief.tick(3.0)
    chief.handle_frame("worker-1", exited(1, 1), 3.0)
    assert chief.last_incident is not None and chief.last_incident.member == "worker-1"


def test_a_resumed_chief_gives_up_members_that_stay_silent() -> None:
    """Its program may run only as long as it hears all others: they count on that when they go to a new chief."""
    chief = start_gang()
    chief.tick(0.5)
    for now in (2.2, 4.0):
        chief.handle_frame("worker-0", heartbeat(1, now), now)
        chief.tick(now)
        assert chief.rounds.running
    chief.tick(4.5)
    assert not chief.rounds.running


def test_a_second_launcher_of_a_member_is_refused_until_the_first_is_silent() -> None:
    chief = start_gang()
    other = hello("worker-1", 1.0, incarnation="another")
    assert "another launcher of worker-1 is connected" in chief.handle_hello(other, 1.0)
    for tenths in range(5, 45, 5):
        chief.handle_frame("worker-0", heartbeat(1, tenths / 10), tenths / 10)
        chief.tick(tenths / 10)
    assert chief.handle_hello(other, 4.5) == ""


def test_a_reconnecting_launcher_replaces_its_old_connection() -> None:
    chief = start_gang()
    assert chief.handle_hello(hello("worker-1", 1.0, round=1, known=1), 1.0) == ""
    assert (chief.rounds.running, chief.membership.gang["worker-1"].state) == (False, "ready")


def first_round_of_a_new_chief(joined: float, *others: dict[str, Any]) -> float:
    """When a launcher of the chief that began at 0 starts a round, where the others join it at that time."""
    chief = make_coordinator("worker-0", *(f"worker-{index}" for index in range(1, 1 + len(others))))
    chief.handle_hello(hello("worker-0", 0.0), 0.0)
    steps = 0
    while not chief.rounds.running:
        now, steps = steps / 10, steps + 1
        assert now < joined + 20, "it never starts"
        if now == joined:
            for index, fields in enumerate(others, 1):
                chief.handle_hello(hello(f"worker-{index}", now, down=0.5, **fields), now)
        for name, peer in chief.membership.gang.items():
            if peer.is_connected:
                chief.handle_frame(name, heartbeat(0, now), now)
        chief.tick(now)
    assert chief.last_incident is not None
    assert chief.last_incident.at == pytest.approx(joined - 0.5)
    return now - joined


THIRD = {"known": 3, "round": 3}
LEFT = {**THIRD, "left": 0.4}


@pytest.mark.parametrize("joined", [0.1, 10.0], ids=["at once", "after a while"])
@pytest.mark.parametrize(
    ("others", "wait"),
    [
        ([{**LEFT, "farewell": 3, "witness": 3}], 0.0),
        ([{**LEFT, "farewell": 3, "witness": 3}, {}], 2.6),
        ([{**LEFT, "witness": 3}], 4.1),
        ([LEFT], 8.6),
        ([{**LEFT, "witness": 2, "farewell": 2}], 8.6),
        ([{**LEFT, "witness": 3}, {}], 8.6),
        ([{**THIRD, "left": 5.0}, {**THIRD, "left": 1.0}], 8.0),
        ([{**THIRD, "witness": 3}], 4.5),
        ([THIRD], 9.0),
    ],
    ids=[
        "it took leave",
        "it took leave, and another one is new",
        "its connection ended",
        "it fell silent",
        "it was in an earlier round",
        "its connection ended, and another one is new",
        "one after the other",
        "an older launcher",
        "an older launcher, silence",
    ],
)
def test_a_new_chief_waits_until_no_program_of_the_last_round_can_run(
    joined: float, others: list[dict[str, Any]], wait: float
) -> None:
    """The chief's launcher before it may go on as long as it hears a member, and is not seen from here."""
    assert first_round_of_a_new_chief(joined, *others) == pytest.approx(wait, abs=0.11)


def test_a_new_chief_does_not_wait_for_expired_leases() -> None:
    assert first_round_of_a_new_chief(10.0, {**THIRD, "left": 60.0}) == 0.0


def test_a_new_chief_waits_for_the_leases_granted_by_a_chief_that_just_died() -> None:
    assert first_round_of_a_new_chief(0.0, {**THIRD, "left": 60.0}) == pytest.approx(3.0, abs=0.11)


@pytest.mark.parametrize(("ending", "wait"), [("bye", 0.0), ("closed", 3.0), ("ready", 0.0)])
def test_a_closed_connection_does_not_prove_that_the_program_ended(ending: str, wait: float) -> None:
    """Others can bring it about: a proxy, or who can forge a packet. Then the lease of the launcher has to run out."""
    chief = start_gang()
    send_heartbeats(chief, 5.0)
    if ending == "ready":
        chief.handle_frame("worker-0", exited(1, 1), 5.0)
        restart_of_one(chief, "worker-1", 5.0)
    if ending == "bye":
        chief.handle_frame("worker-1", {"type": "bye"}, 5.0)
    chief.handle_disconnect("worker-1", 5.0)
    restart_of_one(chief, "worker-0", 5.0)
    chief.handle_hello(hello("worker-1", 5.0, incarnation="another", known=1), 5.0)
    now = 5.0
    while not chief.rounds.running:
        now += 0.1
        send_heartbeats(chief, now)
        chief.tick(now)
    assert now - 5.0 == pytest.approx(wait, abs=0.11)


def test_a_reconnecting_launcher_has_ended_its_program() -> None:
    chief = start_gang()
    send_heartbeats(chief, 5.0)
    chief.handle_disconnect("worker-1", 5.0)
    restart_of_one(chief, "worker-0", 5.0)
    chief.handle_hello(hello("worker-1", 5.1, round=1, known=1), 5.1)
    assert chief.rounds.running


def restart_of_one(chief: Coordinator, name: str, now: float) -> None:
    chief.handle_frame(name, {"type": "ready", "round": chief.membership.gang[name].round}, now)


def test_the_ledger_is_sent_before_the_back_off() -> None:
    """The chief's launcher may be lost in the back-off: the others have to know what was charged."""
    chief = start_gang()
    send_heartbeats(chief, 5.0)
    chief.handle_frame("worker-1", exited(1, 1), 5.0)
    told = [frame for _, frame in chief.outbox.take_all() if frame["type"] == "stop"]
    assert [frame["ledger"]["processFailures"] for frame in told] == [1, 1]


@pytest.mark.parametrize(
    ("policy", "epoch"), [({}, 5), ({"success_policy": "AllWorkers"}, 4)], ids=["Chief", "AllWorkers"]
)
def test_the_chiefs_progress_at_its_exit_is_the_jobs_progress(policy: dict[str, Any], epoch: int) -> None:
    chief = start_gang(**policy)
    for name in chief.membership.gang:
        chief.handle_frame(name, heartbeat(1, 5.0, epoch=4, epochs=5, updated=1.0), 5.0)
    chief.handle_frame("worker-0", exited(1, 0, epoch=5, epochs=5, updated=2.0), 5.1)
    assert chief.rounds.progress.epoch == epoch


def test_restarts_without_a_new_epoch_back_off() -> None:
    chief = start_gang(max_restarts=100)
    now, waits = 0.0, []
    for number in range(1, 6):
        chief.handle_frame("worker-1", exited(number, 1), now)
        send_ready(chief, now)
        begun = now
        while not chief.rounds.running:
            now += 0.5
            for name in chief.membership.gang:
                chief.handle_frame(name, heartbeat(0, now), now)
            chief.tick(now)
        waits.append(now - begun)
        now += 1
    assert waits == [0, 1, 2, 4, 8]


def test_a_new_epoch_refills_the_budget_and_resets_the_back_off() -> None:
    chief = start_gang(max_restarts=1)
    for number in range(1, 8):
        told = {"epoch": number + 1, "first_epoch": number - 1, "updated": 1.0}
        chief.handle_frame("worker-0", heartbeat(number, number, **told), number)
        chief.handle_frame("worker-1", exited(number, 1), number)
        send_ready(chief, number)
        assert chief.rounds.running
    assert (chief.verdict.result, chief.verdict.ledger.used, chief.verdict.ledger.process_failures) == (
        None,
        1,
        7,
    )


def test_the_same_epoch_again_is_no_progress() -> None:
    chief = start_gang(max_restarts=1)
    for number in (1, 2):
        told = {"epoch": 3, "first_epoch": 2, "updated": 1.0}
        chief.handle_frame("worker-0", heartbeat(number, number, **told), number)
        chief.handle_frame("worker-1", exited(number, 1), number)
        send_ready(chief, number)
    assert chief.verdict.result is not None
    assert chief.verdict.result.reason == "MaxRestartsExceeded"


@pytest.mark.parametrize("saved_now", [True, False])
def test_a_newer_checkpoint_refills_the_budget_and_resets_the_back_off(saved_now: bool) -> None:
    """Told when it is saved, or known by what the next round goes on from."""
    chief = start_gang(max_restarts=1)
    for number in range(1, 8):
        first = 10 * number - 10
        told = {"epoch": 1, "first_epoch": 0, "first_step": first, "step": first + 15, "updated": 1.0}
        saved = {"checkpoint": first + 10} if saved_now else {"checkpoint": first} if first else {}
        chief.handle_frame("worker-0", heartbeat(number, number, **told, **saved), number)
        chief.handle_frame("worker-1", exited(number, 1), number)
        send_ready(chief, number)
        assert chief.rounds.running, number
    assert (chief.verdict.result, chief.verdict.ledger.used, chief.verdict.ledger.process_failures) == (
        None,
        1,
        7,
    )


@pytest.mark.parametrize("told", [{"checkpoint": 10}, {"checkpoint": 10, "first_step": 10}, {"first_step": 10}])
def test_the_same_checkpoint_again_is_no_progress(told: dict[str, int]) -> None:
    chief = start_gang(max_restarts=2)
    chief.tick(0.0)
    for number in (1, 2, 3):
        now = 10.0 * number
        chief.tick(now)
        send_heartbeats(chief, now)
        chief.handle_frame("worker-0", heartbeat(number, now, **{"epoch": 1, "step": 15, "updated": 1.0, **told}), now)
        chief.handle_frame("worker-1", exited(number, 1), now)
        send_ready(chief, now)
        chief.tick(now + 1)
    assert chief.verdict.result is not None
    assert chief.verdict.result.reason == "MaxRestartsExceeded"


def progressed(chief: Coordinator, *told: dict[str, int]) -> bool:
    """Whether an incident comes after progress, where the members have told this in their order."""
    for (name, peer), fields in zip(chief.membership.gang.items(), told, strict=True):
        chief.handle_frame(name, heartbeat(peer.round, 1.0, updated=1.0, **fields), 1.0)
    return chief.rounds.check_progress(1.0, charged=True)


@pytest.mark.parametrize(
    ("told", "is_progress"),
    [
        ([{"epoch": 1, "first_epoch": 0}, {"epoch": 1, "first_epoch": 0}], False),
        ([{"epoch": 2, "first_epoch": 0}, {"epoch": 2, "first_epoch": 0}], True),
        ([{"epoch": 2, "first_epoch": 0}, {"epoch": 1, "first_epoch": 0}], True),
        ([{"epoch": 2, "first_epoch": 0}, {"epoch": 2, "first_epoch": 1}], True),
        ([{"epoch": 5, "first_epoch": 4}, {"epoch": 5, "first_epoch": 4}], False),
        ([{"epoch": 2, "first_epoch": 0}, {}], True),
        ([{"epoch": 1}, {}], False),
    ],
)
def test_the_first_epoch_of_a_round_is_no_progress(told: list[dict[str, int]], is_progress: bool) -> None:
    assert progressed(start_gang(), *told) == is_progress


def test_repeated_epochs_are_no_progress() -> None:
    chief = start_gang("worker-0")
    found = [progressed(chief, {"epoch": epoch, "first_epoch": 0}) for epoch in (5, 3, 4, 5, 6)]
    assert found == [True, False, False, False, True]


@pytest.mark.parametrize(("ran", "is_progress"), [(59.5, False), (60.0, True)])
def test_without_reports_a_round_of_a_minute_is_progress(ran: float, is_progress: bool) -> None:
    chief = start_gang()
    for now in (35.0, ran):
        send_heartbeats(chief, now)
        chief.tick(now)
    assert (chief.rounds.check_progress(ran, charged=True), chief.rounds.has_stepped) == (is_progress, is_progress)


def test_a_program_that_reports_nothing_and_ran_for_a_minute_does_not_fail_for_good() -> None:
    """What it cannot import now it could before, or does not need for its steps."""
    chief = start_gang()
    for now in (35.0, 70.0):
        send_heartbeats(chief, now)
        chief.tick(now)
    chief.handle_frame("worker-1", exited(1, 1, kind="ImportError"), 70.0)
    send_ready(chief, 70.1)
    chief.handle_frame("worker-1", exited(2, 1, kind="ImportError"), 71.0)
    assert (chief.verdict.result, chief.verdict.ledger.process_failures) == (None, 2)


def test_the_checkpoint_of_an_earlier_run_is_no_progress() -> None:
    chief = start_gang(max_restarts=0)
    chief.handle_frame(
        "worker-0", heartbeat(1, 1.0, epoch=3, first_epoch=2, first_step=500, checkpoint=500, updated=1.0), 1.0
    )
    chief.handle_frame("worker-1", exited(1, 1), 1.0)
    assert chief.verdict.ledger.refilled_at == 0
    assert chief.verdict.result is not None


def test_budget_reset_never_keeps_the_charges_in_spite_of_progress() -> None:
    chief = start_gang(max_restarts=1, budget_reset="Never")
    for number in (1, 2):
        chief.handle_frame("worker-0", heartbeat(number, number, epoch=10 * number, updated=1.0), number)
        chief.handle_frame("worker-1", exited(number, 1), number)
        send_ready(chief, number)
    assert chief.verdict.result is not None


def test_lost_members_are_never_charged() -> None:
    chief = start_gang(max_restarts=0)
    for number in range(1, 20):
        chief.handle_disconnect("worker-1", number * 100.0)
        chief.handle_hello(hello("worker-1", number * 100.0, incarnation=str(number)), number * 100.0)
        send_ready(chief, number * 100.0)
        chief.tick(number * 100.0 + 1)
        for name in chief.membership.gang:
            chief.handle_frame(name, heartbeat(0, 0), number * 100.0 + 70)
        chief.tick(number * 100.0 + 70)
        assert chief.rounds.running
    assert (chief.verdict.result, chief.verdict.ledger.process_failures, chief.verdict.ledger.in_place) == (
        None,
        0,
        0,
    )


@pytest.mark.parametrize("kind", ["NotFound", "SyntaxError", "ImportError", "Keras3Fit"])
def test_a_fatal_exit_before_any_step_fails_at_once(kind: str) -> None:
    chief = start_gang()
    chief.handle_frame("worker-1", exited(1, 1, kind=kind, lines=["Traceback", "the last line"]), 1.0)
    assert chief.verdict.result is not None
    assert (chief.verdict.result.verdict, chief.verdict.result.reason, chief.verdict.result.member) == (
        "Failed",
        kind,
        "worker-1",
    )
    assert "the last line" in chief.verdict.result.message


def test_the_same_exit_after_a_step_is_restarted() -> None:
    chief = start_gang()
    for name in chief.membership.gang:
        chief.handle_frame(name, heartbeat(1, 5.0, step=1, first_step_time=0.1, updated=1.0), 5.0)
    chief.handle_frame("worker-1", exited(1, 1, kind="ImportError"), 6.0)
    send_ready(chief, 6.0)
    chief.handle_frame("worker-1", exited(2, 1, kind="ImportError"), 7.0)
    assert chief.verdict.result is None


@pytest.mark.parametrize(("step", "goes_on"), [(1200, True), (1, True), (0, False), (None, False)])
def test_a_new_launcher_of_the_chief_learns_whether_a_step_was_ever_made(step: int | None, goes_on: bool) -> None:
    chief = make_coordinator()
    chief.handle_hello(hello("worker-0", incarnation="new"), 0.0)
    chief.handle_hello(hello("worker-1", round=1, known=1, witness=1, farewell=1, down=2.0, step=step), 0.0)
    assert chief.rounds.number == 2
    chief.handle_frame("worker-1", exited(2, 1, kind="ImportError"), 1.0)
    assert (chief.verdict.result is None) == goes_on


def test_the_operators_setting_says_that_a_step_was_made() -> None:
    chief = make_coordinator("worker-0", proven=True)
    chief.handle_hello(hello("worker-0"), 0.0)
    chief.handle_frame("worker-0", exited(1, 1, kind="ImportError"), 1.0)
    assert (chief.verdict.result, chief.verdict.ledger.process_failures) == (None, 1)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [(heartbeat(1, 20.0, stuck=12.0), "Stalled"), ({"type": "leaving"}, "Terminated"), (None, "MemberLost")],
    ids=["stopped", "terminated", "silent"],
)
def test_a_member_that_is_gone_is_named_for_the_exit_of_its_peer(frame: dict[str, Any] | None, reason: str) -> None:
    """Only one that stands still is charged."""
    chief = start_gang()
    if frame:
        send_heartbeats(chief, 20.0)
        chief.handle_frame("worker-0", frame, 20.0)
    chief.handle_frame("worker-1", exited(1, 1, lines=["UnavailableError: worker 0"]), 20.1)
    assert blamed(chief) == ("worker-0", reason, reason == "Stalled")
    assert chief.last_incident is not None
    assert reason != "Stalled" or "UnavailableError" in chief.last_incident.message


@pytest.mark.parametrize(("stuck", "member"), [(2.9, "worker-1"), (3.0, "worker-0")])
def test_a_stopped_peer_is_charged_from_the_member_timeout_on(stuck: float, member: str) -> None:
    chief = start_gang()
    chief.handle_frame("worker-0", heartbeat(1, 20.0, stuck=stuck), 20.0)
    chief.handle_frame("worker-1", exited(1, 1), 20.0)
    assert chief.last_incident is not None and chief.last_incident.member == member


@pytest.mark.parametrize(("silent", "member"), [(1.5, "worker-1"), (1.6, "worker-0")])
def test_silence_of_half_the_member_timeout_explains_no_exit(silent: float, member: str) -> None:
    chief = start_gang()
    send_heartbeats(chief, 5.0)
    chief.handle_frame("worker-1", exited(1, 1), 5.0 + silent)
    assert chief.last_incident is not None and chief.last_incident.member == member


@pytest.mark.parametrize(
    ("code", "kind", "exception", "member"),
    [
        (42, "", "", "worker-1"),
        (1, "", "ValueError: boom", "worker-1"),
        (1, "ImportError", "", "worker-1"),
        (1, "", "", "worker-0"),
        (1, "", "tensorflow.python.framework.errors_impl.UnavailableError: Socket closed", "worker-0"),
        (1, "", "ConnectionResetError: [Errno 104] Connection reset by peer", "worker-0"),
    ],
)
def test_silence_explains_only_exits_that_a_lost_peer_causes(code: int, kind: str, exception: str, member: str) -> None:
    chief = start_gang()
    chief.rounds.has_stepped = True
    frame = exited(1, code, kind=kind)
    frame["exit"]["exception"] = exception
    chief.handle_frame("worker-1", frame, 2.0)
    assert chief.last_incident is not None
    assert (chief.last_incident.member, chief.last_incident.charged) == (member, member == "worker-1")


def test_a_rule_that_fails_the_job_holds_while_another_member_is_silent() -> None:
    chief = start_gang(rules=(Rule("FailJob", exit_codes=frozenset({42})),))
    chief.handle_frame("worker-1", exited(1, 42, lines=["the data are broken"]), 2.0)
    assert chief.verdict.result is not None
    assert (chief.verdict.result.reason, chief.verdict.result.member) == ("FailedByRule", "worker-1")


@pytest.mark.parametrize(
    ("silent", "words"), [(0.5, "'s launcher disconnected"), (1.5, " sent no heartbeat for 1.5 s")]
)
def test_the_message_names_silence_only_after_a_second(silent: float, words: str) -> None:
    chief = start_gang()
    send_heartbeats(chief, 5.0)
    chief.handle_disconnect("worker-1", 5.0 + silent)
    assert chief.last_incident is not None and chief.last_incident.message == f"worker-1{words}"


UNAVAILABLE = "tensorflow.python.framework.errors_impl.UnavailableError: Graph execution error:"


@pytest.mark.parametrize(
    ("exception", "after", "member"),
    [
        (UNAVAILABLE, 2.0, "worker-1"),
        (UNAVAILABLE, 40.0, "worker-0"),
        ("ValueError: boom", 2.0, "worker-0"),
    ],
)
def test_an_early_exit_with_0_explains_its_peers_failure(exception: str, after: float, member: str) -> None:
    chief = start_gang()
    chief.handle_frame("worker-1", exited(1, 0), 1.0)
    send_heartbeats(chief, after)
    frame = exited(1, 1, lines=[" [[{{node CollectiveReduceV2}}]]"])
    frame["exit"]["exception"] = exception
    chief.handle_frame("worker-0", frame, 1.0 + after)
    assert blamed(chief) == (member, "Error", True)
    assert chief.last_incident is not None
    early = "worker-1 exited with code 0 before the other members finished; worker-0: "
    assert chief.last_incident.message.startswith(early) == (member == "worker-1")
    assert chief.verdict.ledger.process_failures == 1


def test_a_stall_dumps_stacks_and_is_charged() -> None:
    chief = start_gang(stall_timeout_seconds=10.0)
    for second in range(1, 13):
        for name, step in (("worker-0", 4), ("worker-1", 3)):
            age = max(0.0, second - step)
            chief.handle_frame(
                name, heartbeat(1, second, step=min(step, second), last_step_time=age, updated=1.0), second
            )
        chief.tick(second)
        assert chief.rounds.running
    for name, step in (("worker-0", 4), ("worker-1", 3)):
        chief.handle_frame(name, heartbeat(1, 14.0, step=step, last_step_time=14.0 - step, updated=1.0), 14.0)
    chief.tick(14.0)
    assert chief.last_incident is not None
    assert (chief.last_incident.member, chief.last_incident.reason) == ("worker-1", "Stalled")
    assert chief.verdict.ledger.process_failures == 1
    stops = [frame for _, frame in chief.outbox.take_all() if frame["type"] == "stop"]
    assert [frame["dump"] for frame in stops] == [True, True]


@pytest.mark.parametrize(("step", "stalls"), [(1200, True), (0, True), (None, False)])
def test_a_round_that_hangs_before_its_first_report_stalls_if_the_members_reported_before(
    step: int | None, stalls: bool
) -> None:
    chief = make_coordinator(stall_timeout_seconds=10.0)
    chief.handle_hello(hello("worker-0", incarnation="new"), 0.0)
    chief.handle_hello(hello("worker-1", round=1, known=1, witness=1, farewell=1, down=2.0, step=step), 0.0)
    for second in range(1, 12):
        send_heartbeats(chief, float(second))
        chief.tick(float(second))
    assert chief.last_incident is not None
    assert (chief.last_incident.reason == "Stalled", chief.rounds.running) == (stalls, not stalls)


def test_programs_that_never_reach_their_peers_stall_in_the_first_round() -> None:
    chief = start_gang(stall_timeout_seconds=40.0)
    for second in range(1, 42):
        assert (chief.rounds.running, chief.rounds.training_since) == (True, None), second
        for name in ("worker-0", "worker-1"):
            chief.handle_frame(name, heartbeat(1, float(second), connecting=True), float(second))
        chief.tick(float(second))
    assert chief.last_incident is not None
    assert chief.last_incident.reason == "Stalled"
    limit = "40 s (spec.runPolicy.stallTimeoutSeconds)"
    assert chief.last_incident.message == f"worker-0, worker-1: no connection to the other programs for {limit}"
    assert chief.verdict.ledger.process_failures == 1


def test_a_program_that_has_reached_its_peers_and_reports_nothing_never_stalls() -> None:
    chief = start_gang(stall_timeout_seconds=10.0)
    for second in range(1, 100):
        for name in ("worker-0", "worker-1"):
            chief.handle_frame(
                name, heartbeat(1, float(second), **({"connecting": True} if second < 9 else {})), float(second)
            )
        chief.tick(float(second))
    assert chief.rounds.running
    assert chief.rounds.training_since is not None, "taken to train"


def test_the_start_deadline_names_three_and_counts_the_rest() -> None:
    chief = make_coordinator(*(f"worker-{index}" for index in range(6)), start_deadline_seconds=10.0)
    chief.handle_hello(hello("worker-0"), 0.0)
    for second in range(1, 12):
        chief.handle_frame("worker-0", heartbeat(0, second), second)
        chief.tick(second)
    assert chief.verdict.result is not None
    assert (chief.verdict.result.reason, chief.verdict.result.member) == ("StartDeadlineExceeded", None)
    assert chief.verdict.result.message.startswith(
        "worker-1, worker-2, worker-3 and 2 more did not connect within 10 s"
    )


def test_the_start_deadline_does_not_count_while_the_gang_runs() -> None:
    chief = start_gang(start_deadline_seconds=10.0)
    for second in range(1, 100):
        for name in chief.membership.gang:
            chief.handle_frame(name, heartbeat(1, second), second)
        chief.tick(second)
    chief.handle_disconnect("worker-1", 100.0)
    chief.handle_frame("worker-0", heartbeat(1, 105.0), 105.0)
    chief.tick(105.0)
    assert chief.verdict.result is None


@pytest.mark.parametrize(
    ("limit", "spoilt", "exception", "new_pods"),
    [
        (3, True, "FileExistsError: src", True),
        (3, True, "KeyError: 'x'", False),
        (0, True, "KeyError: 'x'", True),
        (3, False, "FileExistsError: src", False),
    ],
)
def test_a_member_whose_program_no_longer_starts_in_its_pod_takes_a_new_one(
    limit: int, spoilt: bool, exception: str, new_pods: bool
) -> None:
    """Unless the failure counts for the job, which has made no step. Each member decides for itself."""
    chief = start_gang(same_failure_limit=limit)
    frame = exited(1)
    chief.handle_frame(
        "worker-1", {**frame, "spoilt": spoilt, "exit": {**frame["exit"], "code": 1, "exception": exception}}, 2.0
    )
    assert [frame["newPods"] for _, frame in chief.outbox.take_all() if frame["type"] == "stop"] == [new_pods] * 2
    send_ready(chief, 2.5)
    chief.handle_frame("worker-0", exited(2, 1), 3.0)
    stops = [frame["newPods"] for _, frame in chief.outbox.take_all() if frame["type"] == "stop"]
    assert stops == [False, False], "what a member has told counts in its round"


def start_late(seconds: int, limit: float, **progress: dict[str, Any]) -> Coordinator:
    """A gang of which each member reports this progress for so long; {} for nothing."""
    chief = start_gang(start_deadline_seconds=limit)
    for second in range(1, seconds + 1):
        send_heartbeats(chief, float(second))
        for name, told in progress.items():
            chief.handle_frame(name.replace("_", "-"), heartbeat(1, float(second), **told), float(second))
        chief.tick(float(second))
    return chief


CONNECTS: dict[str, Any] = {"connecting": True}
LOADS: dict[str, Any] = {"updated": 1000.0}


@pytest.mark.parametrize(
    ("limit", "members", "words"),
    [
        (25, (CONNECTS, CONNECTS), "worker-0, worker-1: no connection to the other programs"),
        (600, (CONNECTS, CONNECTS), "worker-0, worker-1: no connection to the other programs"),
        (25, (CONNECTS, LOADS), "worker-0: no connection to the other programs"),
        (25, (LOADS, LOADS), "worker-0, worker-1: no step"),
    ],
)
def test_programs_that_do_not_train_at_the_start_deadline_fail_the_job(
    limit: int, members: tuple[dict[str, Any], dict[str, Any]], words: str
) -> None:
    chief = start_late(limit, limit, worker_0=members[0], worker_1=members[1])
    assert chief.verdict.result is None
    chief.tick(limit + 1.0)
    assert chief.verdict.result is not None
    assert chief.verdict.result.reason == "StartDeadlineExceeded"
    assert chief.verdict.result.message.startswith(f"{words} within {limit} s (spec.runPolicy.startDeadlineSeconds)")


@pytest.mark.parametrize("members", [(LOADS, LOADS), (CONNECTS, {}), (CONNECTS, LOADS)])
def test_without_a_deadline_of_its_own_a_gang_may_load_for_longer_and_says_so(
    members: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    """The API server stores 600 in every job: the job has asked for nothing."""
    chief = start_late(700, 600.0, worker_0=members[0], worker_1=members[1])
    told = gang_summary(chief)
    assert (chief.verdict.result, told["phase"], told["reason"]) == (None, "Starting", "SlowStart")
    assert told["message"].startswith("worker-0") and " within 600 s " in told["message"]
    for name in ("worker-0", "worker-1"):
        chief.handle_frame(name, heartbeat(1, 701.0, step=1, first_step_time=0.1, updated=1.0), 701.0)
    assert gang_summary(chief)["reason"] == "Training"


def test_a_deadline_before_programs_that_report_nothing_count_as_training_ends_no_job() -> None:
    chief = start_late(40, 10.0)
    assert (chief.verdict.result, chief.rounds.training_since is None) == (None, False)


@pytest.mark.parametrize("limit", [25, 600])
def test_a_member_that_exits_with_0_before_the_others_have_started_is_named_and_the_deadline_fires(limit: int) -> None:
    chief = start_late(2, limit, worker_0=CONNECTS, worker_1={})
    chief.handle_frame("worker-1", exited(1, 0), 2.0)
    early = "worker-1 exited with code 0 before the others had started"
    assert gang_summary(chief)["message"] == f"round 1 has started; no step yet; {early}"
    for second in range(3, limit + 2):
        send_heartbeats(chief, float(second))
        chief.handle_frame("worker-0", heartbeat(1, float(second), connecting=True), float(second))
        chief.tick(float(second))
    assert chief.verdict.result is not None
    assert chief.verdict.result.message.endswith(f"(spec.runPolicy.startDeadlineSeconds); {early}")


def test_an_evaluator_delays_no_round_and_restarts_alone() -> None:
    chief = start_gang()
    chief.handle_hello(hello("evaluator-0", 1.0), 1.0)
    assert take_sent(chief) == [("evaluator-0", "welcome"), ("evaluator-0", "start")]
    chief.handle_frame("evaluator-0", exited(1, 1), 2.0)
    assert take_sent(chief) == [("evaluator-0", "stop")]
    chief.handle_frame("evaluator-0", {"type": "ready", "round": 1}, 2.1)
    assert take_sent(chief) == [("evaluator-0", "start")]
    chief.handle_disconnect("evaluator-0", 3.0)
    assert (chief.rounds.running, chief.rounds.number, chief.verdict.ledger.process_failures) == (True, 1, 0)


def test_ledgers_are_merged_and_sent_with_the_start_frame() -> None:
    chief = make_coordinator(ledger=Ledger(pod_failures=2))
    chief.handle_hello(hello("worker-0", ledger={"processFailures": 3}), 0.0)
    chief.handle_hello(hello("worker-1", ledger={"inPlace": 4}), 0.0)
    starts = [frame["ledger"] for _, frame in chief.outbox.take_all() if frame["type"] == "start"]
    assert len(starts) == 2
    for each in starts:
        assert (each["inPlace"], each["processFailures"], each["podFailures"]) == (4, 3, 2)


@pytest.mark.parametrize(
    "frame", [{}, {"type": "beat"}, {"type": "exited", "round": 1}, {**heartbeat(1, 0), "stuck": "x"}]
)
def test_an_invalid_frame_raises_an_error_that_ends_its_connection(frame: dict[str, Any]) -> None:
    chief = start_gang()
    with pytest.raises((KeyError, TypeError, ValueError)):
        chief.handle_frame("worker-1", frame, 1.0)


# What people and the operator read.


def test_the_last_restart_reports_its_cost_once_all_train_again() -> None:
    chief = start_gang()
    for name in chief.membership.gang:
        chief.handle_frame(name, heartbeat(1, 9.0, step=170, epoch=3, first_step_time=5.0, updated=1.0), 9.0)
    chief.handle_frame("worker-1", exited(1, number_of_signal=9, step=171, epoch=3, updated=1.0), 10.0)
    status = gang_status(chief, 10.0)
    assert (status["phase"], status["missing"]) == ("Restarting", ["worker-0", "worker-1"])
    assert status["lastRestart"]["downSeconds"] is None
    assert status["progress"]["step"] == 170
    send_ready(chief, 10.1)
    assert gang_status(chief, 10.2)["phase"] == "Starting"
    told = {"step": 141, "epoch": 3, "first_epoch": 2, "first_step": 140, "updated": 1.0}
    chief.handle_frame("worker-0", heartbeat(2, 11.2, first_step_time=0.1, **told), 11.2)
    assert gang_status(chief, 11.2)["phase"] == "Starting"
    chief.handle_frame("worker-1", heartbeat(2, 11.3, first_step_time=0.1, **told), 11.3)
    status = gang_status(chief, 11.3)
    assert status["phase"] == "Training"
    assert status["message"] == "worker-1 was killed (SIGKILL); resumed from epoch 2 after 1.2 s"
    last = status["lastRestart"]
    assert (last["downSeconds"], last["resumedFromEpoch"], last["resumedFromStep"], last["lostSteps"]) == (
        1.2,
        2,
        140,
        31,
    )
    assert (last["member"], last["signal"], last["time"]) == ("worker-1", 9, "1970-01-01T00:16:40.000Z")


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"first_epoch": 0, "first_step": 0, "epoch": 1, "step": 1}, "started over: no backup found, after 1.2 s"),
        ({"first_step": 0, "step": 1}, "started over: no backup found, after 1.2 s"),
        ({"first_epoch": 0, "first_step": 40, "epoch": 1, "step": 41}, "resumed from step 40 after 1.2 s"),
        ({"first_epoch": 3, "first_step": 210, "epoch": 3}, "resumed from epoch 3 after 1.2 s"),
        ({}, "resumed after 1.2 s"),
    ],
)
def test_the_status_says_that_no_backup_was_found(told: dict[str, int], words: str) -> None:
    chief = start_gang()
    chief.handle_frame("worker-1", exited(1, number_of_signal=9, updated=1.0), 10.0)
    send_ready(chief, 10.1)
    for name in chief.membership.gang:
        chief.handle_frame(name, heartbeat(2, 11.2, first_step_time=0.0, updated=1.0, **told), 11.2)
    assert gang_status(chief, 11.2)["message"] == f"worker-1 was killed (SIGKILL); {words}"
    assert gang_status(chief, 11.2)["lastRestart"]["lostSteps"] is None, "nobody knows how far it was before"


@pytest.mark.parametrize(("now", "phase"), [(6.9, "Starting"), (7.1, "Training")])
def test_a_round_trains_two_seconds_after_its_first_step(now: float, phase: str) -> None:
    chief = start_gang("worker-0", "worker-1", "worker-2")
    for name, made in (("worker-0", 5.0), ("worker-1", 6.5)):
        chief.handle_frame(name, heartbeat(1, 6.6, step=1, first_step_time=6.6 - made, updated=1.0), 6.6)
    chief.handle_frame("worker-2", heartbeat(1, 6.6), 6.6)
    chief.tick(now)
    assert gang_status(chief, now)["phase"] == phase


def test_a_round_waits_for_the_first_step_of_a_program_that_reports() -> None:
    chief = start_gang()
    chief.handle_frame("worker-0", heartbeat(1, 40.0, updated=1.0), 40.0)
    chief.handle_frame("worker-1", heartbeat(1, 40.0), 40.0)
    chief.tick(40.0)
    assert gang_status(chief, 40.0)["phase"] == "Starting"


def test_down_seconds_are_rounded_to_hundredths() -> None:
    chief = start_gang()
    chief.handle_frame("worker-1", exited(1, number_of_signal=9, updated=1.0), 10.0)
    send_ready(chief, 10.1)
    for name in chief.membership.gang:
        chief.handle_frame(name, heartbeat(2, 11.2345, first_step_time=0.0, updated=1.0), 11.2345)
    assert gang_status(chief, 11.2345)["lastRestart"]["downSeconds"] == 1.23


def test_progress_in_the_exit_frame_counts_without_a_heartbeat() -> None:
    chief = start_gang()
    chief.handle_frame("worker-1", exited(1, number_of_signal=9, step=20, epoch=4, updated=1.0), 10.0)
    send_ready(chief, 10.1)
    told: dict[str, Any] = {
        "first_step": 20,
        "step": 20,
        "first_epoch": 4,
        "epoch": 4,
        "updated": 1.0,
        "first_step_time": 0.1,
    }
    for name in reversed(list(chief.membership.gang)):
        chief.handle_frame(name, exited(2, code=0, **told), 11.2)
    last = gang_status(chief, 11.2)["lastRestart"]
    assert (last["downSeconds"], last["resumedFromEpoch"], last["lostSteps"]) == (1.1, 4, 0)


def test_the_status_of_an_idle_gang_changes_only_in_ages() -> None:
    chief = start_gang()
    told = {"step": 5, "first_step": 0, "updated": 1.0}
    looks = []
    for now in (5.0, 5.5, 6.0):
        for name in chief.membership.gang:
            chief.handle_frame(name, heartbeat(1, now, first_step_time=now - 4.0 + 0.001 * now, **told), now)
        chief.tick(now)
        look = gang_status(chief, now)
        for member in look["members"].values():
            del member["silentSeconds"]
        looks.append(look)
    assert looks[0] == looks[1] == looks[2]


def test_the_wait_before_a_round_is_told() -> None:
    chief = start_gang(max_restarts=9)
    for number in (1, 2):
        chief.handle_frame("worker-1", exited(number, 3), float(number))
        for name in ("worker-0", "worker-1"):
            chief.handle_frame(name, {"type": "ready", "round": number}, float(number))
    assert gang_summary(chief)["message"].endswith("; starting the programs after a wait of 1 s")
