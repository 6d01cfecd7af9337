"""Disruptions. A pod that is ended from outside is no failure and costs no charge; disruptions have their own count and
the training continues. Endings that only look like disruptions are failures.
"""

from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.support.simulated_cluster.apiserver import stamp
from tests.support.simulated_cluster.builders import a_job
from tests.support.simulated_cluster.simulation import SimulatedCluster

Fault = Callable[[SimulatedCluster], object]
VICTIM = "mnist-worker-1"


def deleted(cluster: SimulatedCluster) -> None:
    """kubectl delete pod."""
    cluster.delete("worker-1")


def deleted_at_once(cluster: SimulatedCluster) -> None:
    """kubectl delete pod --force --grace-period=0."""
    cluster.kubelet.force_delete(VICTIM)


def deleted_and_left_with(code: int) -> Fault:
    """The program, told to stop, exits before the pod is gone."""

    def fault(cluster: SimulatedCluster) -> None:
        cluster.delete("worker-1").wait(2).exit("worker-1", code=code)

    return fault


def announced(reason: str) -> Fault:
    """The condition DisruptionTarget, some moments before anything is done about it."""
    return lambda cluster: cluster.kubelet.mark_disrupted(VICTIM, reason)


def announced_and_carried_out(reason: str) -> Fault:
    """The same, seen only after the program was killed."""

    def fault(cluster: SimulatedCluster) -> None:
        cluster.kubelet.mark_disrupted(VICTIM, reason)
        cluster.delete("worker-1").wait(3).exit("worker-1", code=137)

    return fault


def evicted_by_the_kubelet(cluster: SimulatedCluster) -> None:
    """The node is short of memory, disk or process ids."""
    cluster.kubelet.evict(VICTIM)


def ended_with(reason: str, message: str = "") -> Fault:
    """The kubelet ends the pod with a reason of its own."""

    def fault(cluster: SimulatedCluster) -> None:
        cluster.exit("worker-1", code=143)
        cluster.api.pods[VICTIM]["status"] |= {"reason": reason, "message": message}

    return fault


def not_admitted(reason: str) -> Fault:
    """The next kubelet does not take the pod that is to replace a deleted one; no container of it ever runs."""

    def fault(cluster: SimulatedCluster) -> None:
        cluster.kubelet.force_delete(VICTIM)
        cluster.settle()
        cluster.kubelet.remove_deleted()
        cluster.settle()
        pod = cluster.api.pods[VICTIM]
        pod["spec"]["nodeName"] = "node-a"
        pod["status"] = {"phase": "Failed", "reason": reason, "message": "Pod was rejected"}

    return fault


def found_dead(reason: str) -> Fault:
    """After a reboot of the node its kubelet finds the containers dead."""
    return lambda cluster: cluster.exit("worker-1", code=255 if reason == "Unknown" else 137, reason=reason)


DISRUPTIONS: dict[str, tuple[Fault, str, int]] = {
    "deletion": (deleted, "PodDeleted", 1),
    "forced deletion": (deleted_at_once, "PodDeleted", 1),
    "deletion, left politely": (deleted_and_left_with(0), "PodDeleted", 1),
    "deletion, killed": (deleted_and_left_with(137), "PodDeleted", 1),
    "deletion, exit code 1": (deleted_and_left_with(1), "PodDeleted", 1),
    "eviction API, drain": (announced_and_carried_out("EvictionByEvictionAPI"), "EvictionByEvictionAPI", 1),
    "eviction API, announced": (announced("EvictionByEvictionAPI"), "EvictionByEvictionAPI", 1),
    "preemption": (announced_and_carried_out("PreemptionByScheduler"), "PreemptionByScheduler", 1),
    "taint": (announced_and_carried_out("DeletionByTaintManager"), "DeletionByTaintManager", 1),
    "garbage collection": (announced_and_carried_out("DeletionByPodGC"), "DeletionByPodGC", 1),
    "eviction by the kubelet": (evicted_by_the_kubelet, "TerminationByKubelet", 1),
    "node shutdown": (ended_with("Terminated", "imminent node shutdown"), "Terminated", 1),
    "node shutdown, older kubelets": (ended_with("Shutdown"), "Shutdown", 1),
    "critical pod": (ended_with("Preempting"), "Preempting", 1),
    "reboot": (found_dead("ContainerStatusUnknown"), "ContainerStatusUnknown", 1),
    "reboot, containerd": (found_dead("Unknown"), "Unknown", 1),
} | {
    f"not admitted: {reason}": (not_admitted(reason), reason, 2)
    for reason in (
        "UnexpectedAdmissionError",
        "OutOfcpu",
        "OutOfmemory",
        "OutOfpods",
        "OutOfephemeral-storage",
        "OutOfnvidia.com/gpu",
        "NodeAffinity",
        "NodeShutdown",
        "NodePorts",
        "TopologyAffinityError",
        "InvalidNodeInfo",
    )
}


