"""The decisions of the rendezvous, one at a time: frames in, frames out, with a clock of the test's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.simulated_gang.members import alive, leave, restart, sent, started
from tests.support.simulated_gang.simulation import beat, coordinator, exited, hello
from tftraining.launch.failure.ledger import Ledger
from tftraining.launch.failure.restart_rules import Rule
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.gang.outbox import CLOSE
from tftraining.launch.http.pages import of_gang


def test_a_round_starts_when_all_are_there_and_not_before() -> None:
    chief = coordinator()
    chief.hello(hello("worker-1"), 1.0)
    assert (chief.rounds.running, chief.rounds.missing) == (False, ["worker-0"])
    chief.hello(hello("worker-0"), 2.0)
    assert sent(chief) == [
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
def test_the_end_of_fit_is_kept_where_all_who_train_can_agree_on_it(commands: dict[str, str], agreed: bool) -> None:
    """A program that takes no part in the agreement, which is a collective, would keep the others waiting for ever."""
    chief = coordinator(*commands)
    for name, command in commands.items():
        chief.hello(hello(name) | ({"keepsFits": command} if command else {}), 1.0)
    told = [frame["keepsFits"] for _, frame in chief.outbox.take() if frame["type"] == "start"]
    assert told == [agreed] * 3


def test_the_next_round_is_beyond_all_that_were_heard_of() -> None:
    chief = coordinator()
    chief.hello(hello("worker-0", known=0), 0.0)
    chief.hello(hello("worker-1", known=7, witness=7, farewell=7), 0.0)
    assert chief.rounds.number == 8


def test_who_joins_is_told_of_the_last_round_and_how_long_the_gang_waits_for_all() -> None:
    chief = coordinator(start_deadline=60.0)
    chief.hello(hello("worker-1", now=5.0, known=7, witness=7, farewell=7), 0.0)
    ((name, frame),) = chief.outbox.take()
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
def test_who_does_not_belong_to_the_gang_may_not_join(other: dict[str, Any], words: str) -> None:
    chief = coordinator()
    assert chief.hello(hello("worker-1") | other, 1.0) == words
    assert chief.rounds.missing == ["worker-0", "worker-1"]


def test_another_limit_is_no_other_size() -> None:
    chief = started()
    chief.change(chief.roster.job.gang, replace(chief.roster.policy, max_restarts=9), 5.0)
    assert (chief.roster.policy.max_restarts, chief.rounds.resized, sent(chief)) == (9, False, [])


def test_the_first_exit_is_the_incident_and_the_others_are_not_charged() -> None:
    chief = started()
    chief.heard("worker-1", exited(1, number_of_signal=9), 5.0)
    assert sent(chief) == [("worker-0", "stop"), ("worker-1", "stop")]
    chief.heard("worker-0", exited(1, 1), 5.1)
    assert chief.judge.ledger.process_failures == 1
    assert chief.incident is not None
    assert (chief.incident.member, chief.incident.reason, chief.incident.charged) == ("worker-1", "Killed", True)
    restart(chief, 5.2)
    assert (chief.rounds.number, chief.rounds.running, chief.judge.ledger.in_place) == (2, True, 1)


def test_everybody_is_told_whose_incident_ends_the_round() -> None:
    chief = started()
    alive(chief, 4.9)
    chief.heard("worker-1", exited(1, 1), 5.0)
    assert [frame["member"] for _, frame in chief.outbox.take() if frame["type"] == "stop"] == ["worker-1", "worker-1"]


def test_an_exit_of_an_older_round_is_late_and_ignored() -> None:
    chief = started()
    alive(chief, 4.9)
    chief.heard("worker-1", exited(1, 1), 5.0)
    restart(chief, 5.1)
    chief.heard("worker-0", exited(1, 1), 5.2)
    chief.heard("worker-0", {"type": "ready", "round": 1}, 5.3)
    assert (chief.rounds.number, chief.rounds.running, chief.judge.ledger.process_failures) == (2, True, 1)
    assert chief.roster.gang["worker-0"].state == "running"


def test_the_chiefs_success_ends_the_job_also_when_a_worker_failed_a_moment_earlier() -> None:
    chief = started()
    chief.heard("worker-1", exited(1, 1), 5.0)
    sent(chief)
    chief.heard("worker-0", exited(1, 0), 5.01)
    assert chief.judge.verdict is not None
    assert chief.judge.verdict.verdict == "Succeeded"
    chief.announce()
    assert sent(chief) == [("worker-0", "end"), ("worker-1", "end")]


def test_a_chief_that_leaves_with_a_polite_zero_has_not_succeeded() -> None:
    chief = started()
    chief.heard("worker-0", {"type": "leaving"}, 5.0)
    chief.heard("worker-0", exited(1, 0), 5.1)
    assert chief.judge.verdict is None
    assert chief.incident is not None
    assert (chief.incident.reason, chief.incident.charged) == ("Terminated", False)


def test_who_is_told_to_go_is_in_no_round_however_often_it_comes_back_before_it_has_gone() -> None:
    chief = started()
    chief.heard("worker-1", {"type": "leaving"}, 5.0)
    chief.lost("worker-1", 5.1)
    chief.heard("worker-0", {"type": "ready", "round": 1}, 5.2)
    # The end of its program takes longer than a break of the network.
    chief.hello(hello("worker-1", 5.3, round=1, known=1, leaving=True), 5.3)
    assert (chief.rounds.running, chief.rounds.missing) == (False, ["worker-1"])
    leave(chief, "worker-1", 5.4)
    chief.hello(hello("worker-1", 6.0, incarnation="new", known=1), 6.0)
    assert (chief.rounds.number, chief.rounds.running, chief.judge.ledger.in_place) == (2, True, 0)


def test_a_worker_that_is_done_waits_for_the_chief() -> None:
    chief = started()
    chief.heard("worker-1", exited(1, 0), 5.0)
    assert (chief.rounds.running, chief.judge.verdict) == (True, None)
    chief.lost("worker-1", 6.0)
    assert chief.rounds.running
    chief.hello(hello("worker-1", 7.0, incarnation="new"), 7.0)
    chief.heard("worker-0", exited(1, 0), 8.0)
    assert chief.judge.verdict is not None


def test_late_comers_after_the_verdict_are_told_at_once() -> None:
    chief = started()
    chief.heard("worker-0", exited(1, 0), 5.0)
    chief.lost("worker-1", 6.0)
    sent(chief)
    chief.hello(hello("worker-1", 7.0, incarnation="new"), 7.0)
    assert sent(chief) == [("worker-1", "welcome"), ("worker-1", "end")]


def test_silence_beyond_the_timeout_is_a_loss_without_a_charge() -> None:
    chief = started()
    for tenths in range(1, 40):
        chief.heard("worker-0", beat(1, tenths / 10), tenths / 10)
        chief.tick(tenths / 10)
    assert ("worker-1", CLOSE) in sent(chief)
    assert chief.incident is not None
    assert (chief.incident.member, chief.incident.reason) == ("worker-1", "MemberLost")
    assert chief.incident.at == pytest.approx(3.1)
    assert (chief.judge.ledger.process_failures, chief.rounds.missing) == (0, ["worker-0", "worker-1"])


def test_a_chief_that_was_held_up_itself_does_not_take_its_own_silence_for_theirs() -> None:
    chief = started()
    chief.tick(0.5)
    chief.tick(10.0)
    assert chief.rounds.running
    chief.heard("worker-0", beat(1, 9.0), 10.0)
    chief.heard("worker-1", beat(1, 9.0), 10.0)
    chief.tick(10.5)
    assert chief.rounds.running


def test_a_chief_that_was_held_up_blames_nobody_whose_frames_it_has_not_read_yet() -> None:
    chief = started("worker-0", "worker-1", "worker-2")
    for now in (0.5, 1.0):
        alive(chief, now)
        chief.tick(now)
    chief.tick(3.0)
    chief.heard("worker-1", exited(1, 1), 3.0)
    assert chief.incident is not None and chief.incident.member == "worker-1"


def test_a_chief_that_was_held_up_gives_up_who_has_said_nothing_meanwhile() -> None:
    """Its program may run only as long as it hears all others: they count on that when they go to a new chief."""
    chief = started()
    chief.tick(0.5)
    for now in (2.2, 4.0):
        chief.heard("worker-0", beat(1, now), now)
        chief.tick(now)
        assert chief.rounds.running
    chief.tick(4.5)
    assert not chief.rounds.running


def test_a_second_launcher_of_a_name_waits_until_the_first_is_silent() -> None:
    chief = started()
    other = hello("worker-1", 1.0, incarnation="another")
    assert "another launcher of worker-1 is connected" in chief.hello(other, 1.0)
    for tenths in range(5, 45, 5):
        chief.heard("worker-0", beat(1, tenths / 10), tenths / 10)
        chief.tick(tenths / 10)
    assert chief.hello(other, 4.5) == ""


def test_the_same_launcher_again_replaces_its_old_connection() -> None:
    chief = started()
    assert chief.hello(hello("worker-1", 1.0, round=1, known=1), 1.0) == ""
    assert (chief.rounds.running, chief.roster.gang["worker-1"].state) == (False, "ready")


def first_round_of_a_new_chief(joined: float, *others: dict[str, Any]) -> float:
    """When a launcher of the chief that began at 0 starts a round, where the others join it at that time."""
    chief = coordinator("worker-0", *(f"worker-{index}" for index in range(1, 1 + len(others))))
    chief.hello(hello("worker-0", 0.0), 0.0)
    steps = 0
    while not chief.rounds.running:
        now, steps = steps / 10, steps + 1
        assert now < joined + 20, "it never starts"
        if now == joined:
            for index, fields in enumerate(others, 1):
                chief.hello(hello(f"worker-{index}", now, down=0.5, **fields), now)
        for name, peer in chief.roster.gang.items():
            if peer.connected:
                chief.heard(name, beat(0, now), now)
        chief.tick(now)
    assert chief.incident is not None
    assert chief.incident.at == pytest.approx(joined - 0.5)
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


def test_a_new_chief_waits_for_no_lease_that_is_over() -> None:
    assert first_round_of_a_new_chief(10.0, {**THIRD, "left": 60.0}) == 0.0


def test_a_new_chief_waits_for_the_leases_of_who_was_with_one_that_has_just_died() -> None:
    assert first_round_of_a_new_chief(0.0, {**THIRD, "left": 60.0}) == pytest.approx(3.0, abs=0.11)


@pytest.mark.parametrize(("ending", "wait"), [("bye", 0.0), ("closed", 3.0), ("ready", 0.0)])
def test_the_end_of_a_connection_does_not_say_that_nothing_runs_there(ending: str, wait: float) -> None:
    """Others can bring it about: a proxy, or who can forge a packet. Then the lease of the launcher has to run out."""
    chief = started()
    alive(chief, 5.0)
    if ending == "ready":
        chief.heard("worker-0", exited(1, 1), 5.0)
        restart_of_one(chief, "worker-1", 5.0)
    if ending == "bye":
        chief.heard("worker-1", {"type": "bye"}, 5.0)
    chief.lost("worker-1", 5.0)
    restart_of_one(chief, "worker-0", 5.0)
    chief.hello(hello("worker-1", 5.0, incarnation="another", known=1), 5.0)
    now = 5.0
    while not chief.rounds.running:
        now += 0.1
        alive(chief, now)
        chief.tick(now)
    assert now - 5.0 == pytest.approx(wait, abs=0.11)


def test_the_same_launcher_has_ended_its_program_before_it_comes_again() -> None:
    chief = started()
    alive(chief, 5.0)
    chief.lost("worker-1", 5.0)
    restart_of_one(chief, "worker-0", 5.0)
    chief.hello(hello("worker-1", 5.1, round=1, known=1), 5.1)
    assert chief.rounds.running


def restart_of_one(chief: Coordinator, name: str, now: float) -> None:
    chief.heard(name, {"type": "ready", "round": chief.roster.gang[name].round}, now)


def test_a_charge_is_told_before_the_next_round_that_has_to_wait() -> None:
    """The chief's launcher may be lost in the back-off: the others have to know what was charged."""
    chief = started()
    alive(chief, 5.0)
    chief.heard("worker-1", exited(1, 1), 5.0)
    told = [frame for _, frame in chief.outbox.take() if frame["type"] == "stop"]
    assert [frame["ledger"]["processFailures"] for frame in told] == [1, 1]


