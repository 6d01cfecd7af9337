"""Row: the API server or the operator ends in the middle of a deletion. The pod that was left is deleted again."""

import pytest

from tests.support.simulated_cluster.apiserver import stamp
from tests.support.simulated_cluster.builders import a_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tftraining_operator.plan.interrupted_deletions import PATIENCE


@pytest.fixture
def cluster() -> SimulatedCluster:
    """A gang whose worker-1 was deleted without a grace period, and is still there."""
    cluster = SimulatedCluster(a_job())
    cluster.settle()
    cluster.nodes.power_off("node-a", noticed=False)
    meta = cluster.api.pods[cluster.name("worker-1")]["metadata"]
    meta |= {"deletionTimestamp": stamp(cluster.now), "deletionGracePeriodSeconds": 0}
    return cluster


def deletions(cluster: SimulatedCluster) -> list[str]:
    return [each.name for each in cluster.plan().delete_pods]


def test_the_pod_is_deleted_again_after_a_while(cluster: SimulatedCluster) -> None:
    name = cluster.name("worker-1")
    assert name not in deletions(cluster), "the second write of the API server follows at once"
    assert cluster.plan().requeue_at == cluster.now + PATIENCE
    cluster.api.now += PATIENCE
    assert deletions(cluster).count(name) == 1
    assert cluster.plan().requeue_at == cluster.now + PATIENCE


def test_a_finalizer_is_given_its_time(cluster: SimulatedCluster) -> None:
    name = cluster.name("worker-1")
    cluster.api.pods[name]["metadata"]["finalizers"] = ["example.com/accounting"]
    cluster.api.now += PATIENCE
    assert name not in deletions(cluster)