@pytest.mark.parametrize(("fault", "reason", "times"), DISRUPTIONS.values(), ids=DISRUPTIONS.keys())
def test_is_no_failure_has_its_own_count_and_the_training_goes_on(
    cluster: SimulatedCluster, fault: Fault, reason: str, times: int
) -> None:
    fault(cluster)
    cluster.run_timers()
    status, restarts, last = cluster.status, cluster.status.restarts, cluster.status.last_restart
    assert (status.phase, status.ready, status.failure) == ("Running", "2/2", None)
    assert (restarts.counted, restarts.budget_used, restarts.disruptions) == (0, 0, times)
    assert last is not None and last.reason == reason
    assert [note.type for note in cluster.events if note.reason == reason] == ["Normal"]


@pytest.mark.parametrize("fault", [each for each, *_ in DISRUPTIONS.values()], ids=DISRUPTIONS.keys())
def test_the_same_for_an_operator_that_was_down_meanwhile(cluster: SimulatedCluster, fault: Fault) -> None:
    fault(cluster)
    cluster.forget()
    cluster.wait(3600).run_timers()
    assert (cluster.status.phase, cluster.status.restarts.counted) == ("Running", 0)
    assert cluster.status.restarts.disruptions >= 1


OVER_ITS_LIMIT = "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi."
FAILURES: dict[str, tuple[Fault, str]] = {
    "over its own limit of storage": (ended_with("Evicted", OVER_ITS_LIMIT), "Evicted"),
    "over its own deadline": (ended_with("DeadlineExceeded"), "DeadlineExceeded"),
    "out of its memory": (lambda cluster: cluster.exit("worker-1", code=137, reason="OOMKilled"), "OOMKilled"),
    "not admitted: what the template asks for": (not_admitted("SysctlForbidden"), "SysctlForbidden"),
}


@pytest.mark.parametrize(("fault", "reason"), FAILURES.values(), ids=FAILURES.keys())
def test_what_only_looks_like_it_is_charged(cluster: SimulatedCluster, fault: Fault, reason: str) -> None:
    fault(cluster)
    cluster.run_timers()
    assert (cluster.status.phase, cluster.status.reason) == ("Failed", "MaxRestartsExceeded")
    assert cluster.status.failure is not None and cluster.status.failure.reason == reason
    assert cluster.status.message is not None and reason in cluster.status.message


@pytest.mark.parametrize("by_force", [False, True])
def test_all_pods_of_a_drained_node_are_one_disruption(cluster: SimulatedCluster, by_force: bool) -> None:
    if by_force:
        cluster.kubelet.force_delete("mnist-worker-0", VICTIM)
    else:
        cluster.delete("worker-0", "worker-1")
    cluster.run_timers()
    assert (cluster.status.phase, cluster.status.restarts.disruptions) == ("Running", 1)


def test_nor_are_they_more_when_the_drain_takes_one_after_the_other(cluster: SimulatedCluster) -> None:
    cluster.wait(5)
    began = cluster.now
    for pod in ("worker-1", "worker-0"):
        cluster.delete(pod).settle()
        cluster.wait(0.2)
    cluster.run_timers()
    restarts, last = cluster.status.restarts, cluster.status.last_restart
    assert (cluster.status.phase, restarts.disruptions, restarts.recreated, restarts.without_progress) == (
        "Running",
        1,
        1,
        1,
    )
    assert last is not None and (last.pod, last.time) == ("mnist-worker-1", began)
    assert (cluster.now - began).total_seconds() < 1, "nobody waits"


def test_a_disruption_of_what_was_made_for_the_restart_is_one_more(cluster: SimulatedCluster) -> None:
    cluster.wait(5)
    cluster.delete("worker-1").settle()
    cluster.kubelet.remove_deleted()
    cluster.settle()
    cluster.wait(2).kubelet.mark_disrupted("mnist-worker-1", "PreemptionByScheduler")
    cluster.settle()
    assert (cluster.status.phase, cluster.status.restarts.without_progress) == ("Restarting", 2)
    cluster.run_timers()
    assert (cluster.status.phase, cluster.status.restarts.disruptions) == ("Running", 2)


def test_one_disruption_after_the_other_waits_longer_and_never_fails(cluster: SimulatedCluster) -> None:
    waits = []
    for _ in range(9):
        before = cluster.now
        cluster.delete("worker-1").run_timers()
        waits.append((cluster.now - before).total_seconds())
    assert waits == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    restarts = cluster.status.restarts
    assert cluster.status.phase == "Running"
    assert (restarts.counted, restarts.disruptions, restarts.recreated, restarts.without_progress) == (0, 9, 9, 9)