@pytest.mark.parametrize(("policy", "epoch"), [({}, 5), ({"all_workers": True}, 4)], ids=["Chief", "AllWorkers"])
def test_where_the_chief_ends_the_job_its_progress_is_the_jobs(policy: dict[str, Any], epoch: int) -> None:
    chief = started(**policy)
    for name in chief.roster.gang:
        chief.heard(name, beat(1, 5.0, epoch=4, epochs=5, updated=1.0), 5.0)
    chief.heard("worker-0", exited(1, 0, epoch=5, epochs=5, updated=2.0), 5.1)
    assert chief.rounds.progress.epoch == epoch


def test_restarts_without_a_new_epoch_wait_longer_and_longer() -> None:
    chief = started(max_restarts=100)
    now, waits = 0.0, []
    for number in range(1, 6):
        chief.heard("worker-1", exited(number, 1), now)
        restart(chief, now)
        begun = now
        while not chief.rounds.running:
            now += 0.5
            for name in chief.roster.gang:
                chief.heard(name, beat(0, now), now)
            chief.tick(now)
        waits.append(now - begun)
        now += 1
    assert waits == [0, 1, 2, 4, 8]


def test_a_new_epoch_refills_the_budget_and_ends_the_waiting() -> None:
    chief = started(max_restarts=1)
    for number in range(1, 8):
        told = {"epoch": number + 1, "first_epoch": number - 1, "updated": 1.0}
        chief.heard("worker-0", beat(number, number, **told), number)
        chief.heard("worker-1", exited(number, 1), number)
        restart(chief, number)
        assert chief.rounds.running
    assert (chief.judge.verdict, chief.judge.ledger.used, chief.judge.ledger.process_failures) == (None, 1, 7)


