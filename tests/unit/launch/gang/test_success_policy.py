"""successPolicy AllWorkers: the job succeeds when every chief and worker of a round has finished."""

from __future__ import annotations

import pytest

from tests.support.random_seeds import seeds
from tests.support.simulated_gang.members import disconnect_cleanly, send_heartbeats, send_ready, start_gang, take_sent
from tests.support.simulated_gang.simulation import SimulatedGang, exited, heartbeat, hello
from tftraining.launch.config.settings_and_defaults import Policy
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.http.pages import gang_status


def finish(chief: Coordinator, *names: str, now: float = 5.0) -> None:
    """Their programs end with 0."""
    for name in names:
        chief.handle_frame(name, exited(chief.membership.gang[name].round, 0), now)


def succeeded(chief: Coordinator) -> bool:
    return chief.verdict.result is not None and chief.verdict.result.verdict == "Succeeded"


def test_the_job_succeeds_when_the_last_chief_or_worker_finishes() -> None:
    chief = start_gang("chief-0", "worker-0", "worker-1", success_policy="AllWorkers")
    finish(chief, "chief-0", "worker-1")
    assert (chief.verdict.result, chief.rounds.running, take_sent(chief)) == (None, True, [])
    assert gang_status(chief, 5.0)["message"].endswith(
        "; chief-0, worker-1 exited with code 0 before the others had started"
    )
    finish(chief, "worker-0", now=9.0)
    assert succeeded(chief)
    assert chief.verdict.result is not None and chief.verdict.result.message == "every chief and worker has succeeded"


def test_progress_comes_from_members_that_still_train() -> None:
    chief = start_gang("chief-0", "worker-0", success_policy="AllWorkers")
    for name, epoch in (("chief-0", 10), ("worker-0", 4)):
        chief.handle_frame(name, heartbeat(1, 5.0, epoch=epoch, updated=0.0), 5.0)
    assert gang_status(chief, 5.0)["progress"]["epoch"] == 10
    chief.handle_frame("chief-0", exited(1, 0, epoch=10, updated=0.0), 5.5)
    assert (gang_status(chief, 6.0)["progress"]["epoch"], gang_status(chief, 6.0)["finished"]) == (4, ["chief-0"])
    chief.handle_frame("worker-0", exited(1, 0, epoch=10, updated=0.0), 7.0)
    assert gang_status(chief, 7.0)["progress"]["epoch"] == 10


def test_success_does_not_wait_for_parameter_servers_or_the_evaluator() -> None:
    chief = start_gang("chief-0", "worker-0", "ps-0", success_policy="AllWorkers")
    chief.handle_hello(hello("evaluator-0"), 1.0)
    finish(chief, "chief-0", "worker-0")
    assert succeeded(chief)


@pytest.mark.parametrize("victim", ["worker-0", "worker-1"])
def test_a_failure_after_another_members_success_restarts_the_gang(victim: str) -> None:
    chief = start_gang(success_policy="AllWorkers")
    other = next(name for name in chief.membership.gang if name != victim)
    finish(chief, other)
    chief.handle_frame(victim, exited(1, 3), 6.0)
    assert take_sent(chief) == [("worker-0", "stop"), ("worker-1", "stop")]
    send_ready(chief, 6.1)
    assert (chief.rounds.number, chief.verdict.ledger.process_failures, chief.verdict.ledger.in_place) == (2, 1, 1)
    finish(chief, victim, now=8.0)
    assert not succeeded(chief), "what was done in another round is done again"
    finish(chief, other, now=9.0)
    assert succeeded(chief)


def test_changing_the_success_policy_can_complete_the_job() -> None:
    chief = start_gang(success_policy="AllWorkers")
    finish(chief, "worker-1")
    chief.apply_spec_update(chief.membership.job.gang, Policy(), 5.0)
    assert not succeeded(chief), "the chief has not finished"
    chief.apply_spec_update(chief.membership.job.gang, Policy(success_policy="AllWorkers"), 5.5)
    finish(chief, "worker-0", now=6.0)
    assert succeeded(chief)
    chief = start_gang(success_policy="AllWorkers")
    finish(chief, "worker-0")
    chief.apply_spec_update(chief.membership.job.gang, Policy(), 6.0)
    assert succeeded(chief) and not chief.rounds.running


