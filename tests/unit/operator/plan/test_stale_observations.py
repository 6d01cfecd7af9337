"""Observations that come late, twice or out of order do no harm: the status write is refused, and that is all."""

from collections.abc import Callable

import pytest

from tests.support.simulated_cluster.apiserver import Snapshot
from tests.support.simulated_cluster.builders import a_job
from tests.support.simulated_cluster.simulation import SimulatedCluster


def test_a_pass_on_a_job_as_it_was_before_the_restart_does_nothing() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-1")
    before = cluster.api.snapshot()
    cluster.run()
    writes = list(cluster.api.writes)
    cluster.step(snapshot=before)
    assert cluster.api.writes == writes
    assert not cluster.step()


def test_an_old_job_beside_new_pods_does_nothing() -> None:
    cluster = SimulatedCluster(a_job()).run()
    old = cluster.api.snapshot()
    cluster.exit("worker-1").run()
    writes = list(cluster.api.writes)
    cluster.step(snapshot=Snapshot(old.job, cluster.api.snapshot().pods, old.services))
    assert cluster.api.writes == writes


def test_an_old_job_beside_no_pods_does_nothing() -> None:
    cluster = SimulatedCluster(a_job()).run()
    old = cluster.api.snapshot()
    cluster.exit("worker-1").settle()
    cluster.kubelet.remove_deleted()
    writes = list(cluster.api.writes)
    cluster.step(snapshot=Snapshot(old.job, [], old.services))
    assert cluster.api.writes == writes


def test_pods_that_the_cache_does_not_show_yet_are_not_made_twice() -> None:
    cluster = SimulatedCluster(a_job())
    empty = cluster.api.snapshot()
    cluster.step()
    late = Snapshot(cluster.api.snapshot().job, empty.pods, empty.services)
    before = cluster.api.pods["mnist-worker-0"]["metadata"]["uid"]
    cluster.step(snapshot=late)
    assert cluster.api.pods["mnist-worker-0"]["metadata"]["uid"] == before
    assert cluster.refusal is None
    assert cluster.run().status.restarts.recreated == 0


def test_a_deletion_planned_on_an_old_pod_spares_the_new_one_of_its_name() -> None:
    cluster = SimulatedCluster(a_job()).run()
    old_pods = cluster.api.snapshot().pods
    cluster.exit("worker-1").settle()
    cluster.kubelet.remove_deleted()
    cluster.step()
    new = cluster.api.snapshot()
    assert cluster.attempts() == {"2"}
    cluster.kubelet.start_all()
    cluster.step(snapshot=Snapshot(new.job, old_pods, new.services))
    assert all("deletionTimestamp" not in pod["metadata"] for pod in cluster.api.pods.values())
    assert cluster.run().status.attempt == 2


@pytest.mark.parametrize("times", [2, 5])
def test_the_same_observation_again_and_again_is_one_step(times: int) -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-1")
    seen = cluster.api.snapshot()
    for _ in range(times):
        cluster.step(snapshot=seen)
    assert cluster.status.attempt == 2
    assert cluster.run().status.restarts.counted == 1


def test_every_old_snapshot_of_a_life_is_harmless_at_its_end() -> None:
    cluster = SimulatedCluster(a_job().storage())
    seen = [cluster.api.snapshot()]
    events: list[Callable[[], SimulatedCluster]] = [
        cluster.run,
        lambda: cluster.exit("worker-1"),
        cluster.settle,
        cluster.run,
        lambda: cluster.delete("worker-0"),
        cluster.run_timers,
        lambda: cluster.exit("worker-0", code=0),
        cluster.run,
    ]
    for event in events:
        event()
        seen.append(cluster.api.snapshot())
    cluster.exit("cleanup", code=0, message='{"removed": 1}').run()
    status, pods = cluster.status, cluster.pods
    for old in seen:
        cluster.step(snapshot=old)
    cluster.run()
    assert (cluster.status, cluster.pods) == (status, pods)