def test_the_same_epoch_again_is_no_progress() -> None:
    chief = started(max_restarts=1)
    for number in (1, 2):
        told = {"epoch": 3, "first_epoch": 2, "updated": 1.0}
        chief.heard("worker-0", beat(number, number, **told), number)
        chief.heard("worker-1", exited(number, 1), number)
        restart(chief, number)
    assert chief.judge.verdict is not None
    assert chief.judge.verdict.reason == "MaxRestartsExceeded"


@pytest.mark.parametrize("saved_now", [True, False])
def test_a_newer_checkpoint_inside_an_epoch_refills_the_budget_and_ends_the_waiting(saved_now: bool) -> None:
    """Told when it is saved, or known by what the next round goes on from."""
    chief = started(max_restarts=1)
    for number in range(1, 8):
        first = 10 * number - 10
        told = {"epoch": 1, "first_epoch": 0, "first_step": first, "step": first + 15, "updated": 1.0}
        saved = {"checkpoint": first + 10} if saved_now else {"checkpoint": first} if first else {}
        chief.heard("worker-0", beat(number, number, **told, **saved), number)
        chief.heard("worker-1", exited(number, 1), number)
        restart(chief, number)
        assert chief.rounds.running, number
    assert (chief.judge.verdict, chief.judge.ledger.used, chief.judge.ledger.process_failures) == (None, 1, 7)


