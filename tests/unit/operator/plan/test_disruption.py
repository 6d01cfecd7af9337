"""Somebody or something ends a pod that did nothing wrong: the gang starts again, and nothing is charged."""

from datetime import timedelta

import pytest

from tests.support.simulated_cluster.builders import a_job
from tests.support.simulated_cluster.simulation import SimulatedCluster


def disrupted(cluster: SimulatedCluster) -> bool:
    """Whether exactly one restart was made and none charged."""
    restarts = cluster.status.restarts
    return (restarts.counted, restarts.disruptions, cluster.status.attempt) == (0, 1, 2)


def test_a_deleted_pod() -> None:
    cluster = SimulatedCluster(a_job().max_restarts(0)).run().delete("worker-1").settle()
    assert cluster.status.message == "worker-1 was deleted; restarting the gang as attempt 2"
    assert (cluster.events[-1].type, cluster.events[-1].reason) == ("Normal", "PodDeleted")
    assert cluster.run().status.phase == "Running"
    assert disrupted(cluster)
    assert cluster.status.failure is None


def test_an_evicted_pod() -> None:
    cluster = SimulatedCluster(a_job().max_restarts(0)).run()
    cluster.kubelet.evict("mnist-worker-1")
    cluster.settle()
    message = "worker-1 was disrupted: TerminationByKubelet (The node was low on resource: memory.)"
    assert cluster.status.message is not None and cluster.status.message.startswith(message)
    assert cluster.run().status.phase == "Running"
    assert disrupted(cluster)


def test_a_vanished_pod() -> None:
    cluster = SimulatedCluster(a_job().max_restarts(0)).run()
    cluster.kubelet.force_delete("mnist-worker-1")
    cluster.settle()
    assert cluster.status.message == "the pod of worker-1 is gone; restarting the gang as attempt 2"
    assert cluster.run().status.phase == "Running"
    assert disrupted(cluster)


def test_the_whole_gang_vanished() -> None:
    cluster = SimulatedCluster(a_job().max_restarts(0)).run()
    cluster.kubelet.force_delete("mnist-worker-0", "mnist-worker-1")
    assert cluster.run().status.phase == "Running"
    assert disrupted(cluster)


def test_a_pod_of_a_drained_node_that_still_runs() -> None:
    cluster = SimulatedCluster(a_job()).run()
    cluster.kubelet.mark_disrupted("mnist-worker-1", "PreemptionByScheduler")
    cluster.settle()
    assert cluster.status.reason == "PreemptionByScheduler"
    assert disrupted(cluster.run())


@pytest.mark.parametrize("reason", ["ContainerStatusUnknown", "Unknown"])
def test_a_container_that_a_reboot_of_its_node_took(reason: str) -> None:
    # What the kubelet and containerd report of containers that they find dead after the node came back.
    cluster = SimulatedCluster(a_job().max_restarts(0)).run().exit("worker-1", code=137, reason=reason).run()
    assert disrupted(cluster)


def test_the_failures_that_follow_a_deletion_are_not_charged() -> None:
    cluster = SimulatedCluster(a_job().max_restarts(0)).run().delete("worker-1").wait(2).exit("worker-0")
    assert disrupted(cluster.run())


def test_a_failure_in_the_second_of_a_deletion_is_not_charged() -> None:
    cluster = SimulatedCluster(a_job().max_restarts(0)).run().delete("worker-1").exit("worker-0")
    assert disrupted(cluster.run())


def test_the_failures_that_follow_an_eviction_are_not_charged() -> None:
    cluster = SimulatedCluster(a_job().max_restarts(0)).run()
    cluster.kubelet.evict("mnist-worker-1")
    cluster.wait(1).exit("worker-0")
    assert disrupted(cluster.run())


def test_the_failures_that_follow_a_forced_deletion_are_not_charged() -> None:
    cluster = SimulatedCluster(a_job().max_restarts(0)).run()
    cluster.kubelet.force_delete("mnist-worker-1")
    assert disrupted(cluster.wait(1).exit("worker-0").run())


def test_a_failure_before_a_later_deletion_is_charged() -> None:
    cluster = SimulatedCluster(a_job().workers(3)).run().exit("worker-1", code=3).wait(5).delete("worker-2").run()
    assert (cluster.status.restarts.counted, cluster.status.restarts.disruptions) == (1, 0)


def test_a_failure_before_its_own_pods_deletion_is_charged() -> None:
    # A side-car keeps the pod alive after the training container has failed.
    cluster = SimulatedCluster(a_job().beside(name="logs", image="logs:1")).run()
    cluster.exit("worker-1", code=3).wait(5).delete("worker-1").settle()
    assert cluster.status.restarts.counted == 1


def test_a_failure_before_its_own_pods_eviction_is_charged() -> None:
    cluster = SimulatedCluster(a_job().beside(name="logs", image="logs:1")).run().exit("worker-1", code=3).wait(5)
    cluster.kubelet.mark_disrupted("mnist-worker-1", "EvictionByEvictionAPI")
    cluster.settle()
    assert cluster.status.restarts.counted == 1


def test_an_evicted_pod_that_something_holds_back_when_it_is_deleted_is_still_evicted() -> None:
    cluster = SimulatedCluster(a_job()).run()
    cluster.kubelet.evict("mnist-worker-1")
    deleted = cluster.now + timedelta(seconds=40)
    metadata = cluster.api.pods["mnist-worker-1"]["metadata"]
    metadata |= {"deletionTimestamp": deleted.isoformat(), "deletionGracePeriodSeconds": 30}
    cluster.settle()
    assert disrupted(cluster)


def test_a_pod_that_leaves_politely_when_it_is_deleted_has_not_finished() -> None:
    cluster = SimulatedCluster(a_job()).run().delete("worker-0").wait(1).exit("worker-0", code=0).settle()
    assert cluster.status.phase == "Restarting"
    assert disrupted(cluster)


def test_a_deletion_during_the_start_is_a_disruption_too() -> None:
    cluster = SimulatedCluster(a_job()).settle()
    cluster.kubelet.start("mnist-worker-0")
    cluster.settle().delete("worker-0")
    assert disrupted(cluster.run())


def test_a_pod_that_vanishes_before_the_gang_was_seen_whole_is_simply_made_again() -> None:
    cluster = SimulatedCluster(a_job())
    cluster.step()
    cluster.kubelet.force_delete("mnist-worker-1")
    assert cluster.run().status.attempt == 1
    assert cluster.status.restarts.recreated == 0


def test_a_deletion_during_a_restart_is_an_incident_without_a_charge() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-1").run().delete("worker-0").run_timers()
    assert (cluster.status.restarts.counted, cluster.status.restarts.disruptions) == (1, 1)
    assert (cluster.status.phase, cluster.status.attempt) == ("Running", 3)


def test_deleting_pods_of_an_older_attempt_is_no_incident() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-1").settle().delete("worker-0").run()
    assert cluster.status.attempt == 2
    assert cluster.status.restarts.disruptions == 0
