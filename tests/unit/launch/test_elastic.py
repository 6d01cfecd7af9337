"""Gangs that train on with fewer workers, grow back, and change their size: single decisions, then a simulation."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.simulated_gang.members import leave
from tests.support.simulated_gang.simulation import World, beat, coordinator, exited, hello
from tests.unit.launch.test_simulated_rounds import FAULTS
from tftraining.launch.config import round_environment
from tftraining.launch.config.settings import Gang, read
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.http.pages import of_gang
from tftraining.launch.progress import to_frame

THREE = ("worker-0", "worker-1", "worker-2")


def starts(chief: Coordinator) -> dict[str, Any]:
    """The `start` frames under way, by member; the outbox is empty then."""
    frames = chief.outbox.take()
    return {name: frame for name, frame in frames if frame["type"] == "start"}


def elastic(*members: str, least: int | None = 1, **policy: Any) -> Coordinator:
    """A gang in its first round that may go on with fewer."""
    chief = coordinator(*(members or THREE), min_workers=least, **policy)
    for name in chief.roster.gang:
        assert chief.hello(hello(name, elastic=True), 0.0) == ""
    assert chief.rounds.running
    starts(chief)
    return chief


def ready(chief: Coordinator, now: float, *names: str) -> None:
    """These have ended their programs."""
    for name in names:
        chief.heard(name, {"type": "ready", "round": chief.roster.peers[name].round}, now)


def listen(chief: Coordinator, now: float, *names: str) -> None:
    """These beat, with no news of their progress, and time passes."""
    for name in names:
        peer = chief.roster.peers[name]
        chief.heard(name, {**beat(peer.round, now), "progress": to_frame(peer.progress, now)}, now)
    chief.tick(now)


def come_back(chief: Coordinator, name: str, now: float, prepared: bool = True) -> None:
    """A new launcher of the member joins."""
    assert chief.hello(hello(name, now, incarnation=f"new {now}", elastic=True), now) == ""
    chief.heard(name, {**beat(0, now), "prepared": prepared}, now)
    listen(chief, now, *(peer.name for peer in chief.roster.gang.values() if peer.connected and peer.name != name))


def shrunk() -> Coordinator:
    """A gang of three that trains on without worker-1."""
    chief = elastic()
    leave(chief, "worker-1", 5.0)
    ready(chief, 5.1, "worker-0", "worker-2")
    assert chief.rounds.running
    return chief


def test_the_survivors_of_a_lost_worker_go_on_at_once_and_free_of_charge() -> None:
    chief = shrunk()
    frames = starts(chief)
    assert {name: frame["workers"] for name, frame in frames.items()} == {
        "worker-0": [[0, 0], [2, 2]],
        "worker-2": [[0, 0], [2, 2]],
    }
    assert {frame["size"] for frame in frames.values()} == {3}
    assert (chief.rounds.number, chief.judge.ledger.process_failures, chief.judge.ledger.in_place) == (2, 0, 1)
    status = of_gang(chief, 6.0)
    assert (status["missing"], status["gang"]) == (["worker-1"], {"size": 2, "full": 3})
    assert status["lastRestart"]["reason"] == "MemberLost"


def test_people_are_told_how_many_go_on() -> None:
    chief = shrunk()
    for name in ("worker-0", "worker-2"):
        chief.heard(name, beat(2, 7.0, step=3, first_step=0, first_step_time=0.5, updated=0.0), 7.0)
    chief.tick(7.0)
    assert of_gang(chief, 7.0)["message"].endswith(", with 2 of 3 members")


def test_without_the_permission_the_gang_waits() -> None:
    chief = elastic(least=None)
    leave(chief, "worker-1", 5.0)
    ready(chief, 5.1, "worker-0", "worker-2")
    assert (chief.rounds.running, chief.rounds.missing) == (False, ["worker-1"])


def test_fewer_than_the_least_wait() -> None:
    chief = elastic(least=2)
    leave(chief, "worker-1", 5.0)
    leave(chief, "worker-2", 5.0)
    ready(chief, 5.1, "worker-0")
    chief.tick(60.0)
    assert not chief.rounds.running


def test_a_worker_that_has_only_fallen_silent_is_waited_for_until_its_program_is_dead() -> None:
    chief = elastic()
    listen(chief, 4.0, *THREE)
    chief.lost("worker-1", 5.0)
    ready(chief, 5.1, "worker-0", "worker-2")
    listen(chief, 6.9, "worker-0", "worker-2")
    assert not chief.rounds.running
    listen(chief, 7.1, "worker-0", "worker-2")
    assert chief.rounds.running


@pytest.mark.parametrize("least", [2, 3])
def test_a_new_launcher_that_is_cold_when_the_lease_of_its_predecessor_ends_joins_later(least: int) -> None:
    chief = elastic(least=least)
    listen(chief, 4.0, *THREE)
    chief.lost("worker-1", 5.0)
    ready(chief, 5.1, "worker-0", "worker-2")
    come_back(chief, "worker-1", 6.0, prepared=False)
    assert not chief.rounds.running
    for now in (7.1, 8.0):
        for name in ("worker-0", "worker-2"):
            listen(chief, now, name)
        chief.heard("worker-1", {**beat(0, now), "prepared": False}, now)
    chief.tick(8.1)
    assert chief.rounds.running
    expected = ["worker-0", "worker-2"] if least == 2 else list(THREE)  # with too few others it is waited for
    assert list(starts(chief)) == expected
    if least == 2:
        listen(chief, 12.0, *THREE)
        assert chief.incident is not None and chief.incident.reason == "Grown"


@pytest.mark.parametrize("needed", ["chief-0", "ps-0"])
def test_only_workers_may_be_missing(needed: str) -> None:
    chief = elastic("chief-0", "worker-0", "worker-1", "ps-0")
    leave(chief, needed, 5.0)
    ready(chief, 5.1, *(name for name in chief.roster.gang if name != needed))
    chief.tick(30.0)
    assert not chief.rounds.running


def test_a_worker_that_is_told_to_leave_is_not_started_again() -> None:
    chief = elastic()
    chief.heard("worker-1", {"type": "leaving"}, 5.0)
    assert chief.rounds.running
    chief.heard("worker-1", exited(1, number_of_signal=9), 6.0)
    ready(chief, 6.1, *THREE)
    assert list(starts(chief)) == ["worker-0", "worker-2"]


def test_the_gang_grows_back_in_one_restart_when_the_replacement_is_warm() -> None:
    chief = shrunk()
    come_back(chief, "worker-1", 10.0, prepared=False)
    assert chief.rounds.running
    listen(chief, 11.0, *THREE)
    assert chief.incident is not None
    assert (chief.rounds.running, chief.incident.reason, chief.incident.message) == (False, "Grown", "worker-1 is back")
    starts(chief)
    ready(chief, 11.1, "worker-0", "worker-2")
    assert {name: frame["workers"] for name, frame in starts(chief).items()} == {name: [[0, 2]] for name in THREE}
    assert (chief.judge.ledger.process_failures, chief.judge.ledger.in_place, chief.judge.ledger.without_progress) == (
        0,
        2,
        1,
    )


def gives_way(chief: Coordinator, name: str, now: float) -> list[bool]:
    """What the member is told in answer to its beat: whether to leave the processors to the others."""
    chief.outbox.take()
    chief.heard(name, beat(0, now), now)
    return [frame["giveWay"] for told, frame in chief.outbox.take() if (told, frame["type"]) == (name, "beat")]


def test_a_replacement_leaves_the_processors_to_the_others_until_they_train() -> None:
    chief = shrunk()
    chief.outbox.take()
    assert chief.hello(hello("worker-1", 5.5, incarnation="new", elastic=True), 5.5) == ""
    assert [frame["giveWay"] for _, frame in chief.outbox.take() if frame["type"] == "welcome"] == [True]
    assert gives_way(chief, "worker-1", 6.0) == [True]
    for name in ("worker-0", "worker-2"):
        chief.heard(name, beat(2, 7.0, step=41, first_step_time=0.1), 7.0)
    assert gives_way(chief, "worker-1", 7.5) == [False]


def test_a_replacement_does_not_wait_for_a_round_that_takes_long_to_begin() -> None:
    chief = shrunk()
    assert chief.hello(hello("worker-1", 5.5, incarnation="new", elastic=True), 5.5) == ""
    assert gives_way(chief, "worker-1", 10.0) == [True]
    assert gives_way(chief, "worker-1", 10.2) == [False]


def test_members_of_the_round_that_begins_are_in_nobodys_way() -> None:
    chief = shrunk()
    chief.outbox.take()
    listen(chief, 5.5, "worker-0", "worker-2")
    assert [frame["giveWay"] for _, frame in chief.outbox.take() if frame["type"] == "beat"] == [False, False]


def test_those_who_are_back_wait_for_the_others_but_not_for_ever() -> None:
    chief = elastic()
    leave(chief, "worker-1", 5.0)
    leave(chief, "worker-2", 5.0)
    ready(chief, 5.1, "worker-0")
    come_back(chief, "worker-1", 10.0)
    for second in range(11, 40):
        listen(chief, float(second), "worker-0", "worker-1")
    assert chief.rounds.running
    listen(chief, 41.0, "worker-0", "worker-1")
    assert not chief.rounds.running


def test_those_who_are_back_wait_for_the_backup_of_an_epoch_that_ends_soon() -> None:
    chief = shrunk()
    steps = {"epochs": 9, "steps_per_epoch": 100, "steps_per_second": 5.0, "updated": 1000.0, "first_step_time": 1}
    come_back(chief, "worker-1", 10.0)
    assert not chief.rounds.running, "nobody can tell how long the epoch takes"

    chief = shrunk()
    chief.heard("worker-0", beat(2, 10.0, epoch=2, step=150, **steps), 10.0)
    come_back(chief, "worker-1", 10.0)
    assert chief.rounds.running, "ten seconds to go"
    chief.heard("worker-0", beat(2, 10.5, epoch=2, step=200, **steps), 10.5)
    listen(chief, 10.6, "worker-2", "worker-1")
    assert chief.rounds.running
    chief.heard("worker-0", beat(2, 11.0, epoch=3, step=201, **steps), 11.0)
    listen(chief, 11.0, "worker-2", "worker-1")
    assert not chief.rounds.running


@pytest.mark.parametrize(("rate", "waits"), [(0.8, False), (1.0, True)])
def test_an_epoch_that_takes_long_is_not_waited_for(rate: float, waits: bool) -> None:
    chief = shrunk()
    steps = {"epoch": 2, "step": 150, "steps_per_epoch": 100, "updated": 1000.0, "steps_per_second": rate}
    chief.heard("worker-0", beat(2, 10.0, **steps), 10.0)
    come_back(chief, "worker-1", 10.0)
    assert chief.rounds.running == waits
    for second in range(11, 21):
        chief.heard("worker-0", beat(2, float(second), **steps), float(second))
        listen(chief, float(second), "worker-2", "worker-1")
    assert not chief.rounds.running, "it stands still"


def test_a_first_round_with_fewer_begins_when_the_start_deadline_is_over() -> None:
    chief = coordinator(*THREE, min_workers=2, start_deadline=60.0)
    for name in ("worker-0", "worker-1"):
        chief.hello(hello(name, elastic=True), 0.0)
    for second in range(60):
        listen(chief, float(second), "worker-0", "worker-1")
    assert not chief.rounds.running
    listen(chief, 61.0, "worker-0", "worker-1")
    assert (chief.rounds.running, chief.judge.verdict) == (True, None)
    come_back(chief, "worker-2", 62.0)
    assert chief.incident is not None and chief.incident.reason == "Grown", "nobody has asked for another size"


def test_a_new_launcher_of_the_chief_waits_until_nobody_of_the_last_round_can_be_alive() -> None:
    chief = coordinator(*THREE, min_workers=1)
    chief.hello(hello("worker-0", elastic=True), 0.0)
    chief.hello(hello("worker-2", known=4, round=4, witness=4, farewell=4, left=0.0, elastic=True), 0.0)
    listen(chief, 2.9, "worker-0", "worker-2")
    assert not chief.rounds.running
    listen(chief, 3.1, "worker-0", "worker-2")
    assert (chief.rounds.running, chief.rounds.number) == (True, 5)


def test_launchers_that_cannot_be_told_of_their_round_wait_for_all() -> None:
    chief = coordinator(*THREE, min_workers=1)
    for name in THREE:
        chief.hello(hello(name), 0.0)
    leave(chief, "worker-1", 5.0)
    ready(chief, 5.1, "worker-0", "worker-2")
    assert not chief.rounds.running


def resize(chief: Coordinator, workers: int, now: float) -> None:
    chief.change(Gang(chief.roster.job.gang.members, chief.roster.chief).resized(workers), chief.roster.policy, now)


def test_a_round_that_ends_because_it_was_asked_for_is_nobodys_fault() -> None:
    chief = elastic("worker-0", "worker-1", "worker-2", least=None)
    chief.outbox.take()
    resize(chief, 2, 5.0)
    assert {frame["member"] for _, frame in chief.outbox.take() if frame["type"] == "stop"} == {None}


def test_a_larger_gang_trains_on_until_the_new_workers_stand_ready() -> None:
    chief = elastic("worker-0", "worker-1", least=None)
    resize(chief, 4, 5.0)
    assert (chief.rounds.running, of_gang(chief, 5.0)["missing"]) == (True, ["worker-2", "worker-3"])
    come_back(chief, "worker-2", 6.0)
    assert chief.rounds.running
    come_back(chief, "worker-3", 7.0)
    assert chief.incident is not None
    assert (chief.rounds.running, chief.incident.reason) == (False, "Resized")
    starts(chief)
    ready(chief, 7.1, "worker-0", "worker-1")
    assert len(starts(chief)) == 4
    assert (chief.judge.ledger.process_failures, chief.judge.ledger.in_place, chief.judge.ledger.without_progress) == (
        0,
        1,
        0,
    )


def test_who_is_back_after_a_change_of_the_size_was_done_is_said_to_be_back() -> None:
    chief = elastic("worker-0", "worker-1")
    resize(chief, 3, 5.0)
    come_back(chief, "worker-2", 6.0)
    ready(chief, 6.1, "worker-0", "worker-1")
    assert (chief.rounds.running, chief.rounds.missing) == (True, [])
    leave(chief, "worker-2", 7.0)
    ready(chief, 7.1, "worker-0", "worker-1")
    assert (chief.rounds.running, chief.rounds.missing) == (True, ["worker-2"])
    come_back(chief, "worker-2", 10.0)
    assert chief.incident is not None
    assert (chief.incident.reason, chief.incident.message) == ("Grown", "worker-2 is back")


def test_who_is_back_when_a_program_has_finished_has_no_training_left_to_share() -> None:
    chief = shrunk()
    listen(chief, 6.0, "worker-0", "worker-2")
    chief.heard("worker-2", exited(2, 0), 6.0)
    come_back(chief, "worker-1", 7.0)
    assert (chief.rounds.running, chief.rounds.number) == (True, 2)


def test_a_failure_does_not_wait_for_workers_that_were_never_there() -> None:
    chief = elastic("worker-0", "worker-1", least=None)
    resize(chief, 3, 5.0)
    chief.heard("worker-1", exited(1, number_of_signal=9), 6.0)
    starts(chief)
    ready(chief, 6.1, "worker-0", "worker-1")
    assert list(starts(chief)) == ["worker-0", "worker-1"]
    come_back(chief, "worker-2", 7.0)
    assert chief.incident is not None
    assert (chief.incident.reason, chief.incident.message) == ("Resized", "worker-2 joins")


def test_a_smaller_gang_begins_when_those_who_go_have_ended_their_programs() -> None:
    chief = elastic(least=None)
    resize(chief, 2, 5.0)
    assert chief.incident is not None
    assert (chief.rounds.running, chief.incident.reason) == (False, "Resized")
    ready(chief, 5.1, "worker-0", "worker-1")
    assert not chief.rounds.running
    ready(chief, 5.2, "worker-2")
    assert list(starts(chief)) == ["worker-0", "worker-1"]
    assert "refused" not in chief.hello(hello("worker-2", 6.0, incarnation="new"), 6.0)
    assert chief.hello(hello("worker-2", 6.0, incarnation="new"), 6.0) == "worker-2 is not a member of this job"
    leave(chief, "worker-2", 6.0)
    assert chief.rounds.running


def test_there_and_back_before_anybody_came_is_nothing() -> None:
    chief = elastic("worker-0", "worker-1", least=None)
    resize(chief, 3, 5.0)
    resize(chief, 2, 6.0)
    listen(chief, 6.1, "worker-0", "worker-1")
    assert (chief.rounds.running, chief.rounds.number, chief.incident) == (True, 1, None)


@pytest.mark.parametrize("seed", range(30))
def test_random_faults_and_sizes_end_with_all_members_in_one_round(seed: int) -> None:
    world = World(size=3 + seed % 4, seed=seed, min_workers=1 + seed % 2)
    world.until(world.settled)
    for _ in range(25):
        for _ in range(world.random.randint(1, 3)):
            if len(world.launchers) > 1:
                getattr(world, world.random.choice((*FAULTS, "lose", "lose")))(world.random.choice([*world.launchers]))
            for _ in range(world.random.randint(0, 12)):
                world.step(world.random.uniform(0.02, 0.5))
                world.hold_invariants()
        if world.random.random() < 0.3:
            world.resize(world.random.randint(2, 6))
        world.heal()
        world.until(world.settled)


def settings(task: int, workers: int = 3, **fields: Any) -> Any:
    config = {"cluster": {"worker": [f"w{index}:1" for index in range(workers)]}}
    launcher = {
        "job": {"namespace": "n", "name": "j", "uid": "u"}, "attempt": 1, "rendezvous": "w0:2", "statusPort": 3,
        "secretFile": "key", **fields,
    }  # fmt: skip
    task_of = {"task": {"type": "worker", "index": task}}
    return read({"TF_CONFIG": json.dumps({**config, **task_of}), "TFTRAINING_LAUNCHER": json.dumps(launcher)})


@pytest.mark.parametrize(
    ("task", "fields", "expected"),
    [(1, {}, True), (1, {"needed": False}, False), (1, {"minReplicas": 1}, False), (0, {"minReplicas": 1}, True)],
)
def test_who_never_gets_to_the_rendezvous_fails_the_job_only_if_nobody_can_do_without(
    task: int, fields: dict[str, Any], expected: bool
) -> None:
    assert settings(task, **fields).indispensable == expected


def test_the_workers_of_a_round_are_numbered_without_gaps() -> None:
    told = round_environment.of_round(settings(2), [[0, 0], [2, 2]], 3, "own")
    assert json.loads(told["TF_CONFIG"]) == {
        "cluster": {"worker": ["w0:1", "w2:1"]},
        "task": {"type": "worker", "index": 1},
    }
    assert (told["TFTRAINING_WORKERS"], told["TFTRAINING_MAX_WORKERS"]) == ("2", "3")


def test_a_round_of_all_keeps_the_members_own_tf_config() -> None:
    assert round_environment.of_round(settings(1), [[0, 2]], 3, "own")["TF_CONFIG"] == "own"


def test_addresses_of_workers_that_were_added_later() -> None:
    told = round_environment.of_round(settings(0, 1, workerAddress="w%d:1"), [[0, 2]], 3, "own")
    assert json.loads(told["TF_CONFIG"])["cluster"]["worker"] == ["w0:1", "w1:1", "w2:1"]
    with pytest.raises(ValueError, match="the address of worker-1 is unknown"):
        round_environment.of_round(settings(0, 1), [[0, 1]], 2, "own")


def test_a_gang_whose_workers_are_restarted_alone_is_resized_as_a_whole() -> None:
    chief = elastic("chief-0", "worker-0", "worker-1", "ps-0", least=None, scope="Pod")
    resize(chief, 3, 5.0)
    come_back(chief, "worker-2", 6.0)
    assert chief.incident is not None
    assert (chief.rounds.running, chief.incident.reason) == (False, "Resized"), (
        "its servers and its chief have to know it"
    )
    starts(chief)
    ready(chief, 6.1, "chief-0", "worker-0", "worker-1", "ps-0")
    frames = starts(chief)
    assert {name: frame["workers"] for name, frame in frames.items()} == {name: [[0, 2]] for name in chief.roster.gang}
    assert {frame["size"] for frame in frames.values()} == {4}


def test_a_worker_that_is_restarted_alone_is_told_of_the_same_gang() -> None:
    chief = elastic("chief-0", "worker-0", "worker-1", "worker-2", "ps-0", least=1)
    chief.change(chief.roster.job.gang, replace(chief.roster.policy, scope="Pod"), 4.0)
    leave(chief, "worker-1", 5.0)
    assert chief.rounds.running
    come_back(chief, "worker-1", 6.0)
    assert {name: frame["workers"] for name, frame in starts(chief).items()} == {"worker-1": [[0, 2]]}