@pytest.mark.parametrize("told", [{"checkpoint": 10}, {"checkpoint": 10, "first_step": 10}, {"first_step": 10}])
def test_the_same_checkpoint_again_is_no_progress(told: dict[str, int]) -> None:
    chief = started(max_restarts=2)
    chief.tick(0.0)
    for number in (1, 2, 3):
        now = 10.0 * number
        chief.tick(now)
        alive(chief, now)
        chief.heard("worker-0", beat(number, now, **{"epoch": 1, "step": 15, "updated": 1.0, **told}), now)
        chief.heard("worker-1", exited(number, 1), now)
        restart(chief, now)
        chief.tick(now + 1)
    assert chief.judge.verdict is not None
    assert chief.judge.verdict.reason == "MaxRestartsExceeded"


def progressed(chief: Coordinator, *told: dict[str, int]) -> bool:
    """Whether an incident comes after progress, where the members have told this in their order."""
    for (name, peer), fields in zip(chief.roster.gang.items(), told, strict=True):
        chief.heard(name, beat(peer.round, 1.0, updated=1.0, **fields), 1.0)
    return chief.rounds.progressed(1.0)


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
def test_the_epoch_with_which_a_round_begins_is_no_progress(told: list[dict[str, int]], is_progress: bool) -> None:
    assert progressed(started(), *told) == is_progress


def test_epochs_that_are_done_again_are_no_progress() -> None:
    chief = started("worker-0")
    found = [progressed(chief, {"epoch": epoch, "first_epoch": 0}) for epoch in (5, 3, 4, 5, 6)]
    assert found == [True, False, False, False, True]


@pytest.mark.parametrize(("ran", "is_progress"), [(60.0, False), (60.5, True)])
def test_without_reports_a_round_of_a_minute_is_progress(ran: float, is_progress: bool) -> None:
    chief = started()
    for now in (35.0, ran):
        alive(chief, now)
        chief.tick(now)
    assert (chief.rounds.progressed(ran), chief.rounds.proven) == (is_progress, is_progress)


def test_a_program_that_reports_nothing_and_ran_for_a_minute_does_not_fail_for_good() -> None:
    """What it cannot import now it could before, or does not need for its steps."""
    chief = started()
    for now in (35.0, 70.0):
        alive(chief, now)
        chief.tick(now)
    chief.heard("worker-1", exited(1, 1, kind="ImportError"), 70.0)
    restart(chief, 70.1)
    chief.heard("worker-1", exited(2, 1, kind="ImportError"), 71.0)
    assert (chief.judge.verdict, chief.judge.ledger.process_failures) == (None, 2)