def test_a_disruption_is_told_once_with_what_it_was(cluster: SimulatedCluster) -> None:
    cluster.kubelet.evict(VICTIM)
    cluster.run_timers()
    told = [note.message for note in cluster.events if note.reason == "TerminationByKubelet"]
    assert len(told) == 1
    assert told[0].startswith("worker-1 was disrupted: TerminationByKubelet (The node was low on resource: memory.)")


def test_a_condition_that_is_taken_back_is_no_disruption(cluster: SimulatedCluster) -> None:
    # The disruption controller does so two minutes after an eviction that was not carried out.
    target = {"type": "DisruptionTarget", "status": "False", "reason": "EvictionByEvictionAPI"}
    cluster.kubelet.condition(VICTIM, target | {"lastTransitionTime": stamp(cluster.now)})
    assert cluster.run().status.restarts.disruptions == 0


# --- without launchers: the whole gang is recreated


def disrupted(cluster: SimulatedCluster) -> bool:
    """Whether exactly one restart was made and none charged."""
    restarts = cluster.status.restarts
    return (restarts.counted, restarts.disruptions, cluster.status.attempt) == (0, 1, 2)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (deleted, "worker-1 was deleted; restarting the gang as attempt 2"),
        (deleted_at_once, "the pod of worker-1 is gone; restarting the gang as attempt 2"),
        (
            evicted_by_the_kubelet,
            "worker-1 was disrupted: TerminationByKubelet (The node was low on resource: memory.)",
        ),
    ],
)
def test_the_message_names_the_pod_and_the_cause(fault: Fault, message: str) -> None:
    cluster = SimulatedCluster(a_job().max_restarts(0)).run()
    fault(cluster)
    assert (cluster.settle().status.message or "").startswith(message)
    assert disrupted(cluster.run())


@pytest.mark.parametrize(
    ("fault", "seconds"), [(deleted, 0), (deleted, 2), (evicted_by_the_kubelet, 1), (deleted_at_once, 1)]
)
def test_failures_that_follow_a_disruption_are_not_charged(fault: Fault, seconds: float) -> None:
    cluster = SimulatedCluster(a_job().max_restarts(0)).run()
    fault(cluster)
    assert disrupted(cluster.wait(seconds).exit("worker-0").run())


def test_a_failure_before_a_later_deletion_is_charged() -> None:
    cluster = SimulatedCluster(a_job().workers(3)).run().exit("worker-1", code=3).wait(5).delete("worker-2").run()
    assert (cluster.status.restarts.counted, cluster.status.restarts.disruptions) == (1, 0)


@pytest.mark.parametrize("fault", [deleted, announced("EvictionByEvictionAPI")])
def test_a_failure_before_a_disruption_of_its_own_pod_is_charged(fault: Fault) -> None:
    # A side-car keeps the pod alive after the training container has failed.
    cluster = SimulatedCluster(a_job().beside(name="logs", image="logs:1")).run().exit("worker-1", code=3).wait(5)
    fault(cluster)
    assert cluster.settle().status.restarts.counted == 1


def test_an_evicted_pod_with_a_finalizer_is_still_evicted_when_it_is_deleted() -> None:
    cluster = SimulatedCluster(a_job()).run()
    cluster.kubelet.evict(VICTIM)
    deleted = cluster.now + timedelta(seconds=40)
    metadata = cluster.api.pods[VICTIM]["metadata"]
    metadata |= {"deletionTimestamp": deleted.isoformat(), "deletionGracePeriodSeconds": 30}
    assert disrupted(cluster.settle())


def test_a_deletion_during_the_start_is_a_disruption_too() -> None:
    cluster = SimulatedCluster(a_job()).settle()
    cluster.kubelet.start("mnist-worker-0")
    cluster.settle().delete("worker-0")
    assert disrupted(cluster.run())


def test_a_pod_lost_before_the_gang_was_complete_is_recreated_without_a_restart() -> None:
    cluster = SimulatedCluster(a_job())
    cluster.step()
    cluster.kubelet.force_delete(VICTIM)
    assert cluster.run().status.attempt == 1
    assert cluster.status.restarts.recreated == 0


def test_a_deletion_during_a_restart_is_an_incident_without_a_charge() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-1").run().delete("worker-0").run_timers()
    assert (cluster.status.restarts.counted, cluster.status.restarts.disruptions) == (1, 1)
    assert (cluster.status.phase, cluster.status.attempt) == ("Running", 3)


def test_a_deletion_of_a_pod_of_an_older_attempt_is_no_incident() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-1").settle().delete("worker-0").run()
    assert cluster.status.attempt == 2
    assert cluster.status.restarts.disruptions == 0
