"""restartPolicy.scope Pod and the rules, as the rendezvous carries them out: frames in, frames out."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.simulated_gang.members import alive, leave, sent
from tests.support.simulated_gang.simulation import beat, coordinator, exited, hello
from tftraining.launch.config.settings import Gang
from tftraining.launch.failure.exit import Exit
from tftraining.launch.failure.incident import Incident
from tftraining.launch.failure.restart_rules import Rule
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.gang.restart_scope import follows, serves
from tftraining.launch.http.pages import of_gang
from tftraining.launch.progress import Snapshot

MEMBERS = ("chief-0", "worker-0", "worker-1", "ps-0")
STEPS = {"step": 5, "first_step": 0, "first_step_time": 0.5, "updated": 1.0}


def rules(*raw: dict[str, Any]) -> tuple[Rule, ...]:
    return tuple(Rule.from_json(each) for each in raw)


def training(*members: str, **policy: Any) -> Coordinator:
    """A gang whose chief has made a step, at 10 s."""
    chief = coordinator(*(members or MEMBERS), **{"scope": "Pod", **policy})
    for name in chief.roster.gang:
        assert chief.hello(hello(name), 0.0) == ""
    for now in (1.0, 10.0):
        for name in chief.roster.gang:
            chief.heard(name, beat(1, now, **(STEPS if name == chief.roster.chief else {})), now)
        chief.tick(now)
    assert of_gang(chief, 10.0)["phase"] == "Training"
    sent(chief)
    return chief


def test_a_worker_that_fails_is_restarted_alone() -> None:
    chief = training()
    chief.heard("worker-1", exited(1, number_of_signal=9), 11.0)
    assert sent(chief) == [("worker-1", "stop")]
    status = of_gang(chief, 11.0)
    assert (status["phase"], status["reason"], status["missing"]) == ("Training", "Killed", [])
    assert status["message"] == "worker-1 was killed (SIGKILL); restarting it alone; other members keep training"
    chief.heard("worker-1", {"type": "ready", "round": 1}, 11.5)
    assert sent(chief) == [("worker-1", "start")]
    assert [chief.roster.gang[name].round for name in MEMBERS] == [1, 1, 2, 1]
    status = of_gang(chief, 12.0)
    assert (
        status["message"] == "worker-1 was killed (SIGKILL); restarted alone after 0.5 s; other members kept training"
    )
    assert (status["ledger"]["processFailures"], status["ledger"]["inPlace"]) == (1, 1)
    last = status["lastRestart"]
    assert (last["member"], last["alone"], last["downSeconds"]) == ("worker-1", True, 0.5)
    assert (last["resumedFromStep"], last["lostSteps"]) == (None, None)


@pytest.mark.parametrize("member", ["chief-0", "ps-0"])
def test_a_chief_and_a_parameter_server_take_the_gang_along(member: str) -> None:
    chief = training()
    chief.heard(member, exited(1, number_of_signal=9), 11.0)
    assert sent(chief) == [(name, "stop") for name in MEMBERS]
    assert not chief.rounds.running


def test_without_a_chief_role_worker_0_takes_the_gang_along() -> None:
    chief = training("worker-0", "worker-1")
    chief.heard("worker-0", exited(1, 1), 11.0)
    assert sent(chief) == [("worker-0", "stop"), ("worker-1", "stop")]


def test_under_scope_job_a_worker_takes_the_gang_along() -> None:
    chief = training(scope="Job")
    chief.heard("worker-1", exited(1, number_of_signal=9), 11.0)
    assert sent(chief) == [(name, "stop") for name in MEMBERS]


def test_lone_restarts_wait_longer_and_longer_and_use_up_the_budget() -> None:
    chief = training(max_restarts=3)
    now, waits = 11.0, []
    for _ in range(3):
        chief.heard("worker-1", exited(chief.roster.gang["worker-1"].round, 1), now)
        chief.heard("worker-1", {"type": "ready", "round": chief.roster.gang["worker-1"].round}, now)
        began = now
        while chief.roster.gang["worker-1"].state != "running":
            for name in MEMBERS:
                chief.heard(name, beat(chief.roster.gang[name].round, now), now)
            now += 0.25
            chief.tick(now)
        waits.append(now - began)
    assert waits == pytest.approx([0.25, 1.0, 2.0], abs=0.3)
    assert chief.roster.gang["chief-0"].round == 1
    chief.heard("worker-1", exited(chief.roster.gang["worker-1"].round, 1), now)
    assert chief.judge.verdict is not None
    assert (chief.judge.verdict.verdict, chief.judge.verdict.reason) == ("Failed", "MaxRestartsExceeded")
    budget = "no restarts left: spec.restartPolicy.maxRestarts is 3"
    assert chief.judge.verdict.message == f"worker-1 failed with exit code 1; {budget}"


def test_a_worker_whose_launcher_is_lost_joins_again_while_the_others_train() -> None:
    chief = training()
    leave(chief, "worker-1", 11.0)
    assert (sent(chief), chief.rounds.running) == ([], True)
    assert of_gang(chief, 12.0)["reason"] == "MemberLost"
    chief.hello(hello("worker-1", 13.0, incarnation="new"), 13.0)
    assert sent(chief) == [("worker-1", "welcome"), ("worker-1", "start")]
    # A new pod is the operator's to count.
    assert (chief.judge.ledger.process_failures, chief.judge.ledger.in_place) == (0, 0)
    assert of_gang(chief, 13.0)["lastRestart"]["downSeconds"] == 2.0


def test_a_worker_whose_launcher_is_only_cut_off_is_not_started_twice() -> None:
    chief = training()
    chief.heard("worker-1", beat(1, 11.0), 11.0)
    chief.lost("worker-1", 11.1)
    chief.hello(hello("worker-1", 11.2, incarnation="new"), 11.2)
    sent(chief)
    for now in (12.0, 13.0, 14.0):
        assert sent(chief) == [], "the program of the launcher before may still run"
        alive(chief, now)
        chief.tick(now)
    chief.tick(14.1)
    assert sent(chief) == [("worker-1", "start")]


def test_a_worker_that_is_told_to_go_is_not_started_before_it_has_gone() -> None:
    chief = training()
    chief.heard("worker-1", {"type": "leaving"}, 11.0)
    chief.heard("worker-1", exited(1, number_of_signal=15), 11.1)
    chief.heard("worker-1", {"type": "ready", "round": 1}, 11.2)
    assert sent(chief) == [("worker-1", "stop")]
    chief.lost("worker-1", 11.3)
    chief.hello(hello("worker-1", 12.0, incarnation="new"), 12.0)
    assert sent(chief) == [("worker-1", "welcome"), ("worker-1", "start")]
    assert (chief.judge.ledger.process_failures, chief.judge.ledger.in_place) == (0, 0)


def test_a_worker_that_has_finished_does_not_run_again() -> None:
    chief = training()
    chief.heard("worker-1", exited(1, 0), 11.0)
    chief.lost("worker-1", 12.0)
    chief.hello(hello("worker-1", 13.0, round=1), 13.0)
    assert sent(chief) == [("worker-1", "welcome")]


def test_a_worker_that_waits_is_taken_along_by_the_gang() -> None:
    chief = training()
    for now in (11.0, 11.1, 11.2):
        chief.heard("worker-1", exited(chief.roster.gang["worker-1"].round, 1), now)
        chief.heard("worker-1", {"type": "ready", "round": chief.roster.gang["worker-1"].round}, now)
    assert chief.roster.gang["worker-1"].state == "ready"
    chief.heard("ps-0", exited(1, number_of_signal=9), 11.3)
    sent(chief)
    for name, peer in chief.roster.gang.items():
        chief.heard(name, {"type": "ready", "round": peer.round}, 11.4)
    for tenths in range(114, 160):
        for name, peer in chief.roster.gang.items():
            chief.heard(name, beat(peer.round, tenths / 10), tenths / 10)
        chief.tick(tenths / 10)
    assert [name for name, what in sent(chief) if what == "start"] == list(MEMBERS)
    assert {peer.round for peer in chief.roster.gang.values()} == {chief.rounds.number}


def test_a_chief_that_does_not_survive_the_loss_of_a_worker_is_not_charged_again() -> None:
    chief = training()
    chief.heard("worker-1", exited(1, number_of_signal=9), 11.0)
    for name in ("worker-0", "ps-0"):
        chief.heard(name, beat(1, 14.0), 14.0)
    chief.heard("chief-0", exited(1, 1, lines=["UnavailableError: failed to connect"]), 14.0)
    assert chief.judge.ledger.process_failures == 1
    assert chief.incident is not None and chief.incident.member == "worker-1"
    told = "chief-0: UnavailableError: failed to connect"
    assert chief.incident.message == f"worker-1 was killed (SIGKILL); {told}"
    assert not chief.rounds.running


@pytest.mark.parametrize(("at", "ended"), [(40.0, {"code": 1}), (14.0, {"number_of_signal": 11})])
def test_a_chief_that_fails_by_itself_is(at: float, ended: dict[str, int]) -> None:
    chief = training()
    chief.heard("worker-1", exited(1, number_of_signal=9), 11.0)
    chief.heard("worker-1", {"type": "ready", "round": 1}, 11.1)
    for name, peer in chief.roster.gang.items():
        chief.heard(name, beat(peer.round, at), at)
    chief.heard("chief-0", exited(1, **ended), at)
    assert chief.judge.ledger.process_failures == 2


@pytest.mark.parametrize(("seconds", "same"), [(14.9, True), (15.0, False)])
def test_for_how_long_a_failure_of_the_chief_is_taken_to_follow_from_the_loss_of_a_worker(
    seconds: float, same: bool
) -> None:
    last = Incident("worker-1", "Killed", "", True, 100.0, 1000.0, alone=True)
    assert follows(Exit(1, None), last, 100.0 + seconds) == same


# Rules.


def test_a_failure_that_is_ignored_costs_nothing_but_time() -> None:
    chief = training(scope="Job", max_restarts=0, rules=rules({"action": "Ignore", "onExitCodes": [3]}))
    chief.heard("worker-1", exited(1, 3), 11.0)
    ledger = chief.judge.ledger
    assert (chief.judge.verdict, ledger.process_failures, ledger.without_progress) == (None, 0, 1)
    status = of_gang(chief, 11.0)
    assert "rules[0]: Ignore" in status["message"]
    assert (status["failure"]["member"], status["failure"]["exitCode"]) == ("worker-1", 3)


def test_a_rule_fails_the_job_in_spite_of_the_budget() -> None:
    chief = training(rules=rules({"action": "FailJob", "onReasons": ["OOMKilled"], "role": "worker"}))
    chief.heard("worker-1", exited(1, number_of_signal=9, kind="OOMKilled"), 11.0)
    assert chief.judge.verdict is not None
    assert (chief.judge.verdict.reason, chief.judge.verdict.member) == ("FailedByRule", "worker-1")
    message = "worker-1 ran out of memory (OOMKilled); matched spec.restartPolicy.rules[0]: FailJob"
    assert chief.judge.verdict.message == message


def test_a_rule_restarts_what_would_fail_at_once() -> None:
    chief = coordinator(rules=rules({"action": "Restart", "onReasons": ["ImportError"]}))
    for name in chief.roster.gang:
        chief.hello(hello(name), 0.0)
    chief.heard("worker-1", exited(1, 1, kind="ImportError"), 1.0)
    assert (chief.judge.verdict, chief.judge.ledger.process_failures) == (None, 1)


def test_a_loss_is_no_failure_for_any_rule() -> None:
    chief = training(rules=rules({"action": "FailJob", "role": "worker"}, {"action": "FailJob", "role": "ps"}))
    chief.lost("worker-1", 11.0)
    chief.heard("ps-0", {"type": "leaving"}, 11.0)
    chief.heard("ps-0", exited(1, number_of_signal=15), 11.1)
    assert chief.judge.verdict is None


def test_after_the_verdict_no_end_of_a_program_means_anything() -> None:
    chief = training("worker-0", "worker-1", "worker-2", max_restarts=0)
    chief.heard("worker-1", exited(1, 3), 11.0)
    verdict, ledger = chief.judge.verdict, chief.judge.ledger
    assert verdict is not None and verdict.member == "worker-1"
    chief.heard("worker-2", exited(1, 4), 11.1)
    assert (chief.judge.verdict, chief.judge.ledger) == (verdict, ledger)
    assert chief.judge.failure is not None and chief.judge.failure.member == "worker-1"


# The evaluator.


def test_an_evaluator_fails_the_job_only_by_a_rule() -> None:
    chief = training(max_restarts=0, rules=rules({"action": "FailJob", "onExitCodes": [3], "role": "evaluator"}))
    chief.hello(hello("evaluator-0", 11.0), 11.0)
    chief.heard("evaluator-0", exited(1, 1, kind="ImportError"), 12.0)
    assert (chief.judge.verdict, chief.judge.ledger.failures, chief.judge.failure) == (None, 0, None)
    chief.heard("evaluator-0", {"type": "ready", "round": 1}, 12.0)
    chief.heard("evaluator-0", exited(2, 3), 13.0)
    assert chief.judge.verdict is not None
    assert (chief.judge.verdict.reason, chief.judge.verdict.member) == ("FailedByRule", "evaluator-0")


def test_an_evaluator_that_ran_for_long_is_restarted_at_once_again() -> None:
    chief = training()
    chief.hello(hello("evaluator-0", 11.0), 11.0)
    now, waits = 12.0, []
    for number, lived in ((1, 1.0), (2, 1.0), (3, 100.0)):
        now += lived
        chief.heard("evaluator-0", exited(number, 1), now)
        waits.append(chief.roster.evaluators["evaluator-0"].not_before - now)
        now = chief.roster.evaluators["evaluator-0"].not_before
        chief.heard("evaluator-0", {"type": "ready", "round": number}, now)
    assert waits == [0.0, 1.0, 0.0]


def test_an_evaluator_that_has_finished_does_not_run_again() -> None:
    chief = training()
    chief.hello(hello("evaluator-0", 11.0), 11.0)
    chief.heard("evaluator-0", exited(1, 0), 12.0)
    sent(chief)
    chief.hello(hello("evaluator-0", 13.0, round=1), 13.0)
    assert sent(chief) == [("evaluator-0", "welcome")]


def test_an_evaluator_that_has_finished_does_not_run_again_for_a_new_launcher_of_the_chief() -> None:
    chief = training()
    # Its launcher has told the one before, or nobody: it says it again to who is new.
    chief.hello(hello("evaluator-0", 11.0, round=1, running=True), 11.0)
    chief.heard("evaluator-0", exited(1, 0), 11.0)
    assert sent(chief) == [("evaluator-0", "welcome")]
    assert chief.roster.evaluators["evaluator-0"].finished


def test_an_evaluator_that_is_told_to_go_has_not_failed_and_is_not_started_before_it_has_gone() -> None:
    chief = training(rules=rules({"action": "FailJob", "role": "evaluator", "onReasons": ["Error"]}))
    chief.hello(hello("evaluator-0", 11.0), 11.0)
    sent(chief)
    chief.heard("evaluator-0", {"type": "leaving"}, 12.0)
    chief.heard("evaluator-0", exited(1, number_of_signal=15), 12.1)
    assert (chief.judge.verdict, chief.roster.evaluators["evaluator-0"].failures) == (None, 0)
    chief.lost("evaluator-0", 12.2)
    chief.hello(hello("evaluator-0", 12.3, leaving=True), 12.3)
    chief.tick(12.4)
    assert sent(chief) == [("evaluator-0", "welcome")]
    chief.lost("evaluator-0", 12.5)
    chief.hello(hello("evaluator-0", 13.0, incarnation="new"), 13.0)
    assert sent(chief) == [("evaluator-0", "welcome"), ("evaluator-0", "start")]


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
def test_who_only_does_what_the_chief_asks_for(
    name: str, members: tuple[str, ...], told: Snapshot, serving: bool
) -> None:
    assert serves(name, Gang(members, name), told) is serving
