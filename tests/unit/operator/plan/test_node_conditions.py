"""Pods leave a node with a listed condition: which, when, how often, in what order, and what is told of it."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tests.support.simulated_cluster.suspension import suspend
from tests.unit.operator.plan.test_avoided_nodes import avoided, running, terms
from tests.unit.operator.plan.test_kueue_successors import queued
from tests.unit.operator.plan.test_node_loss import on_two_nodes
from tftraining_api.model.spec import Manifest

TERM = {
    "weight": 100,
    "preference": {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-b"]}]},
}


@pytest.fixture
def cluster() -> SimulatedCluster:
    """Two workers that have trained for a minute, worker-1 on node-b."""
    return on_two_nodes(a_launched_job().max_restarts(0)).wait(60)


def break_node(cluster: SimulatedCluster, ahead: float = 0) -> None:
    """A detector finds an error on node-b, by a clock that is so many seconds ahead; that second passes."""
    cluster.nodes.set_condition("node-b", ahead=ahead)
    cluster.wait(1)


def uids(cluster: SimulatedCluster) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in cluster.api.pods.items()}


def deleting(cluster: SimulatedCluster) -> dict[str, int]:
    """The grace periods of the pods that are being deleted, by their names without the job's."""
    pods = {name.removeprefix("mnist-"): pod["metadata"] for name, pod in cluster.api.pods.items()}
    return {name: meta["deletionGracePeriodSeconds"] for name, meta in pods.items() if "deletionTimestamp" in meta}


def pod(cluster: SimulatedCluster, name: str = "worker-1") -> Manifest:
    return cluster.api.pods[cluster.name(name)]


def test_a_pod_leaves_within_its_own_grace_period_free_of_charge_and_its_successor_avoids_the_node(
    cluster: SimulatedCluster,
) -> None:
    break_node(cluster)
    cluster.settle()
    words = "worker-1 left its node (node-b has GpuEccError since 2026-03-01T12:01:00Z: 2 errors)"
    status = cluster.status
    assert (status.phase, status.reason) == ("Restarting", "NodeCondition")
    assert (status.message or "").startswith(f"{words}; recreating its pod; other members are waiting; new pods avoid")
    assert [(each.type, each.reason) for each in cluster.events] == [("Normal", "NodeCondition")]
    assert deleting(cluster) == {"worker-1": pod(cluster)["spec"]["terminationGracePeriodSeconds"]}
    (node,) = status.avoided_nodes
    assert (node.name, node.replica, node.why) == ("node-b", "worker-1", words)
    assert node.until - cluster.now == timedelta(hours=24)
    cluster.run_timers()
    restarts, last = cluster.status.restarts, cluster.status.last_restart
    assert (cluster.status.phase, terms(cluster)) == ("Running", [TERM])
    assert (restarts.counted, restarts.disruptions, restarts.recreated) == (0, 1, 1)
    assert last is not None and (last.pod, last.reason) == ("mnist-worker-1", "NodeCondition")


def test_a_crash_before_the_deletion_costs_neither_the_grace_period_nor_a_second_departure(
    cluster: SimulatedCluster,
) -> None:
    break_node(cluster)
    cluster.step(writes=1)
    assert (cluster.status.reason, deleting(cluster)) == ("NodeCondition", {})
    cluster.departs_from = cluster.now + timedelta(minutes=1)
    cluster.settle()
    assert deleting(cluster) == {"worker-1": pod(cluster)["spec"]["terminationGracePeriodSeconds"]}
    assert cluster.run_timers().status.restarts.disruptions == 1


@pytest.mark.parametrize("ahead", [0, 90])
def test_once_for_each_transition_also_where_the_successor_is_on_that_node(
    cluster: SimulatedCluster, ahead: float
) -> None:
    """A node whose clock is ahead is left when that time has come: only then is each new pod younger."""
    cluster.nodes.pick_node = lambda: "node-b"  # type: ignore[method-assign]
    break_node(cluster, ahead)
    old = uids(cluster)
    assert (uids(cluster.run()) == old) == (ahead > 0)
    new = uids(cluster.run_timers())
    assert new["mnist-worker-1"] != old["mnist-worker-1"] and pod(cluster)["spec"]["nodeName"] == "node-b"
    assert cluster.status.avoided_nodes[0].used_by == "worker-1"
    cluster.forget()
    assert uids(cluster.wait(3600).run_timers()) == new, "another operator does nothing more"
    cluster.nodes.set_condition("node-b", "False")
    assert uids(cluster.wait(60).run_timers()) == new
    break_node(cluster)
    assert uids(cluster.run_timers()) != new
    assert (cluster.status.restarts.disruptions, avoided(cluster)) == (2, ["node-b"])


