"""A lost pod of a queued job: Kueue keeps its object, so its successor has another name, and the gang stays."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tftraining_api.model.names import Replica, member_of, pod_name, successor_of
from tftraining_operator.model.observed import Pod
from tftraining_operator.plan.kueue_successors import admits_successors, free_successors

EARLY = datetime(2026, 3, 1, tzinfo=UTC)
RESEARCH = {"kueue.x_k8s.io__queue_name": "research"}


def queued(job: JobBuilder | None = None) -> JobBuilder:
    return (job or a_launched_job()).labelled(**RESEARCH)


def trained(job: JobBuilder | None = None) -> SimulatedCluster:
    cluster = SimulatedCluster(queued(job)).run()
    assert cluster.status.phase == "Running"
    return cluster


def uids(cluster: SimulatedCluster) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in cluster.api.pods.items()}


def of_pod(cluster: SimulatedCluster, name: str) -> dict[str, Any]:
    return cluster.api.pods[cluster.name(name)]


def test_the_name_counts_and_says_which_member_it_is() -> None:
    assert pod_name("my-r1", Replica("worker", 3)) == "my-r1-worker-3"
    name = pod_name("my-r1", Replica("worker", 3), 12)
    assert (name, member_of("my-r1", name), successor_of(name)) == ("my-r1-worker-3-r12", "worker-3", 12)
    assert (member_of("my-r1", "my-r1-worker-3"), successor_of("my-r1-worker-3")) == ("worker-3", 0)


@pytest.mark.parametrize("how", ["deleted", "failed", "evicted"])
def test_a_lost_pod_is_followed_by_one_of_another_name_and_the_others_stay(how: str) -> None:
    cluster = trained(a_launched_job().workers(3))
    before, first = uids(cluster), of_pod(cluster, "worker-1")
    if how == "deleted":
        cluster.delete("worker-1")
    elif how == "evicted":
        cluster.kubelet.evict("mnist-worker-1")
    else:
        cluster.exit("worker-1", code=137, reason="OOMKilled")
    cluster.run_timers()
    assert cluster.pods == ["worker-0", "worker-1-r1", "worker-2"]
    after = uids(cluster)
    assert {name: after[name] for name in ("mnist-worker-0", "mnist-worker-2")}.items() <= before.items()
    assert (cluster.status.attempt, cluster.status.phase, cluster.status.ready) == (1, "Running", "3/3")
    assert cluster.status.successors == {"worker-1": 1}
    next_one = of_pod(cluster, "worker-1-r1")
    assert (next_one["spec"]["hostname"], next_one["spec"]["subdomain"]) == ("mnist-worker-1", "mnist")
    for field in ("hostname", "subdomain"):
        assert next_one["spec"][field] == first["spec"][field]
    last = cluster.status.last_restart
    assert last is not None and last.pod == "mnist-worker-1", "the pod that was lost"
    assert (cluster.status.restarts.counted, cluster.status.restarts.disruptions) == (
        (1, 0) if how == "failed" else (0, 1)
    )


def test_a_pod_lost_twice_is_followed_by_r2() -> None:
    cluster = trained()
    cluster.delete("worker-1").run_timers().delete("worker-1-r1").run_timers()
    assert cluster.pods == ["worker-0", "worker-1-r2"]
    assert (cluster.status.successors, cluster.status.restarts.disruptions) == ({"worker-1": 2}, 2)
    assert (cluster.status.phase, cluster.status.attempt) == ("Running", 1)


def test_the_successor_waits_until_the_lost_pod_has_ended() -> None:
    # Two programs would write the same backup, and Kueue would delete the successor as one too many.
    cluster = trained().delete("worker-1").settle()
    assert cluster.pods == ["worker-0", "worker-1"]
    cluster.kubelet.remove_deleted()
    assert of_pod(cluster, "worker-1")["status"]["phase"] == "Failed"
    assert cluster.settle().pods == ["worker-0", "worker-1", "worker-1-r1"]
    cluster.kueue.act()
    assert cluster.pods == ["worker-0", "worker-1-r1"]


@pytest.mark.parametrize("writes", range(4))
def test_a_crash_between_the_status_and_the_pod_finds_the_same_name(writes: int) -> None:
    cluster = trained().exit("worker-1", code=137)
    cluster.step(writes=writes)
    cluster.run_timers()
    assert cluster.pods == ["worker-0", "worker-1-r1"]
    assert [each for each in cluster.api.writes if each.startswith("create pod/mnist-worker-1-")] == [
        "create pod/mnist-worker-1-r1"
    ]


def test_an_older_definition_that_drops_the_field_makes_no_loop() -> None:
    cluster = trained()
    put = cluster.api.put_status

    def dropping(version: str, status: Any) -> None:
        put(version, status)
        cluster.api.job["status"].pop("successors", None)

    cluster.api.put_status = dropping  # type: ignore[method-assign]
    for lost in ("worker-1", "worker-1-r1", "worker-0"):
        cluster.delete(lost).run_timers()
        assert (cluster.status.phase, cluster.status.attempt, cluster.status.successors) == ("Running", 1, {})
        written = len(cluster.api.writes)
        assert not cluster.wait(1).step()
        assert len(cluster.api.writes) == written
    created = [each for each in cluster.api.writes if each.startswith("create pod/")]
    assert len(created) == len(set(created)) == 5


def test_the_chief_is_followed_too_and_its_new_launcher_is_asked() -> None:
    cluster = trained().delete("worker-0").run_timers()
    assert cluster.pods == ["worker-0-r1", "worker-1"]
    assert cluster.launcher_report is not None
    assert cluster.launcher_report.pod_uid == of_pod(cluster, "worker-0-r1")["metadata"]["uid"]
    cluster.launchers.crash("worker-0", 1)
    cluster.run_timers()
    last = cluster.status.last_restart
    assert last is not None and last.pod == "mnist-worker-0-r1", "the pod that the member has now"
    cluster.launchers.finish()
    assert cluster.run().status.phase == "Succeeded"


@pytest.mark.parametrize("mode", ["InPlace", "Recreate"])
def test_a_worker_that_restarts_alone_does_so_in_a_queue(mode: str) -> None:
    cluster = trained(a_job().role("ps").chief().set("restartPolicy.mode", mode))
    before = uids(cluster)
    cluster.exit("worker-1", code=137).run()
    assert (cluster.status.attempt, cluster.attempts()) == (1, {"1"})
    assert cluster.pods == ["chief-0", "ps-0", "worker-0", "worker-1-r1"]
    assert before.items() >= {name: uid for name, uid in uids(cluster).items() if name in before}.items()


def test_two_that_are_lost_together_have_a_successor_each() -> None:
    cluster = trained(a_launched_job().workers(3)).delete("worker-1", "worker-2").run_timers()
    assert cluster.pods == ["worker-0", "worker-1-r1", "worker-2-r1"]
    assert cluster.status.restarts.disruptions == 1


def test_a_gang_of_which_nobody_runs_queues_anew() -> None:
    # Kueue has declared the group finished: it admits nobody into it any more.
    cluster = trained().delete("worker-0", "worker-1").run_timers()
    assert (cluster.status.attempt, cluster.pods) == (2, ["worker-0", "worker-1"])
    assert (cluster.status.successors, cluster.status.phase) == ({}, "Running")


def test_the_loss_of_the_last_one_makes_a_larger_restart_of_the_same() -> None:
    cluster = trained().wait(5).delete("worker-1").settle().delete("worker-0").run_timers()
    assert (cluster.status.attempt, cluster.status.phase) == (2, "Running")
    assert cluster.status.restarts.disruptions == 1


def test_a_pod_that_ends_politely_costs_its_gang() -> None:
    # Kueue counts a pod that ended with 0 among those that have done their part, and gives its quota back.
    cluster = trained()
    cluster.kubelet.mark_disrupted("mnist-worker-1", "EvictionByEvictionAPI")
    cluster.delete("worker-1").settle().exit("worker-1", code=0).settle()
    assert (cluster.status.phase, cluster.status.reason) == ("Restarting", "EvictionByEvictionAPI")
    cluster.run_timers()
    assert (cluster.status.attempt, cluster.status.phase, cluster.status.restarts.disruptions) == (2, "Running", 1)


def test_a_successor_that_waits_for_a_finished_group_costs_its_gang() -> None:
    cluster = trained(a_job().workers(3).set("restartPolicy.scope", "Pod").set("successPolicy", "AllWorkers"))
    cluster.exit("worker-1", code=137).step(writes=1)
    cluster.exit("worker-0", "worker-2", code=0).kueue.act()
    cluster.run_timers()
    assert "create pod/mnist-worker-1-r1" in cluster.api.writes, "it comes too late"
    assert (cluster.status.attempt, cluster.status.phase) == (2, "Running")


def test_a_preempted_gang_queues_anew_as_a_whole() -> None:
    cluster = trained(a_launched_job().workers(3))
    said = {"type": "TerminationTarget", "status": "True", "reason": "WorkloadEvictedDueToPreempted"}
    cluster.kubelet.condition("mnist-worker-1", said)
    cluster.delete("worker-1").settle()
    assert (cluster.status.attempt, cluster.status.phase) == (2, "Restarting")


def test_a_node_that_falls_silent_costs_only_its_own_pod() -> None:
    cluster = SimulatedCluster(queued())
    cluster.nodes.add("node-b")
    cluster.run().nodes.power_off("node-b")
    (lost,) = [name for name, pod in cluster.api.pods.items() if pod["spec"]["nodeName"] == "node-b"]
    cluster.run().wait(61).run_timers()
    assert (cluster.status.attempt, cluster.status.phase) == (1, "Running")
    assert lost not in cluster.api.pods and f"{lost}-r1" in cluster.api.pods
    assert f"end pod/{lost}" in cluster.api.writes


def test_a_new_attempt_begins_with_plain_names() -> None:
    cluster = trained().delete("worker-1").run_timers()
    cluster.api.edit("replicaSpecs.worker.replicas", 3)
    cluster.run_timers()
    assert (cluster.status.attempt, cluster.pods) == (2, ["worker-0", "worker-1", "worker-2"])
    assert cluster.status.successors == {}


def test_a_suspension_begins_with_plain_names() -> None:
    cluster = trained().delete("worker-1").run_timers()
    cluster.api.edit("runPolicy.suspend", True)
    cluster.run()
    cluster.api.edit("runPolicy.suspend", False)
    assert cluster.run_timers().pods == ["worker-0", "worker-1"]


def test_a_job_outside_a_queue_keeps_its_names() -> None:
    cluster = SimulatedCluster(a_launched_job()).run().delete("worker-1").run_timers()
    assert cluster.pods == ["worker-0", "worker-1"] and cluster.status.successors == {}


def test_a_pod_outside_the_group_stands_for_nobody() -> None:
    lost = Pod("j-worker-1", "b", 1, EARLY, queue_group="g", phase="Failed")
    outside = Pod("j-worker-0", "a", 1, EARLY, phase="Running")
    assert not admits_successors([outside, lost], [lost])


def test_the_number_is_above_that_of_every_pod_that_is_left() -> None:
    lost = [
        Pod(pod_name("j", replica, number), str(number), 1, EARLY, replica=replica, queue_group="g", successor=number)
        for replica, number in ((Replica("worker", 1), 2), (Replica("worker", 1), 10), (Replica("worker", 2), 0))
    ]
    assert free_successors({"worker-2": 3}, lost) == {"worker-1": 11, "worker-2": 3}
