"""restartPolicy.scope Pod and restartPolicy.rules in the coordinator: frames in, frames out."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.simulated_gang.members import disconnect_cleanly, send_heartbeats, take_sent
from tests.support.simulated_gang.simulation import exited, heartbeat, hello, make_coordinator
from tftraining.launch.config.settings_and_defaults import Gang
from tftraining.launch.failure.exit import Exit
from tftraining.launch.failure.incident import Incident
from tftraining.launch.failure.restart_rules import Rule
from tftraining.launch.gang.aftermath import explains_exit, only_serves
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.http.pages import gang_status
from tftraining.launch.progress import Snapshot

MEMBERS = ("chief-0", "worker-0", "worker-1", "ps-0")
STEPS = {"step": 5, "first_step": 0, "first_step_time": 0.5, "updated": 1.0}


def rules(*raw: dict[str, Any]) -> tuple[Rule, ...]:
    return tuple(Rule.from_json(each) for each in raw)


def training(*members: str, **policy: Any) -> Coordinator:
    """A gang whose chief has made a step, at 10 s."""
    chief = make_coordinator(*(members or MEMBERS), **{"scope": "Pod", **policy})
    for name in chief.membership.gang:
        assert chief.handle_hello(hello(name), 0.0) == ""
    for now in (1.0, 10.0):
        for name in chief.membership.gang:
            chief.handle_frame(name, heartbeat(1, now, **(STEPS if name == chief.membership.chief else {})), now)
        chief.tick(now)
    assert gang_status(chief, 10.0)["phase"] == "Training"
    take_sent(chief)
    return chief


def test_a_failed_worker_restarts_alone() -> None:
    chief = training()
    chief.handle_frame("worker-1", exited(1, number_of_signal=9), 11.0)
    assert take_sent(chief) == [("worker-1", "stop")]
    status = gang_status(chief, 11.0)
    assert (status["phase"], status["reason"], status["missing"]) == ("Training", "Killed", [])
    assert status["message"] == "worker-1 was killed (SIGKILL); restarting it alone; other members keep training"
    chief.handle_frame("worker-1", {"type": "ready", "round": 1}, 11.5)
    assert take_sent(chief) == [("worker-1", "start")]
    assert [chief.membership.gang[name].round for name in MEMBERS] == [1, 1, 2, 1]
    status = gang_status(chief, 12.0)
    assert (
        status["message"] == "worker-1 was killed (SIGKILL); restarted alone after 0.5 s; other members kept training"
    )
    assert (status["ledger"]["processFailures"], status["ledger"]["inPlace"]) == (1, 1)
    last = status["lastRestart"]
    assert (last["member"], last["alone"], last["downSeconds"]) == ("worker-1", True, 0.5)
    assert (last["resumedFromStep"], last["lostSteps"]) == (None, None)


@pytest.mark.parametrize("member", ["chief-0", "ps-0"])
def test_a_failed_chief_or_parameter_server_restarts_the_gang(member: str) -> None:
    chief = training()
    chief.handle_frame(member, exited(1, number_of_signal=9), 11.0)
    assert take_sent(chief) == [(name, "stop") for name in MEMBERS]
    assert not chief.rounds.running


def test_worker_0_as_the_chief_restarts_the_gang() -> None:
    chief = training("worker-0", "worker-1")
    chief.handle_frame("worker-0", exited(1, 1), 11.0)
    assert take_sent(chief) == [("worker-0", "stop"), ("worker-1", "stop")]


def test_scope_job_restarts_the_gang_for_a_failed_worker() -> None:
    chief = training(scope="Job")
    chief.handle_frame("worker-1", exited(1, number_of_signal=9), 11.0)
    assert take_sent(chief) == [(name, "stop") for name in MEMBERS]


def test_restarts_of_a_single_worker_back_off_and_use_the_budget() -> None:
    chief = training(max_restarts=3)
    now, waits = 11.0, []
    for _ in range(3):
        chief.handle_frame("worker-1", exited(chief.membership.gang["worker-1"].round, 1), now)
        chief.handle_frame("worker-1", {"type": "ready", "round": chief.membership.gang["worker-1"].round}, now)
        began = now
        while chief.membership.gang["worker-1"].state != "running":
            for name in MEMBERS:
                chief.handle_frame(name, heartbeat(chief.membership.gang[name].round, now), now)
            now += 0.25
            chief.tick(now)
        waits.append(now - began)
    assert waits == pytest.approx([0.25, 1.0, 2.0], abs=0.3)
    assert chief.membership.gang["chief-0"].round == 1
    chief.handle_frame("worker-1", exited(chief.membership.gang["worker-1"].round, 1), now)
    assert chief.verdict.result is not None
    assert (chief.verdict.result.verdict, chief.verdict.result.reason) == ("Failed", "MaxRestartsExceeded")
    budget = "no restarts left: spec.restartPolicy.maxRestarts is 3"
    assert chief.verdict.result.message == f"worker-1 failed with exit code 1; {budget}"


def test_a_worker_whose_launcher_is_lost_joins_again_while_the_others_train() -> None:
    chief = training()
    disconnect_cleanly(chief, "worker-1", 11.0)
    assert (take_sent(chief), chief.rounds.running) == ([], True)
    assert gang_status(chief, 12.0)["reason"] == "MemberLost"
    chief.handle_hello(hello("worker-1", 13.0, incarnation="new"), 13.0)
    assert take_sent(chief) == [("worker-1", "welcome"), ("worker-1", "start")]
    # A new pod is the operator's to count.
    assert (chief.verdict.ledger.process_failures, chief.verdict.ledger.in_place) == (0, 0)
    assert gang_status(chief, 13.0)["lastRestart"]["downSeconds"] == 2.0


def test_a_disconnected_worker_is_not_started_twice() -> None:
    chief = training()
    chief.handle_frame("worker-1", heartbeat(1, 11.0), 11.0)
    chief.handle_disconnect("worker-1", 11.1)
    chief.handle_hello(hello("worker-1", 11.2, incarnation="new"), 11.2)
    take_sent(chief)
    for now in (12.0, 13.0, 14.0):
        assert take_sent(chief) == [], "the program of the launcher before may still run"
        send_heartbeats(chief, now)
        chief.tick(now)
    chief.tick(14.1)
    assert take_sent(chief) == [("worker-1", "start")]


def test_a_terminated_worker_is_not_started_before_it_has_left() -> None:
    chief = training()
    chief.handle_frame("worker-1", {"type": "leaving"}, 11.0)
    chief.handle_frame("worker-1", exited(1, number_of_signal=15), 11.1)
    chief.handle_frame("worker-1", {"type": "ready", "round": 1}, 11.2)
    assert take_sent(chief) == [("worker-1", "stop")]
    chief.handle_disconnect("worker-1", 11.3)
    chief.handle_hello(hello("worker-1", 12.0, incarnation="new"), 12.0)
    assert take_sent(chief) == [("worker-1", "welcome"), ("worker-1", "start")]
    assert (chief.verdict.ledger.process_failures, chief.verdict.ledger.in_place) == (0, 0)


def test_a_worker_that_has_finished_does_not_run_again() -> None:
    chief = training()
    chief.handle_frame("worker-1", exited(1, 0), 11.0)
    chief.handle_disconnect("worker-1", 12.0)
    chief.handle_hello(hello("worker-1", 13.0, round=1), 13.0)
    assert take_sent(chief) == [("worker-1", "welcome")]


def test_a_worker_in_back_off_joins_the_restart_of_the_gang() -> None:
    chief = training()
    for now in (11.0, 11.1, 11.2):
        chief.handle_frame("worker-1", exited(chief.membership.gang["worker-1"].round, 1), now)
        chief.handle_frame("worker-1", {"type": "ready", "round": chief.membership.gang["worker-1"].round}, now)
    assert chief.membership.gang["worker-1"].state == "ready"
    chief.handle_frame("ps-0", exited(1, number_of_signal=9), 11.3)
    take_sent(chief)
    for name, peer in chief.membership.gang.items():
        chief.handle_frame(name, {"type": "ready", "round": peer.round}, 11.4)
    for tenths in range(114, 160):
        for name, peer in chief.membership.gang.items():
            chief.handle_frame(name, heartbeat(peer.round, tenths / 10), tenths / 10)
        chief.tick(tenths / 10)
    assert [name for name, what in take_sent(chief) if what == "start"] == list(MEMBERS)
    assert {peer.round for peer in chief.membership.gang.values()} == {chief.rounds.number}


def test_a_chief_that_fails_because_of_a_lost_worker_is_not_charged_again() -> None:
    chief = training()
    chief.handle_frame("worker-1", exited(1, number_of_signal=9), 11.0)
    for name in ("worker-0", "ps-0"):
        chief.handle_frame(name, heartbeat(1, 14.0), 14.0)
    chief.handle_frame("chief-0", exited(1, 1, lines=["UnavailableError: failed to connect"]), 14.0)
    assert chief.verdict.ledger.process_failures == 1
    assert chief.last_incident is not None and chief.last_incident.member == "worker-1"
    told = "chief-0: UnavailableError: failed to connect"
    assert chief.last_incident.message == f"worker-1 was killed (SIGKILL); {told}"
    assert not chief.rounds.running


@pytest.mark.parametrize(("at", "ended"), [(40.0, {"code": 1}), (14.0, {"number_of_signal": 11})])
def test_a_chief_that_fails_by_itself_is_charged(at: float, ended: dict[str, int]) -> None:
    chief = training()
    chief.handle_frame("worker-1", exited(1, number_of_signal=9), 11.0)
    chief.handle_frame("worker-1", {"type": "ready", "round": 1}, 11.1)
    for name, peer in chief.membership.gang.items():
        chief.handle_frame(name, heartbeat(peer.round, at), at)
    chief.handle_frame("chief-0", exited(1, **ended), at)
    assert chief.verdict.ledger.process_failures == 2


@pytest.mark.parametrize(("seconds", "same"), [(14.9, True), (15.0, False)])
def test_a_lost_worker_explains_a_failure_of_the_chief_for_15_seconds(seconds: float, same: bool) -> None:
    last = Incident("worker-1", "Killed", "", True, 100.0, 1000.0, alone=True)
    assert explains_exit(Exit(1, None), last, 100.0 + seconds) == same


# Rules.


def test_a_failure_with_action_ignore_is_not_charged_but_backs_off() -> None:
    chief = training(scope="Job", max_restarts=0, rules=rules({"action": "Ignore", "onExitCodes": [3]}))
    chief.handle_frame("worker-1", exited(1, 3), 11.0)
    ledger = chief.verdict.ledger
    assert (chief.verdict.result, ledger.process_failures, ledger.without_progress) == (None, 0, 1)
    status = gang_status(chief, 11.0)
    assert "rules[0]: Ignore" in status["message"]
    assert (status["failure"]["member"], status["failure"]["exitCode"]) == ("worker-1", 3)


def test_a_rule_fails_the_job_in_spite_of_the_budget() -> None:
    chief = training(rules=rules({"action": "FailJob", "onReasons": ["OOMKilled"], "role": "worker"}))
    chief.handle_frame("worker-1", exited(1, number_of_signal=9, kind="OOMKilled"), 11.0)
    assert chief.verdict.result is not None
    assert (chief.verdict.result.reason, chief.verdict.result.member) == ("FailedByRule", "worker-1")
    message = "worker-1 ran out of memory (OOMKilled); matched spec.restartPolicy.rules[0]: FailJob"
    assert chief.verdict.result.message == message


def test_a_restart_rule_overrides_a_fatal_failure() -> None:
    chief = make_coordinator(rules=rules({"action": "Restart", "onReasons": ["ImportError"]}))
    for name in chief.membership.gang:
        chief.handle_hello(hello(name), 0.0)
    chief.handle_frame("worker-1", exited(1, 1, kind="ImportError"), 1.0)
    assert (chief.verdict.result, chief.verdict.ledger.process_failures) == (None, 1)


def test_rules_do_not_apply_to_lost_members() -> None:
    chief = training(rules=rules({"action": "FailJob", "role": "worker"}, {"action": "FailJob", "role": "ps"}))
    chief.handle_disconnect("worker-1", 11.0)
    chief.handle_frame("ps-0", {"type": "leaving"}, 11.0)
    chief.handle_frame("ps-0", exited(1, number_of_signal=15), 11.1)
    assert chief.verdict.result is None


def test_exits_after_the_result_are_ignored() -> None:
    chief = training("worker-0", "worker-1", "worker-2", max_restarts=0)
    chief.handle_frame("worker-1", exited(1, 3), 11.0)
    verdict, ledger = chief.verdict.result, chief.verdict.ledger
    assert verdict is not None and verdict.member == "worker-1"
    chief.handle_frame("worker-2", exited(1, 4), 11.1)
    assert (chief.verdict.result, chief.verdict.ledger) == (verdict, ledger)
    assert chief.verdict.last_failure is not None and chief.verdict.last_failure.member == "worker-1"


# The evaluator.


def test_an_evaluator_fails_the_job_only_by_a_rule() -> None:
    chief = training(max_restarts=0, rules=rules({"action": "FailJob", "onExitCodes": [3], "role": "evaluator"}))
    chief.handle_hello(hello("evaluator-0", 11.0), 11.0)
    chief.handle_frame("evaluator-0", exited(1, 1, kind="ImportError"), 12.0)
    assert (chief.verdict.result, chief.verdict.ledger.failures, chief.verdict.last_failure) == (None, 0, None)
    chief.handle_frame("evaluator-0", {"type": "ready", "round": 1}, 12.0)
    chief.handle_frame("evaluator-0", exited(2, 3), 13.0)
    assert chief.verdict.result is not None
    assert (chief.verdict.result.reason, chief.verdict.result.member) == ("FailedByRule", "evaluator-0")


def test_an_evaluator_that_ran_for_long_restarts_without_back_off() -> None:
    chief = training()
    chief.handle_hello(hello("evaluator-0", 11.0), 11.0)
    now, waits = 12.0, []
    for number, lived in ((1, 1.0), (2, 1.0), (3, 100.0)):
        now += lived
        chief.handle_frame("evaluator-0", exited(number, 1), now)
        waits.append(chief.membership.evaluators["evaluator-0"].not_before - now)
        now = chief.membership.evaluators["evaluator-0"].not_before
        chief.handle_frame("evaluator-0", {"type": "ready", "round": number}, now)
    assert waits == [0.0, 1.0, 0.0]


def test_an_evaluator_that_has_finished_does_not_run_again() -> None:
    chief = training()
    chief.handle_hello(hello("evaluator-0", 11.0), 11.0)
    chief.handle_frame("evaluator-0", exited(1, 0), 12.0)
    take_sent(chief)
    chief.handle_hello(hello("evaluator-0", 13.0, round=1), 13.0)
    assert take_sent(chief) == [("evaluator-0", "welcome")]


def test_an_evaluator_that_has_finished_does_not_run_again_for_a_new_launcher_of_the_chief() -> None:
    chief = training()
    # Its launcher has told the one before, or nobody: it says it again to who is new.
    chief.handle_hello(hello("evaluator-0", 11.0, round=1, running=True), 11.0)
    chief.handle_frame("evaluator-0", exited(1, 0), 11.0)
    assert take_sent(chief) == [("evaluator-0", "welcome")]
    assert chief.membership.evaluators["evaluator-0"].has_succeeded


def test_a_terminated_evaluator_has_not_failed_and_is_not_started_before_it_has_left() -> None:
    chief = training(rules=rules({"action": "FailJob", "role": "evaluator", "onReasons": ["Error"]}))
    chief.handle_hello(hello("evaluator-0", 11.0), 11.0)
    take_sent(chief)
    chief.handle_frame("evaluator-0", {"type": "leaving"}, 12.0)
    chief.handle_frame("evaluator-0", exited(1, number_of_signal=15), 12.1)
    assert (chief.verdict.result, chief.membership.evaluators["evaluator-0"].consecutive_failures) == (None, 0)
    chief.handle_disconnect("evaluator-0", 12.2)
    chief.handle_hello(hello("evaluator-0", 12.3, leaving=True), 12.3)
    chief.tick(12.4)
    assert take_sent(chief) == [("evaluator-0", "welcome")]
    chief.handle_disconnect("evaluator-0", 12.5)
    chief.handle_hello(hello("evaluator-0", 13.0, incarnation="new"), 13.0)
    assert take_sent(chief) == [("evaluator-0", "welcome"), ("evaluator-0", "start")]


# Who only serves.


@pytest.mark.parametrize(
    ("name", "members", "told", "serving"),
    [
        ("ps-0", MEMBERS, Snapshot(), True),
        ("worker-1", MEMBERS, Snapshot(), True),
        ("worker-1", MEMBERS, Snapshot(step=1, updated=1.0), False),
        ("chief-0", MEMBERS, Snapshot(), False),
        ("worker-0", ("worker-0", "ps-0"), Snapshot(), False),  # it is the chief
        ("worker-1", ("worker-0", "worker-1"), Snapshot(), False),
        ("evaluator-0", MEMBERS, Snapshot(), False),
    ],
)
def test_parameter_servers_and_their_workers_only_serve_the_chief(
    name: str, members: tuple[str, ...], told: Snapshot, serving: bool
) -> None:
    assert only_serves(name, Gang(members, name), told) is serving