def test_an_earlier_run_s_checkpoint_is_no_progress() -> None:
    chief = started(max_restarts=0)
    chief.heard("worker-0", beat(1, 1.0, epoch=3, first_epoch=2, first_step=500, checkpoint=500, updated=1.0), 1.0)
    chief.heard("worker-1", exited(1, 1), 1.0)
    assert chief.judge.ledger.refilled_at == 0
    assert chief.judge.verdict is not None


def test_with_budget_reset_never_progress_does_not_help() -> None:
    chief = started(max_restarts=1, refill=False)
    for number in (1, 2):
        chief.heard("worker-0", beat(number, number, epoch=10 * number, updated=1.0), number)
        chief.heard("worker-1", exited(number, 1), number)
        restart(chief, number)
    assert chief.judge.verdict is not None


def test_losses_are_free_however_many() -> None:
    chief = started(max_restarts=0)
    for number in range(1, 20):
        chief.lost("worker-1", number * 100.0)
        chief.hello(hello("worker-1", number * 100.0, incarnation=str(number)), number * 100.0)
        restart(chief, number * 100.0)
        chief.tick(number * 100.0 + 1)
        for name in chief.roster.gang:
            chief.heard(name, beat(0, 0), number * 100.0 + 70)
        chief.tick(number * 100.0 + 70)
        assert chief.rounds.running
    assert (chief.judge.verdict, chief.judge.ledger.process_failures, chief.judge.ledger.in_place) == (None, 0, 0)


@pytest.mark.parametrize("kind", ["NotFound", "SyntaxError", "ImportError", "Keras3Fit"])
def test_a_fatal_exit_before_any_step_fails_at_once(kind: str) -> None:
    chief = started()
    chief.heard("worker-1", exited(1, 1, kind=kind, lines=["Traceback", "the last line"]), 1.0)
    assert chief.judge.verdict is not None
    assert (chief.judge.verdict.verdict, chief.judge.verdict.reason, chief.judge.verdict.member) == (
        "Failed",
        kind,
        "worker-1",
    )
    assert "the last line" in chief.judge.verdict.message


def test_the_same_exit_after_a_step_is_restarted() -> None:
    chief = started()
    for name in chief.roster.gang:
        chief.heard(name, beat(1, 5.0, step=1, first_step_time=0.1, updated=1.0), 5.0)
    chief.heard("worker-1", exited(1, 1, kind="ImportError"), 6.0)
    restart(chief, 6.0)
    chief.heard("worker-1", exited(2, 1, kind="ImportError"), 7.0)
    assert chief.judge.verdict is None


@pytest.mark.parametrize(("step", "goes_on"), [(1200, True), (1, True), (0, False), (None, False)])
def test_a_new_launcher_of_the_chief_learns_whether_a_step_was_ever_made(step: int | None, goes_on: bool) -> None:
    chief = coordinator()
    chief.hello(hello("worker-0", incarnation="new"), 0.0)
    chief.hello(hello("worker-1", round=1, known=1, witness=1, farewell=1, down=2.0, step=step), 0.0)
    assert chief.rounds.number == 2
    chief.heard("worker-1", exited(2, 1, kind="ImportError"), 1.0)
    assert (chief.judge.verdict is None) == goes_on


def test_where_nobody_is_left_to_tell_the_operator_does() -> None:
    chief = coordinator("worker-0", proven=True)
    chief.hello(hello("worker-0"), 0.0)
    chief.heard("worker-0", exited(1, 1, kind="ImportError"), 1.0)
    assert (chief.judge.verdict, chief.judge.ledger.process_failures) == (None, 1)


def test_who_is_stopped_is_blamed_for_the_exit_of_its_peer() -> None:
    chief = started()
    chief.heard("worker-0", beat(1, 20.0, stuck=12.0), 20.0)
    chief.heard("worker-1", exited(1, 1, lines=["UnavailableError: worker 0"]), 20.1)
    assert chief.incident is not None
    assert (chief.incident.member, chief.incident.reason, chief.incident.charged) == ("worker-0", "Stalled", True)
    assert "UnavailableError" in chief.incident.message


def test_who_was_told_to_leave_is_named_for_the_exit_of_its_peer_without_a_charge() -> None:
    chief = started()
    alive(chief, 5.0)
    chief.heard("worker-0", {"type": "leaving"}, 5.0)
    chief.heard("worker-1", exited(1, 1, lines=["UnavailableError: worker 0"]), 5.1)
    assert chief.incident is not None
    assert (chief.incident.member, chief.incident.reason, chief.incident.charged) == ("worker-0", "Terminated", False)


