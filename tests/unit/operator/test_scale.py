"""The number of workers changes while the job runs: one restart with the new TF_CONFIG, never charged."""

import json

from tests.unit.operator.builders import a_job
from tests.unit.operator.simulation import World


def workers_in_tf_config(world: World, name: str) -> int:
    (container,) = world.api.pods[name]["spec"]["containers"]
    value = next(each["value"] for each in container["env"] if each["name"] == "TF_CONFIG")
    return len(json.loads(value)["cluster"]["worker"])


def test_scaling_up_restarts_the_gang_once_and_free_of_charge() -> None:
    world = World(a_job().max_restarts(0)).run()
    world.api.edit("replicaSpecs.worker.replicas", 4)
    world.run()
    assert world.pods == ["worker-0", "worker-1", "worker-2", "worker-3"]
    assert workers_in_tf_config(world, "mnist-worker-0") == 4
    restarts = world.status.restarts
    assert (restarts.counted, restarts.disruptions, restarts.recreated, world.status.attempt) == (0, 0, 1, 2)
    assert (world.status.phase, world.status.ready) == ("Running", "4/4")


def test_scaling_down_restarts_the_gang_and_remembers_the_highest_index() -> None:
    world = World(a_job().workers(4)).run()
    world.api.edit("replicaSpecs.worker.replicas", 2)
    world.run()
    assert world.pods == ["worker-0", "worker-1"]
    assert workers_in_tf_config(world, "mnist-worker-1") == 2
    assert world.status.replicas["worker"].highest == 3
    assert world.status.attempt == 2


def test_scaling_says_why_the_gang_restarts() -> None:
    world = World(a_job()).run()
    world.api.edit("replicaSpecs.worker.replicas", 3)
    world.settle()
    assert world.status.reason == "Resized"
    assert world.status.message == "the number of workers was changed; restarting the gang as attempt 2"
    assert (world.status.replicas["worker"].desired, world.status.ready) == (3, "0/3")


def test_scaling_back_and_forth_before_the_operator_looks_is_nothing() -> None:
    world = World(a_job()).run()
    world.api.edit("replicaSpecs.worker.replicas", 3)
    world.api.edit("replicaSpecs.worker.replicas", 2)
    world.run()
    assert world.status.attempt == 1
    assert world.status.observed_generation == 3


def test_scaling_while_the_gang_starts_makes_the_pods_again() -> None:
    world = World(a_job())
    world.step()
    world.api.edit("replicaSpecs.worker.replicas", 3)
    world.run()
    assert workers_in_tf_config(world, "mnist-worker-0") == 3
    assert world.status.phase == "Running"


def test_scaling_during_a_restart_takes_effect_with_it() -> None:
    world = World(a_job()).run().exit("worker-1").settle()
    world.api.edit("replicaSpecs.worker.replicas", 3)
    world.run()
    assert (world.status.attempt, world.pods) == (2, ["worker-0", "worker-1", "worker-2"])


def test_all_workers_away_beside_a_chief() -> None:
    world = World(a_job().chief()).run()
    world.api.edit("replicaSpecs.worker.replicas", 0)
    world.run()
    assert (world.pods, world.status.ready, world.status.phase) == (["chief-0"], "1/1", "Running")
    assert world.status.replicas["worker"].desired == 0
    assert world.status.replicas["worker"].highest == 1


def test_another_change_of_the_spec_restarts_nothing() -> None:
    world = World(a_job()).run()
    world.api.edit("restartPolicy.maxRestarts", 3)
    world.run()
    assert (world.status.attempt, world.status.observed_generation) == (1, 2)
