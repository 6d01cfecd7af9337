"""Gangs that train with fewer workers, grow back, and are resized: single decisions, then a simulation."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.random_seeds import seeds
from tests.support.simulated_gang.members import disconnect_cleanly
from tests.support.simulated_gang.simulation import SimulatedGang, exited, heartbeat, hello, make_coordinator
from tests.unit.launch.gang.test_random_faults import FAULTS
from tftraining.launch.config import round_environment
from tftraining.launch.config.settings import read
from tftraining.launch.config.settings_and_defaults import Gang
from tftraining.launch.failure.restart_budget import Ledger
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.http.pages import gang_status
from tftraining.launch.progress import to_frame

THREE = ("worker-0", "worker-1", "worker-2")


def starts(chief: Coordinator) -> dict[str, Any]:
    """The `start` frames under way, by member; the outbox is empty then."""
    frames = chief.outbox.take_all()
    return {name: frame for name, frame in frames if frame["type"] == "start"}


def elastic(*members: str, least: int | None = 1, **policy: Any) -> Coordinator:
    """A gang in its first round that may go on with fewer."""
    chief = make_coordinator(*(members or THREE), min_replicas=least, **policy)
    for name in chief.membership.gang:
        assert chief.handle_hello(hello(name), 0.0) == ""
    assert chief.rounds.running
    starts(chief)
    return chief


def ready(chief: Coordinator, now: float, *names: str) -> None:
    """These have ended their programs."""
    for name in names:
        chief.handle_frame(name, {"type": "ready", "round": chief.membership.peers[name].round}, now)


def listen(chief: Coordinator, now: float, *names: str) -> None:
    """These beat, with no news of their progress, and time passes."""
    for name in names:
        peer = chief.membership.peers[name]
        chief.handle_frame(name, {**heartbeat(peer.round, now), "progress": to_frame(peer.progress, now)}, now)
    chief.tick(now)


def come_back(chief: Coordinator, name: str, now: float, prepared: bool = True) -> None:
    """A new launcher of the member joins."""
    assert chief.handle_hello(hello(name, now, incarnation=f"new {now}"), now) == ""
    chief.handle_frame(name, {**heartbeat(0, now), "prepared": prepared}, now)
    listen(
        chief, now, *(peer.name for peer in chief.membership.gang.values() if peer.is_connected and peer.name != name)
    )


def shrunk() -> Coordinator:
    """A gang of three that trains on without worker-1."""
    chief = elastic()
    disconnect_cleanly(chief, "worker-1", 5.0)
    ready(chief, 5.1, "worker-0", "worker-2")
    assert chief.rounds.running
    return chief


def test_the_survivors_of_a_lost_worker_restart_at_once_without_a_charge() -> None:
    chief = shrunk()
    frames = starts(chief)
    assert {name: frame["workers"] for name, frame in frames.items()} == {
        "worker-0": [[0, 0], [2, 2]],
        "worker-2": [[0, 0], [2, 2]],
    }
    assert {frame["size"] for frame in frames.values()} == {3}
    assert (chief.rounds.number, chief.verdict.ledger.process_failures, chief.verdict.ledger.in_place) == (2, 0, 1)
    status = gang_status(chief, 6.0)
    assert (status["missing"], status["gang"]) == (["worker-1"], {"size": 2, "full": 3})
    assert status["lastRestart"]["reason"] == "MemberLost"


def test_the_status_says_how_many_members_train() -> None:
    chief = shrunk()
    for name in ("worker-0", "worker-2"):
        chief.handle_frame(name, heartbeat(2, 7.0, step=3, first_step=0, first_step_time=0.5, updated=0.0), 7.0)
    chief.tick(7.0)
    assert gang_status(chief, 7.0)["message"].endswith(", with 2 of 3 members")


def test_without_min_replicas_the_gang_waits_for_a_lost_worker() -> None:
    chief = elastic(least=None)
    disconnect_cleanly(chief, "worker-1", 5.0)
    ready(chief, 5.1, "worker-0", "worker-2")
    assert (chief.rounds.running, chief.rounds.missing) == (False, ["worker-1"])


def test_fewer_than_min_replicas_wait() -> None:
    chief = elastic(least=2)
    disconnect_cleanly(chief, "worker-1", 5.0)
    disconnect_cleanly(chief, "worker-2", 5.0)
    ready(chief, 5.1, "worker-0")
    chief.tick(60.0)
    assert not chief.rounds.running


def test_the_next_round_waits_for_the_lease_of_a_silent_worker() -> None:
    chief = elastic()
    listen(chief, 4.0, *THREE)
    chief.handle_disconnect("worker-1", 5.0)
    ready(chief, 5.1, "worker-0", "worker-2")
    listen(chief, 6.9, "worker-0", "worker-2")
    assert not chief.rounds.running
    listen(chief, 7.1, "worker-0", "worker-2")
    assert chief.rounds.running


@pytest.mark.parametrize("least", [2, 3])
def test_an_unprepared_replacement_joins_later(least: int) -> None:
    chief = elastic(least=least)
    listen(chief, 4.0, *THREE)
    chief.handle_disconnect("worker-1", 5.0)
    ready(chief, 5.1, "worker-0", "worker-2")
    come_back(chief, "worker-1", 6.0, prepared=False)
    assert not chief.rounds.running
    for now in (7.1, 8.0):
        for name in ("worker-0", "worker-2"):
            listen(chief, now, name)
        chief.handle_frame("worker-1", {**heartbeat(0, now), "prepared": False}, now)
    chief.tick(8.1)
    assert chief.rounds.running
    expected = ["worker-0", "worker-2"] if least == 2 else list(THREE)  # with too few others it is waited for
    assert list(starts(chief)) == expected
    if least == 2:
        listen(chief, 12.0, *THREE)
        assert chief.last_incident is not None and chief.last_incident.reason == "Grown"


@pytest.mark.parametrize("needed", ["chief-0", "ps-0"])
def test_only_workers_may_be_missing(needed: str) -> None:
    chief = elastic("chief-0", "worker-0", "worker-1", "ps-0")
    disconnect_cleanly(chief, needed, 5.0)
    ready(chief, 5.1, *(name for name in chief.membership.gang if name != needed))
    chief.tick(30.0)
    assert not chief.rounds.running


def test_a_terminated_worker_is_not_started_again() -> None:
    chief = elastic()
    chief.handle_frame("worker-1", {"type": "leaving"}, 5.0)
    assert chief.rounds.running
    chief.handle_frame("worker-1", exited(1, number_of_signal=9), 6.0)
    ready(chief, 6.1, *THREE)
    assert list(starts(chief)) == ["worker-0", "worker-2"]


def test_the_gang_grows_back_in_one_restart_when_the_replacement_is_prepared() -> None:
    chief = shrunk()
    come_back(chief, "worker-1", 10.0, prepared=False)
    assert chief.rounds.running
    listen(chief, 11.0, *THREE)
    assert chief.last_incident is not None
    assert (chief.rounds.running, chief.last_incident.reason, chief.last_incident.message) == (
        False,
        "Grown",
        "worker-1 is back",
    )
    starts(chief)
    ready(chief, 11.1, "worker-0", "worker-2")
    assert {name: frame["workers"] for name, frame in starts(chief).items()} == {name: [[0, 2]] for name in THREE}
    assert (
        chief.verdict.ledger.process_failures,
        chief.verdict.ledger.in_place,
        chief.verdict.ledger.without_progress,
    ) == (
        0,
        2,
        1,
    )


def gives_way(chief: Coordinator, name: str, now: float) -> list[bool]:
    """What the member is told in answer to its beat: whether to leave the processors to the others."""
    chief.outbox.take_all()
    chief.handle_frame(name, heartbeat(0, now), now)
    return [frame["giveWay"] for told, frame in chief.outbox.take_all() if (told, frame["type"]) == (name, "beat")]


def test_a_replacement_pauses_its_warmup_until_the_others_train() -> None:
    chief = shrunk()
    chief.outbox.take_all()
    assert chief.handle_hello(hello("worker-1", 5.5, incarnation="new"), 5.5) == ""
    assert [frame["giveWay"] for _, frame in chief.outbox.take_all() if frame["type"] == "welcome"] == [True]
    assert gives_way(chief, "worker-1", 6.0) == [True]
    for name in ("worker-0", "worker-2"):
        chief.handle_frame(name, heartbeat(2, 7.0, step=41, first_step_time=0.1), 7.0)
    assert gives_way(chief, "worker-1", 7.5) == [False]


def test_the_pause_of_a_replacements_warmup_is_bounded() -> None:
    chief = shrunk()
    assert chief.handle_hello(hello("worker-1", 5.5, incarnation="new"), 5.5) == ""
    assert gives_way(chief, "worker-1", 10.0) == [True]
    assert gives_way(chief, "worker-1", 10.2) == [False]


def test_members_of_the_round_do_not_pause_their_warmup() -> None:
    chief = shrunk()
    chief.outbox.take_all()
    listen(chief, 5.5, "worker-0", "worker-2")
    assert [frame["giveWay"] for _, frame in chief.outbox.take_all() if frame["type"] == "beat"] == [False, False]


def test_newcomers_wait_30_seconds_for_other_missing_members() -> None:
    chief = elastic()
    disconnect_cleanly(chief, "worker-1", 5.0)
    disconnect_cleanly(chief, "worker-2", 5.0)
    ready(chief, 5.1, "worker-0")
    come_back(chief, "worker-1", 10.0)
    for second in range(11, 40):
        listen(chief, float(second), "worker-0", "worker-1")
    assert chief.rounds.running
    listen(chief, 41.0, "worker-0", "worker-1")
    assert not chief.rounds.running


def test_newcomers_wait_for_a_backup_that_is_near() -> None:
    chief = shrunk()
    steps = {"epochs": 9, "steps_per_epoch": 100, "steps_per_second": 5.0, "updated": 1000.0, "first_step_time": 1}
    come_back(chief, "worker-1", 10.0)
    assert not chief.rounds.running, "nobody can tell how long the epoch takes"

    chief = shrunk()
    chief.handle_frame("worker-0", heartbeat(2, 10.0, epoch=2, step=150, **steps), 10.0)
    come_back(chief, "worker-1", 10.0)
    assert chief.rounds.running, "ten seconds to go"
    chief.handle_frame("worker-0", heartbeat(2, 10.5, epoch=2, step=200, **steps), 10.5)
    listen(chief, 10.6, "worker-2", "worker-1")
    assert chief.rounds.running
    chief.handle_frame("worker-0", heartbeat(2, 11.0, epoch=3, step=201, **steps), 11.0)
    listen(chief, 11.0, "worker-2", "worker-1")
    assert not chief.rounds.running


@pytest.mark.parametrize(("rate", "waits"), [(0.8, False), (1.0, True)])
@pytest.mark.parametrize("earlier", [0, 330])  # steps of an earlier `fit`
def test_newcomers_do_not_wait_for_the_end_of_a_long_epoch(rate: float, waits: bool, earlier: int) -> None:
    chief = shrunk()
    place = {"epoch": 2, "step": earlier + 150, "fit_start": earlier, "steps_per_epoch": 100}
    steps = {**place, "updated": 1000.0, "steps_per_second": rate}
    chief.handle_frame("worker-0", heartbeat(2, 10.0, **steps), 10.0)
    come_back(chief, "worker-1", 10.0)
    assert chief.rounds.running == waits
    for second in range(11, 21):
        chief.handle_frame("worker-0", heartbeat(2, float(second), **steps), float(second))
        listen(chief, float(second), "worker-2", "worker-1")
    assert not chief.rounds.running, "it stands still"


def test_a_partial_first_round_starts_after_the_start_deadline() -> None:
    chief = make_coordinator(*THREE, min_replicas=2, start_deadline_seconds=60.0)
    for name in ("worker-0", "worker-1"):
        chief.handle_hello(hello(name), 0.0)
    for second in range(60):
        listen(chief, float(second), "worker-0", "worker-1")
    assert not chief.rounds.running
    listen(chief, 61.0, "worker-0", "worker-1")
    assert (chief.rounds.running, chief.verdict.result) == (True, None)
    come_back(chief, "worker-2", 62.0)
    assert chief.last_incident is not None and chief.last_incident.reason == "Grown", (
        "nobody has asked for another size"
    )


def test_a_new_chief_waits_until_no_program_of_the_last_round_can_run() -> None:
    chief = make_coordinator(*THREE, min_replicas=1)
    chief.handle_hello(hello("worker-0"), 0.0)
    chief.handle_hello(hello("worker-2", known=4, round=4, witness=4, farewell=4, left=0.0), 0.0)
    listen(chief, 2.9, "worker-0", "worker-2")
    assert not chief.rounds.running
    listen(chief, 3.1, "worker-0", "worker-2")
    assert (chief.rounds.running, chief.rounds.number) == (True, 5)


def resize(chief: Coordinator, workers: int, now: float) -> None:
    chief.apply_spec_update(
        Gang(chief.membership.job.gang.members, chief.membership.chief).resized(workers), chief.membership.policy, now
    )


def test_a_planned_restart_names_no_failed_member() -> None:
    chief = elastic("worker-0", "worker-1", "worker-2", least=None)
    chief.outbox.take_all()
    resize(chief, 2, 5.0)
    assert {frame["member"] for _, frame in chief.outbox.take_all() if frame["type"] == "stop"} == {None}


def test_scaling_up_restarts_the_gang_once_the_new_workers_are_ready_and_begins_the_back_off_anew() -> None:
    chief = elastic("worker-0", "worker-1", least=None)
    chief.verdict.ledger = Ledger(without_progress=3)
    resize(chief, 4, 5.0)
    assert (chief.rounds.running, gang_status(chief, 5.0)["missing"]) == (True, ["worker-2", "worker-3"])
    come_back(chief, "worker-2", 6.0)
    assert chief.rounds.running
    come_back(chief, "worker-3", 7.0)
    assert chief.last_incident is not None
    assert (chief.rounds.running, chief.last_incident.reason) == (False, "Resized")
    starts(chief)
    ready(chief, 7.1, "worker-0", "worker-1")
    assert len(starts(chief)) == 4
    assert (
        chief.verdict.ledger.process_failures,
        chief.verdict.ledger.in_place,
        chief.verdict.ledger.without_progress,
    ) == (
        0,
        1,
        0,
    )


def test_a_worker_that_returns_after_a_resize_is_reported_as_grown() -> None:
    chief = elastic("worker-0", "worker-1")
    resize(chief, 3, 5.0)
    come_back(chief, "worker-2", 6.0)
    ready(chief, 6.1, "worker-0", "worker-1")
    assert (chief.rounds.running, chief.rounds.missing) == (True, [])
    disconnect_cleanly(chief, "worker-2", 7.0)
    ready(chief, 7.1, "worker-0", "worker-1")
    assert (chief.rounds.running, chief.rounds.missing) == (True, ["worker-2"])
    chief.verdict.ledger = Ledger(without_progress=3)
    come_back(chief, "worker-2", 10.0)
    assert chief.last_incident is not None
    assert (chief.last_incident.reason, chief.last_incident.message) == ("Grown", "worker-2 is back")
    assert (chief.rounds.wait, chief.verdict.ledger.without_progress) == (0, 3), "nobody has asked for it"


def test_newcomers_do_not_join_once_a_trainer_has_finished() -> None:
    chief = shrunk()
    listen(chief, 6.0, "worker-0", "worker-2")
    chief.handle_frame("worker-2", exited(2, 0), 6.0)
    come_back(chief, "worker-1", 7.0)
    assert (chief.rounds.running, chief.rounds.number) == (True, 2)


def test_a_restart_does_not_wait_for_workers_that_never_joined() -> None:
    chief = elastic("worker-0", "worker-1", least=None)
    resize(chief, 3, 5.0)
    chief.handle_frame("worker-1", exited(1, number_of_signal=9), 6.0)
    starts(chief)
    ready(chief, 6.1, "worker-0", "worker-1")
    assert list(starts(chief)) == ["worker-0", "worker-1"]
    come_back(chief, "worker-2", 7.0)
    assert chief.last_incident is not None
    assert (chief.last_incident.reason, chief.last_incident.message) == ("Resized", "worker-2 joins")


def test_a_smaller_gang_starts_once_the_removed_workers_programs_have_ended() -> None:
    chief = elastic(least=None)
    resize(chief, 2, 5.0)
    assert chief.last_incident is not None
    assert (chief.rounds.running, chief.last_incident.reason) == (False, "Resized")
    ready(chief, 5.1, "worker-0", "worker-1")
    assert not chief.rounds.running
    ready(chief, 5.2, "worker-2")
    assert list(starts(chief)) == ["worker-0", "worker-1"]
    assert "refused" not in chief.handle_hello(hello("worker-2", 6.0, incarnation="new"), 6.0)
    assert chief.handle_hello(hello("worker-2", 6.0, incarnation="new"), 6.0) == "worker-2 is not a member of this job"
    disconnect_cleanly(chief, "worker-2", 6.0)
    assert chief.rounds.running


def test_scaling_up_and_down_again_restarts_nothing() -> None:
    chief = elastic("worker-0", "worker-1", least=None)
    resize(chief, 3, 5.0)
    resize(chief, 2, 6.0)
    listen(chief, 6.1, "worker-0", "worker-1")
    assert (chief.rounds.running, chief.rounds.number, chief.last_incident) == (True, 1, None)


@pytest.mark.parametrize("seed", seeds(8, 30))
def test_random_faults_and_sizes_end_with_all_members_in_one_round(seed: int) -> None:
    world = SimulatedGang(size=3 + seed % 4, seed=seed, min_replicas=1 + seed % 2)
    world.run_until(world.is_settled)
    for _ in range(25):
        for _ in range(world.random.randint(1, 3)):
            if len(world.launchers) > 1:
                getattr(world, world.random.choice((*FAULTS, "lose_launcher", "lose_launcher")))(
                    world.random.choice([*world.launchers])
                )
            for _ in range(world.random.randint(0, 12)):
                world.advance(world.random.uniform(0.02, 0.5))
                world.check_invariants()
        if world.random.random() < 0.3:
            world.resize(world.random.randint(2, 6))
        world.heal_network()
        world.run_until(world.is_settled)


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
def test_only_an_indispensable_member_without_rendezvous_fails_the_job(
    task: int, fields: dict[str, Any], expected: bool
) -> None:
    assert settings(task, **fields).indispensable == expected


def test_tf_config_numbers_the_workers_of_a_round_without_gaps() -> None:
    told = round_environment.of_round(settings(2), [[0, 0], [2, 2]], 3, "own")
    assert json.loads(told["TF_CONFIG"]) == {
        "cluster": {"worker": ["w0:1", "w2:1"]},
        "task": {"type": "worker", "index": 1},
    }
    assert (told["TFTRAINING_WORKERS"], told["TFTRAINING_MAX_WORKERS"]) == ("2", "3")


def test_a_full_round_keeps_the_members_own_tf_config() -> None:
    assert round_environment.of_round(settings(1), [[0, 2]], 3, "own")["TF_CONFIG"] == "own"


def test_tf_config_has_the_addresses_of_added_workers() -> None:
    told = round_environment.of_round(settings(0, 1, workerAddress="w%d:1"), [[0, 2]], 3, "own")
    assert json.loads(told["TF_CONFIG"])["cluster"]["worker"] == ["w0:1", "w1:1", "w2:1"]
    with pytest.raises(ValueError, match="the address of worker-1 is unknown"):
        round_environment.of_round(settings(0, 1), [[0, 1]], 2, "own")


def test_a_resize_restarts_the_whole_gang_under_scope_pod() -> None:
    chief = elastic("chief-0", "worker-0", "worker-1", "ps-0", least=None, scope="Pod")
    resize(chief, 3, 5.0)
    come_back(chief, "worker-2", 6.0)
    assert chief.last_incident is not None
    assert (chief.rounds.running, chief.last_incident.reason) == (False, "Resized"), (
        "its servers and its chief have to know it"
    )
    starts(chief)
    ready(chief, 6.1, "chief-0", "worker-0", "worker-1", "ps-0")
    frames = starts(chief)
    assert {name: frame["workers"] for name, frame in frames.items()} == {
        name: [[0, 2]] for name in chief.membership.gang
    }
    assert {frame["size"] for frame in frames.values()} == {4}


def test_a_worker_that_restarts_alone_gets_the_same_gang() -> None:
    chief = elastic("chief-0", "worker-0", "worker-1", "worker-2", "ps-0", least=1)
    chief.apply_spec_update(chief.membership.job.gang, replace(chief.membership.policy, scope="Pod"), 4.0)
    disconnect_cleanly(chief, "worker-1", 5.0)
    assert chief.rounds.running
    come_back(chief, "worker-1", 6.0)
    assert {name: frame["workers"] for name, frame in starts(chief).items()} == {"worker-1": [[0, 2]]}