def test_who_is_silent_is_blamed_for_the_exit_of_its_peer_without_a_charge() -> None:
    chief = started()
    chief.heard("worker-1", exited(1, 1), 2.0)
    assert chief.incident is not None
    assert (chief.incident.member, chief.incident.reason, chief.incident.charged) == ("worker-0", "MemberLost", False)


@pytest.mark.parametrize(("stuck", "member"), [(2.9, "worker-1"), (3.0, "worker-0")])
def test_a_peer_that_is_stopped_is_blamed_from_the_member_timeout_on(stuck: float, member: str) -> None:
    chief = started()
    chief.heard("worker-0", beat(1, 20.0, stuck=stuck), 20.0)
    chief.heard("worker-1", exited(1, 1), 20.0)
    assert chief.incident is not None and chief.incident.member == member


@pytest.mark.parametrize(("silent", "member"), [(1.5, "worker-1"), (1.6, "worker-0")])
def test_silence_of_half_the_member_timeout_excuses_nobody(silent: float, member: str) -> None:
    chief = started()
    alive(chief, 5.0)
    chief.heard("worker-1", exited(1, 1), 5.0 + silent)
    assert chief.incident is not None and chief.incident.member == member


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
def test_silence_excuses_only_what_the_loss_of_a_peer_brings_about(
    code: int, kind: str, exception: str, member: str
) -> None:
    chief = started()
    chief.rounds.proven = True
    frame = exited(1, code, kind=kind)
    frame["exit"]["exception"] = exception
    chief.heard("worker-1", frame, 2.0)
    assert chief.incident is not None
    assert (chief.incident.member, chief.incident.charged) == (member, member == "worker-1")


def test_a_rule_that_fails_the_job_holds_while_another_member_is_silent() -> None:
    chief = started(rules=(Rule("FailJob", exit_codes=frozenset({42})),))
    chief.heard("worker-1", exited(1, 42, lines=["the data are broken"]), 2.0)
    assert chief.judge.verdict is not None
    assert (chief.judge.verdict.reason, chief.judge.verdict.member) == ("FailedByRule", "worker-1")


@pytest.mark.parametrize(
    ("silent", "words"), [(0.5, "'s launcher disconnected"), (1.5, " sent no heartbeat for 1.5 s")]
)
def test_silence_is_told_of_only_where_there_was_any(silent: float, words: str) -> None:
    chief = started()
    alive(chief, 5.0)
    chief.lost("worker-1", 5.0 + silent)
    assert chief.incident is not None and chief.incident.message == f"worker-1{words}"


UNAVAILABLE = "tensorflow.python.framework.errors_impl.UnavailableError: Graph execution error:"


@pytest.mark.parametrize(
    ("exception", "after", "member"),
    [
        (UNAVAILABLE, 2.0, "worker-1"),
        (UNAVAILABLE, 40.0, "worker-0"),
        ("ValueError: boom", 2.0, "worker-0"),
    ],
)
def test_who_ended_with_0_too_early_is_named_for_what_its_peer_could_not_do_without_it(
    exception: str, after: float, member: str
) -> None:
    chief = started()
    chief.heard("worker-1", exited(1, 0), 1.0)
    alive(chief, after)
    frame = exited(1, 1, lines=[" [[{{node CollectiveReduceV2}}]]"])
    frame["exit"]["exception"] = exception
    chief.heard("worker-0", frame, 1.0 + after)
    assert chief.incident is not None
    assert (chief.incident.member, chief.incident.reason, chief.incident.charged) == (member, "Error", True)
    early = "worker-1 exited with code 0 before the other members finished; worker-0: "
    assert chief.incident.message.startswith(early) == (member == "worker-1")
    assert chief.judge.ledger.process_failures == 1


def test_a_stall_is_dumped_named_and_charged() -> None:
    chief = started(stall_timeout=10.0)
    for second in range(1, 13):
        for name, step in (("worker-0", 4), ("worker-1", 3)):
            age = max(0.0, second - step)
            chief.heard(name, beat(1, second, step=min(step, second), last_step_time=age, updated=1.0), second)
        chief.tick(second)
        assert chief.rounds.running
    for name, step in (("worker-0", 4), ("worker-1", 3)):
        chief.heard(name, beat(1, 14.0, step=step, last_step_time=14.0 - step, updated=1.0), 14.0)
    chief.tick(14.0)
    assert chief.incident is not None
    assert (chief.incident.member, chief.incident.reason) == ("worker-1", "Stalled")
    assert chief.judge.ledger.process_failures == 1
    stops = [frame for _, frame in chief.outbox.take() if frame["type"] == "stop"]
    assert [frame["dump"] for frame in stops] == [True, True]


