"""A decision takes work in proportion to the gang, whatever has happened to it. Counted in calls, not in time."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from tests.support.simulated_cluster.builders import a_launched_job
from tests.support.simulated_cluster.simulation import IMAGE, SimulatedCluster
from tftraining_operator.plan.planner import plan


def all_train(cluster: SimulatedCluster) -> None:
    """Nothing happens to it."""


def half_lost(cluster: SimulatedCluster) -> None:
    cluster.kubelet.force_delete(*sorted(cluster.api.pods)[1::2])


def successors_on_their_way(cluster: SimulatedCluster) -> None:
    half_lost(cluster)
    cluster.settle()


def half_deleted(cluster: SimulatedCluster) -> None:
    for name in sorted(cluster.api.pods)[1::2]:
        cluster.api.delete_pod(name, 30)


def node_gone(cluster: SimulatedCluster) -> None:
    cluster.nodes.remove("node-a")


def smaller(cluster: SimulatedCluster) -> None:
    workers = cluster.api.job["spec"]["replicaSpecs"]["worker"]["replicas"]
    cluster.api.edit("replicaSpecs.worker.replicas", workers // 2)


def work_for(workers: int, happen: Callable[[SimulatedCluster], None]) -> int:
    """How many functions are called for the decision."""
    cluster = SimulatedCluster(a_launched_job().workers(workers)).run()
    happen(cluster)
    job, seen = cluster.observe(cluster.api.snapshot())
    calls = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        plan(job, seen, cluster.now, IMAGE)
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize("happen", [all_train, half_lost, successors_on_their_way, half_deleted, node_gone, smaller])
def test_twice_the_gang_is_twice_the_work(happen: Callable[[SimulatedCluster], None]) -> None:
    small, large = work_for(40, happen), work_for(80, happen)
    assert large < 2.2 * small
    assert large - small < 40 * 100, "calls a worker"
