"""Row: disruptions. Somebody deletes the Secret by which the launchers know each other: nobody misses it until a new
pod is needed; then all are recreated with a new key, once, announced and charged to nobody.
"""

from collections.abc import Callable

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_launched_job
from tests.support.simulated_cluster.pauses import resume, suspend
from tests.support.simulated_cluster.simulation import World

SECRET = "mnist-launcher-job-uid"
Loss = Callable[[World], object]
LOSSES: dict[str, Loss] = {
    "a worker": lambda world: world.delete("worker-1"),
    "the chief": lambda world: world.delete("worker-0"),
    "one by force": lambda world: world.kubelet.lose("mnist-worker-1"),
    "a failed one": lambda world: world.exit("worker-1", code=137, reason="OOMKilled"),
    "the evaluator": lambda world: world.exit("evaluator-0"),
    "another size": lambda world: world.api.edit("replicaSpecs.worker.replicas", 4),
}


def without_key(job: JobBuilder) -> World:
    """A gang that trains, and whose Secret was deleted."""
    world = World(job.workers(3).role("evaluator").storage()).run()
    world.events.clear()
    del world.api.secrets[SECRET]
    return world


def test_nobody_misses_it_as_long_as_no_pod_is_made() -> None:
    world = without_key(a_launched_job())
    written = len(world.api.writes)
    world.wait(1000).run_timers()
    world.launchers.crash("worker-1")
    world.run()
    assert (world.status.phase, world.status.attempt, world.launchers.round) == ("Running", 1, 2)
    assert set(world.api.writes[written:]) == {"status"}
    assert SECRET not in world.api.secrets


@pytest.mark.parametrize("least", [None, 1], ids=["", "minReplicas"])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_next_pod_that_is_made_is_one_restart_of_all(loss: str, least: int | None) -> None:
    job = a_launched_job().max_restarts(1)
    world = without_key(job.set("minReplicas", least) if least else job)
    LOSSES[loss](world)
    world.run_timers()
    status, size = world.status, 4 if loss == "another size" else 3
    assert (status.phase, status.ready, status.attempt) == ("Running", f"{size}/{size}", 2)
    assert SECRET in world.api.secrets and len(set(world.kubelet.keys.values())) == 2
    assert status.restarts.counted == (loss == "a failed one")
    told = [note for note in world.events if note.reason == "KeyLost"]
    assert [note.type for note in told] == ["Normal"]
    assert f"secret/{SECRET}, the key of the launchers, was deleted" in told[0].message
    assert "evaluator-0" in world.pods and world.attempts() == {"2"}
    assert not world.step()


def test_it_is_made_anew_quietly_where_nobody_has_read_it() -> None:
    world = World(a_launched_job())
    world.step(writes=3)
    assert (world.api.writes[-1], world.pods) == (f"create secret/{SECRET}", [])
    del world.api.secrets[SECRET]
    assert world.run().status.ready == "2/2"
    assert (world.status.attempt, world.status.restarts.disruptions) == (1, 0)


def test_pods_that_are_on_their_way_are_not_kept_waiting_for_ever() -> None:
    world = World(a_launched_job()).settle()
    del world.api.secrets[SECRET]
    assert world.run().status.phase == "Starting"
    world.run_timers()
    assert (world.status.phase, world.status.ready, world.status.attempt) == ("Running", "2/2", 2)


def test_a_resumed_job_has_a_new_one_anyway() -> None:
    world = suspend(without_key(a_launched_job())).run()
    resume(world).run_timers()
    assert (world.status.phase, world.status.attempt, world.events[-1].reason) == ("Running", 2, "Training")
    assert "KeyLost" not in {note.reason for note in world.events}


def test_without_launchers_there_is_none() -> None:
    world = World(a_launched_job().set("restartPolicy.mode", "Recreate")).run()
    assert not world.api.secrets and not any("secret" in each for each in world.api.writes)