@pytest.mark.parametrize(("step", "stalls"), [(1200, True), (0, True), (None, False)])
def test_a_round_that_hangs_before_its_first_report_stalls_if_the_members_reported_before(
    step: int | None, stalls: bool
) -> None:
    chief = coordinator(stall_timeout=10.0)
    chief.hello(hello("worker-0", incarnation="new"), 0.0)
    chief.hello(hello("worker-1", round=1, known=1, witness=1, farewell=1, down=2.0, step=step), 0.0)
    for second in range(1, 12):
        alive(chief, float(second))
        chief.tick(float(second))
    assert chief.incident is not None
    assert (chief.incident.reason == "Stalled", chief.rounds.running) == (stalls, not stalls)


def test_a_gang_whose_programs_do_not_reach_each_other_stalls_in_its_first_round() -> None:
    chief = started(stall_timeout=40.0)
    for second in range(1, 42):
        assert (chief.rounds.running, chief.rounds.trained) == (True, None), second
        for name in ("worker-0", "worker-1"):
            chief.heard(name, beat(1, float(second), connecting=True), float(second))
        chief.tick(float(second))
    assert chief.incident is not None
    assert chief.incident.reason == "Stalled"
    limit = "40 s (spec.runPolicy.stallTimeoutSeconds)"
    assert chief.incident.message == f"worker-0, worker-1: no connection to the other programs for {limit}"
    assert chief.judge.ledger.process_failures == 1


def test_a_program_that_has_reached_its_peers_and_reports_nothing_never_stalls() -> None:
    chief = started(stall_timeout=10.0)
    for second in range(1, 100):
        for name in ("worker-0", "worker-1"):
            chief.heard(name, beat(1, float(second), **({"connecting": True} if second < 9 else {})), float(second))
        chief.tick(float(second))
    assert chief.rounds.running
    assert chief.rounds.trained is not None, "taken to train"


def test_the_start_deadline_names_three_and_counts_the_rest() -> None:
    chief = coordinator(*(f"worker-{index}" for index in range(6)), start_deadline=10.0)
    chief.hello(hello("worker-0"), 0.0)
    for second in range(1, 12):
        chief.heard("worker-0", beat(0, second), second)
        chief.tick(second)
    assert chief.judge.verdict is not None
    assert chief.judge.verdict.reason == "StartDeadlineExceeded"
    assert chief.judge.verdict.message.startswith("worker-1, worker-2, worker-3 and 2 more did not connect within 10 s")


def test_the_start_deadline_does_not_count_while_the_gang_runs() -> None:
    chief = started(start_deadline=10.0)
    for second in range(1, 100):
        for name in chief.roster.gang:
            chief.heard(name, beat(1, second), second)
        chief.tick(second)
    chief.lost("worker-1", 100.0)
    chief.heard("worker-0", beat(1, 105.0), 105.0)
    chief.tick(105.0)
    assert chief.judge.verdict is None


def test_an_evaluator_gates_nothing_and_is_restarted_alone() -> None:
    chief = started()
    chief.hello(hello("evaluator-0", 1.0), 1.0)
    assert sent(chief) == [("evaluator-0", "welcome"), ("evaluator-0", "start")]
    chief.heard("evaluator-0", exited(1, 1), 2.0)
    assert sent(chief) == [("evaluator-0", "stop")]
    chief.heard("evaluator-0", {"type": "ready", "round": 1}, 2.1)
    assert sent(chief) == [("evaluator-0", "start")]
    chief.lost("evaluator-0", 3.0)
    assert (chief.rounds.running, chief.rounds.number, chief.judge.ledger.process_failures) == (True, 1, 0)


def test_ledgers_are_merged_and_travel_with_the_start() -> None:
    chief = coordinator(ledger=Ledger(pod_failures=2))
    chief.hello(hello("worker-0", ledger={"processFailures": 3}), 0.0)
    chief.hello(hello("worker-1", ledger={"inPlace": 4}), 0.0)
    starts = [frame["ledger"] for _, frame in chief.outbox.take() if frame["type"] == "start"]
    assert len(starts) == 2
    for each in starts:
        assert (each["inPlace"], each["processFailures"], each["podFailures"]) == (4, 3, 2)


@pytest.mark.parametrize("frame", [{}, {"type": "beat"}, {"type": "exited", "round": 1}, {**beat(1, 0), "stuck": "x"}])
def test_a_bad_frame_raises_what_ends_its_connection(frame: dict[str, Any]) -> None:
    chief = started()
    with pytest.raises((KeyError, TypeError, ValueError)):
        chief.heard("worker-1", frame, 1.0)


# What people and the operator read.


