"""Observations that come late, twice or out of order do no harm: the status write is refused, and that is all."""

from collections.abc import Callable

import pytest

from tests.support.simulated_cluster.apiserver import Snapshot
from tests.support.simulated_cluster.builders import a_job
from tests.support.simulated_cluster.simulation import World


def test_a_pass_on_a_job_as_it_was_before_the_restart_does_nothing() -> None:
    world = World(a_job()).run().exit("worker-1")
    before = world.api.snapshot()
    world.run()
    writes = list(world.api.writes)
    world.step(seen=before)
    assert world.api.writes == writes
    assert not world.step()


def test_an_old_job_beside_new_pods_does_nothing() -> None:
    world = World(a_job()).run()
    old = world.api.snapshot()
    world.exit("worker-1").run()
    writes = list(world.api.writes)
    world.step(seen=Snapshot(old.job, world.api.snapshot().pods, old.services))
    assert world.api.writes == writes


def test_an_old_job_beside_no_pods_does_nothing() -> None:
    world = World(a_job()).run()
    old = world.api.snapshot()
    world.exit("worker-1").settle()
    world.kubelet.remove_deleted()
    writes = list(world.api.writes)
    world.step(seen=Snapshot(old.job, [], old.services))
    assert world.api.writes == writes


def test_pods_that_the_cache_does_not_show_yet_are_not_made_twice() -> None:
    world = World(a_job())
    empty = world.api.snapshot()
    world.step()
    late = Snapshot(world.api.snapshot().job, empty.pods, empty.services)
    before = world.api.pods["mnist-worker-0"]["metadata"]["uid"]
    world.step(seen=late)
    assert world.api.pods["mnist-worker-0"]["metadata"]["uid"] == before
    assert world.refusal is None
    assert world.run().status.restarts.recreated == 0


def test_a_deletion_planned_on_an_old_pod_spares_the_new_one_of_its_name() -> None:
    world = World(a_job()).run()
    old_pods = world.api.snapshot().pods
    world.exit("worker-1").settle()
    world.kubelet.remove_deleted()
    world.step()
    new = world.api.snapshot()
    assert world.attempts() == {"2"}
    world.kubelet.start_all()
    world.step(seen=Snapshot(new.job, old_pods, new.services))
    assert all("deletionTimestamp" not in pod["metadata"] for pod in world.api.pods.values())
    assert world.run().status.attempt == 2


@pytest.mark.parametrize("times", [2, 5])
def test_the_same_observation_again_and_again_is_one_step(times: int) -> None:
    world = World(a_job()).run().exit("worker-1")
    seen = world.api.snapshot()
    for _ in range(times):
        world.step(seen=seen)
    assert world.status.attempt == 2
    assert world.run().status.restarts.counted == 1


def test_every_old_snapshot_of_a_life_is_harmless_at_its_end() -> None:
    world = World(a_job().storage())
    seen = [world.api.snapshot()]
    events: list[Callable[[], World]] = [
        world.run,
        lambda: world.exit("worker-1"),
        world.settle,
        world.run,
        lambda: world.delete("worker-0"),
        world.run_timers,
        lambda: world.exit("worker-0", code=0),
        world.run,
    ]
    for event in events:
        event()
        seen.append(world.api.snapshot())
    world.exit("cleanup", code=0, message='{"removed": 1}').run()
    status, pods = world.status, world.pods
    for old in seen:
        world.step(seen=old)
    world.run()
    assert (world.status, world.pods) == (status, pods)