def test_a_success_after_another_members_failure_is_ignored() -> None:
    chief = start_gang("worker-0", "worker-1", "worker-2", success_policy="AllWorkers")
    finish(chief, "worker-0")
    chief.handle_frame("worker-2", exited(1, 1), 5.0)
    finish(chief, "worker-1", now=5.01)
    assert chief.verdict.result is None
    send_ready(chief, 5.1)
    assert (chief.rounds.number, chief.verdict.result) == (2, None)


def test_losing_the_launcher_of_a_finished_member_stops_no_round() -> None:
    chief = start_gang(success_policy="AllWorkers")
    finish(chief, "worker-1")
    chief.handle_disconnect("worker-1", 6.0)
    assert (chief.rounds.running, chief.last_incident) == (True, None)
    chief.handle_hello(hello("worker-1", 7.0, incarnation="new"), 7.0)
    assert chief.outbox.take_all()[-1][1]["done"] is True
    assert chief.membership.gang["worker-1"].state == "done"
    finish(chief, "worker-0", now=8.0)
    assert succeeded(chief)


def test_a_member_that_joins_between_rounds_runs_in_the_next_round() -> None:
    chief = start_gang(success_policy="AllWorkers")
    finish(chief, "worker-1")
    disconnect_cleanly(chief, "worker-1", 5.5)
    chief.handle_frame("worker-0", exited(1, 1), 6.0)
    chief.handle_hello(hello("worker-1", 7.0, incarnation="new"), 7.0)
    assert chief.outbox.take_all()[-1][1]["done"] is False
    chief.handle_frame("worker-0", {"type": "ready", "round": 1}, 7.1)
    assert (chief.rounds.number, chief.membership.gang["worker-1"].state) == (2, "running")


def test_exit_0_of_a_terminated_member_is_no_success() -> None:
    chief = start_gang(success_policy="AllWorkers")
    finish(chief, "worker-0")
    chief.handle_frame("worker-1", {"type": "leaving"}, 5.0)
    finish(chief, "worker-1", now=5.1)
    assert chief.verdict.result is None
    assert chief.last_incident is not None and chief.last_incident.reason == "Terminated"


def test_a_partial_gang_succeeds_with_its_own_members_and_grows_no_more() -> None:
    members = ("worker-0", "worker-1", "worker-2")
    chief = start_gang(*members, success_policy="AllWorkers", min_replicas=1)
    disconnect_cleanly(chief, "worker-2", 2.0)
    for name in ("worker-0", "worker-1"):
        chief.handle_frame(name, {"type": "ready", "round": 1}, 2.1)
    assert (chief.rounds.number, chief.rounds.missing) == (2, ["worker-2"])
    finish(chief, "worker-0")
    chief.handle_hello(hello("worker-2", 6.0, incarnation="new"), 6.0)
    send_heartbeats(chief, 6.1)
    chief.tick(6.2)
    assert chief.rounds.running, "there is no training left to share"
    finish(chief, "worker-1", now=7.0)
    assert succeeded(chief)


@pytest.mark.parametrize("seed", seeds(6, 20))
def test_random_faults_end_in_success_once_all_members_of_one_round_finish(seed: int) -> None:
    world = SimulatedGang(4, seed, success_policy="AllWorkers")
    for _ in range(30):
        world.run_until(world.is_settled)
        for name in world.random.sample(world.names, world.random.randrange(len(world.names))):
            world.finish_program(name)
        world.random.choice([world.kill_program, world.kill_launcher])(world.random.choice(world.names))
        for _ in range(world.random.randrange(6)):
            world.advance(0.1)
            world.check_invariants()
        assert world.coordinator.verdict.result is None, "one at least has not finished"
        for name in [each for each in world.names if world.launchers[each].program is not None][:1]:
            world.kill_program(name)
    world.run_until(world.is_settled)
    for name in world.names:
        world.finish_program(name)
    world.run_until(lambda: world.coordinator.verdict.result is not None)
    assert succeeded(world.coordinator)
