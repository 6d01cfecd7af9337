"""successPolicy AllWorkers at the rendezvous: the job has succeeded when every chief and worker of a round has."""

from __future__ import annotations

import pytest

from tests.support.simulated_gang.members import alive, leave, restart, sent, started
from tests.support.simulated_gang.simulation import World, beat, exited, hello
from tftraining.launch.config.settings import Policy
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.http.pages import of_gang


def finish(chief: Coordinator, *names: str, now: float = 5.0) -> None:
    """Their programs end with 0."""
    for name in names:
        chief.heard(name, exited(chief.roster.gang[name].round, 0), now)


def succeeded(chief: Coordinator) -> bool:
    return chief.judge.verdict is not None and chief.judge.verdict.verdict == "Succeeded"


def test_the_last_to_finish_decides() -> None:
    chief = started("chief-0", "worker-0", "worker-1", all_workers=True)
    finish(chief, "chief-0", "worker-1")
    assert (chief.judge.verdict, chief.rounds.running, sent(chief)) == (None, True, [])
    assert of_gang(chief, 5.0)["message"].endswith("; chief-0, worker-1 have finished")
    finish(chief, "worker-0", now=9.0)
    assert succeeded(chief)
    assert chief.judge.verdict is not None and chief.judge.verdict.message == "every chief and worker has succeeded"


def test_the_progress_is_that_of_those_who_work_on() -> None:
    chief = started("chief-0", "worker-0", all_workers=True)
    for name, epoch in (("chief-0", 10), ("worker-0", 4)):
        chief.heard(name, beat(1, 5.0, epoch=epoch, updated=0.0), 5.0)
    assert of_gang(chief, 5.0)["progress"]["epoch"] == 10
    chief.heard("chief-0", exited(1, 0, epoch=10, updated=0.0), 5.5)
    assert (of_gang(chief, 6.0)["progress"]["epoch"], of_gang(chief, 6.0)["finished"]) == (4, ["chief-0"])
    chief.heard("worker-0", exited(1, 0, epoch=10, updated=0.0), 7.0)
    assert of_gang(chief, 7.0)["progress"]["epoch"] == 10


def test_parameter_servers_and_the_evaluator_are_not_waited_for() -> None:
    chief = started("chief-0", "worker-0", "ps-0", all_workers=True)
    chief.hello(hello("evaluator-0"), 1.0)
    finish(chief, "chief-0", "worker-0")
    assert succeeded(chief)


@pytest.mark.parametrize("victim", ["worker-0", "worker-1"])
def test_a_failure_after_a_success_restarts_them_all(victim: str) -> None:
    chief = started(all_workers=True)
    other = next(name for name in chief.roster.gang if name != victim)
    finish(chief, other)
    chief.heard(victim, exited(1, 3), 6.0)
    assert sent(chief) == [("worker-0", "stop"), ("worker-1", "stop")]
    restart(chief, 6.1)
    assert (chief.rounds.number, chief.judge.ledger.process_failures, chief.judge.ledger.in_place) == (2, 1, 1)
    finish(chief, victim, now=8.0)
    assert not succeeded(chief), "what was done in another round is done again"
    finish(chief, other, now=9.0)
    assert succeeded(chief)


def test_under_another_policy_what_is_done_may_be_enough() -> None:
    chief = started(all_workers=True)
    finish(chief, "worker-1")
    chief.change(chief.roster.job.gang, Policy(), 5.0)
    assert not succeeded(chief), "the chief has not finished"
    chief.change(chief.roster.job.gang, Policy(all_workers=True), 5.5)
    finish(chief, "worker-0", now=6.0)
    assert succeeded(chief)
    chief = started(all_workers=True)
    finish(chief, "worker-0")
    chief.change(chief.roster.job.gang, Policy(), 6.0)
    assert succeeded(chief) and not chief.rounds.running


def test_a_success_that_comes_after_another_ones_failure_does_not_decide() -> None:
    chief = started("worker-0", "worker-1", "worker-2", all_workers=True)
    finish(chief, "worker-0")
    chief.heard("worker-2", exited(1, 1), 5.0)
    finish(chief, "worker-1", now=5.01)
    assert chief.judge.verdict is None
    restart(chief, 5.1)
    assert (chief.rounds.number, chief.judge.verdict) == (2, None)


def test_the_launcher_of_one_that_has_finished_may_be_lost() -> None:
    chief = started(all_workers=True)
    finish(chief, "worker-1")
    chief.lost("worker-1", 6.0)
    assert (chief.rounds.running, chief.incident) == (True, None)
    chief.hello(hello("worker-1", 7.0, incarnation="new"), 7.0)
    assert chief.outbox.take()[-1][1]["done"] is True
    assert chief.roster.gang["worker-1"].state == "done"
    finish(chief, "worker-0", now=8.0)
    assert succeeded(chief)


def test_who_comes_between_two_rounds_runs_in_the_next() -> None:
    chief = started(all_workers=True)
    finish(chief, "worker-1")
    leave(chief, "worker-1", 5.5)
    chief.heard("worker-0", exited(1, 1), 6.0)
    chief.hello(hello("worker-1", 7.0, incarnation="new"), 7.0)
    assert chief.outbox.take()[-1][1]["done"] is False
    chief.heard("worker-0", {"type": "ready", "round": 1}, 7.1)
    assert (chief.rounds.number, chief.roster.gang["worker-1"].state) == (2, "running")


def test_who_is_told_to_go_and_leaves_with_a_polite_zero_has_not_finished() -> None:
    chief = started(all_workers=True)
    finish(chief, "worker-0")
    chief.heard("worker-1", {"type": "leaving"}, 5.0)
    finish(chief, "worker-1", now=5.1)
    assert chief.judge.verdict is None
    assert chief.incident is not None and chief.incident.reason == "Terminated"


def test_a_gang_of_fewer_succeeds_when_its_members_have_and_grows_no_more() -> None:
    members = ("worker-0", "worker-1", "worker-2")
    chief = started(*members, all_workers=True, min_workers=1)
    for peer in chief.roster.gang.values():
        peer.elastic = True
    leave(chief, "worker-2", 2.0)
    for name in ("worker-0", "worker-1"):
        chief.heard(name, {"type": "ready", "round": 1}, 2.1)
    assert (chief.rounds.number, chief.rounds.missing) == (2, ["worker-2"])
    finish(chief, "worker-0")
    chief.hello(hello("worker-2", 6.0, incarnation="new", elastic=True), 6.0)
    alive(chief, 6.1)
    chief.tick(6.2)
    assert chief.rounds.running, "there is no training left to share"
    finish(chief, "worker-1", now=7.0)
    assert succeeded(chief)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_dies_the_job_succeeds_when_all_of_one_round_have(seed: int) -> None:
    world = World(4, seed, all_workers=True)
    for _ in range(30):
        world.until(world.settled)
        for name in world.random.sample(world.names, world.random.randrange(len(world.names))):
            world.finish_program(name)
        world.random.choice([world.kill_program, world.kill_launcher])(world.random.choice(world.names))
        for _ in range(world.random.randrange(6)):
            world.step(0.1)
            world.hold_invariants()
        assert world.coordinator.judge.verdict is None, "one at least has not finished"
        for name in [each for each in world.names if world.launchers[each].program is not None][:1]:
            world.kill_program(name)
    world.until(world.settled)
    for name in world.names:
        world.finish_program(name)
    world.until(lambda: world.coordinator.judge.verdict is not None)
    assert succeeded(world.coordinator)