def test_a_restart_is_told_with_its_cost_once_all_train_again() -> None:
    chief = started()
    for name in chief.roster.gang:
        chief.heard(name, beat(1, 9.0, step=170, epoch=3, first_step_time=5.0, updated=1.0), 9.0)
    chief.heard("worker-1", exited(1, number_of_signal=9, step=171, epoch=3, updated=1.0), 10.0)
    status = of_gang(chief, 10.0)
    assert (status["phase"], status["missing"]) == ("Restarting", ["worker-0", "worker-1"])
    assert status["lastRestart"]["downSeconds"] is None
    assert status["progress"]["step"] == 170
    restart(chief, 10.1)
    assert of_gang(chief, 10.2)["phase"] == "Starting"
    told = {"step": 141, "epoch": 3, "first_epoch": 2, "first_step": 140, "updated": 1.0}
    chief.heard("worker-0", beat(2, 11.2, first_step_time=0.1, **told), 11.2)
    assert of_gang(chief, 11.2)["phase"] == "Starting"
    chief.heard("worker-1", beat(2, 11.3, first_step_time=0.1, **told), 11.3)
    status = of_gang(chief, 11.3)
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
def test_where_nothing_could_be_resumed_the_status_says_so(told: dict[str, int], words: str) -> None:
    chief = started()
    chief.heard("worker-1", exited(1, number_of_signal=9, updated=1.0), 10.0)
    restart(chief, 10.1)
    for name in chief.roster.gang:
        chief.heard(name, beat(2, 11.2, first_step_time=0.0, updated=1.0, **told), 11.2)
    assert of_gang(chief, 11.2)["message"] == f"worker-1 was killed (SIGKILL); {words}"
    assert of_gang(chief, 11.2)["lastRestart"]["lostSteps"] is None, "nobody knows how far it was before"


@pytest.mark.parametrize(("now", "phase"), [(6.9, "Starting"), (7.1, "Training")])
def test_two_seconds_after_the_first_step_of_one_the_others_are_not_waited_for(now: float, phase: str) -> None:
    chief = started("worker-0", "worker-1", "worker-2")
    for name, made in (("worker-0", 5.0), ("worker-1", 6.5)):
        chief.heard(name, beat(1, 6.6, step=1, first_step_time=6.6 - made, updated=1.0), 6.6)
    chief.heard("worker-2", beat(1, 6.6), 6.6)
    chief.tick(now)
    assert of_gang(chief, now)["phase"] == phase


def test_a_program_that_reports_and_has_made_no_step_is_waited_for_beside_one_that_reports_nothing() -> None:
    chief = started()
    chief.heard("worker-0", beat(1, 40.0, updated=1.0), 40.0)
    chief.heard("worker-1", beat(1, 40.0), 40.0)
    chief.tick(40.0)
    assert of_gang(chief, 40.0)["phase"] == "Starting"


def test_the_time_without_training_is_told_in_hundredths_of_a_second() -> None:
    chief = started()
    chief.heard("worker-1", exited(1, number_of_signal=9, updated=1.0), 10.0)
    restart(chief, 10.1)
    for name in chief.roster.gang:
        chief.heard(name, beat(2, 11.2345, first_step_time=0.0, updated=1.0), 11.2345)
    assert of_gang(chief, 11.2345)["lastRestart"]["downSeconds"] == 1.23


def test_a_round_too_short_for_a_beat_is_told_of_all_the_same() -> None:
    chief = started()
    chief.heard("worker-1", exited(1, number_of_signal=9, step=20, epoch=4, updated=1.0), 10.0)
    restart(chief, 10.1)
    told: dict[str, Any] = {
        "first_step": 20,
        "step": 20,
        "first_epoch": 4,
        "epoch": 4,
        "updated": 1.0,
        "first_step_time": 0.1,
    }
    for name in reversed(list(chief.roster.gang)):
        chief.heard(name, exited(2, code=0, **told), 11.2)
    last = of_gang(chief, 11.2)["lastRestart"]
    assert (last["downSeconds"], last["resumedFromEpoch"], last["lostSteps"]) == (1.1, 4, 0)


def test_nothing_changes_while_nothing_happens_but_ages() -> None:
    chief = started()
    told = {"step": 5, "first_step": 0, "updated": 1.0}
    looks = []
    for now in (5.0, 5.5, 6.0):
        for name in chief.roster.gang:
            chief.heard(name, beat(1, now, first_step_time=now - 4.0 + 0.001 * now, **told), now)
        chief.tick(now)
        look = of_gang(chief, now)
        for member in look["members"].values():
            del member["silentSeconds"]
        looks.append(look)
    assert looks[0] == looks[1] == looks[2]