def test_a_pod_of_the_second_of_the_transition_leaves_once() -> None:
    cluster = on_two_nodes(a_launched_job())
    cluster.nodes.set_condition("node-b")
    cluster.api.nodes["node-b"]["status"]["conditions"][-1]["message"] = ""
    assert cluster.wait(1).run_timers().status.restarts.disruptions == 1
    (node,) = cluster.status.avoided_nodes
    assert node.why == "worker-1 left its node (node-b has GpuEccError since 2026-03-01T12:00:00Z)"
    assert not cluster.wait(60).step()


def test_one_member_after_the_other_each_when_all_train_again(cluster: SimulatedCluster) -> None:
    pod(cluster, "worker-0")["spec"]["nodeName"] = "node-b"
    old = uids(cluster)
    break_node(cluster)
    cluster.settle()
    assert list(deleting(cluster)) == ["worker-0"]
    cluster.kubelet.remove_deleted()
    cluster.settle()
    assert uids(cluster)["mnist-worker-1"] == old["mnist-worker-1"] and deleting(cluster) == {}
    new = uids(cluster.run_timers())
    assert not new.items() & old.items()
    assert cluster.status.restarts.disruptions == 2
    assert not cluster.wait(60).step(), "and nothing more"


def test_a_pod_waits_for_its_turn_in_the_cluster(cluster: SimulatedCluster) -> None:
    break_node(cluster)
    cluster.departs_from = cluster.now + timedelta(seconds=40)
    assert not cluster.step()
    assert (cluster.timer, cluster.plan().departs) == (cluster.departs_from, False)
    cluster.api.now = cluster.departs_from
    assert cluster.plan().departs
    assert cluster.run_timers().status.restarts.disruptions == 1


def old_pod_of_a_finished_program(cluster: SimulatedCluster) -> None:
    cluster.exit("worker-1", code=0)


def without_member(cluster: SimulatedCluster) -> None:
    cluster.delete("worker-0").settle()


def unknown(cluster: SimulatedCluster) -> None:
    cluster.nodes.set_condition("node-b", "Unknown")


def none(_: SimulatedCluster) -> None:
    pass


def to_suspend(cluster: SimulatedCluster) -> None:
    suspend(cluster)


@pytest.mark.parametrize(
    ("job", "change"),
    [
        (a_launched_job(), old_pod_of_a_finished_program),
        (a_launched_job(), without_member),
        (a_launched_job(), unknown),
        (a_launched_job(), to_suspend),
        (queued(), none),
    ],
)
def test_who_stays(job: JobBuilder, change: Callable[[SimulatedCluster], None]) -> None:
    cluster = on_two_nodes(job).wait(60)
    assert cluster.status.phase == "Running"
    break_node(cluster)
    change(cluster)
    assert not cluster.plan().departs
    cluster.settle()
    assert avoided(cluster) == [] and cluster.status.reason != "NodeCondition"


def test_without_launchers_the_gang_restarts_from_its_storage_once() -> None:
    cluster = on_two_nodes(a_job().max_restarts(0)).wait(60)
    break_node(cluster)
    cluster.run_timers()
    status = cluster.status
    assert (status.phase, status.attempt, status.restarts.disruptions) == ("Running", 2, 1)
    assert (avoided(cluster), terms(cluster)) == (["node-b"], [TERM])


def test_an_evaluator_leaves_too_and_the_gang_trains_on() -> None:
    cluster = running(a_launched_job().set("replicaSpecs.evaluator", {"replicas": 1}))
    cluster.nodes.add("node-b")
    pod(cluster, "evaluator-0")["spec"]["nodeName"] = "node-b"
    old = uids(cluster.wait(60))
    break_node(cluster)
    cluster.settle()
    assert (cluster.status.phase, avoided(cluster), list(deleting(cluster))) == ("Running", ["node-b"], ["evaluator-0"])
    new = uids(cluster.run_timers())
    assert [name for name, uid in new.items() if old[name] != uid] == ["mnist-evaluator-0"]
    assert terms(cluster, "evaluator-0") == [TERM]
    assert not cluster.wait(60).step()
