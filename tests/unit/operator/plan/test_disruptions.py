"""Disruptions. A pod that is ended from outside is no failure and costs no charge; disruptions have their own count and
the training continues. Endings that only look like disruptions are failures.
"""

from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.support.simulated_cluster.apiserver import stamp
from tests.support.simulated_cluster.builders import a_job
from tests.support.simulated_cluster.simulation import World

Fault = Callable[[World], object]
VICTIM = "mnist-worker-1"


def deleted(world: World) -> None:
    """kubectl delete pod."""
    world.delete("worker-1")


def deleted_at_once(world: World) -> None:
    """kubectl delete pod --force --grace-period=0."""
    world.kubelet.lose(VICTIM)


def deleted_and_left_with(code: int) -> Fault:
    """The program, told to stop, exits before the pod is gone."""

    def fault(world: World) -> None:
        world.delete("worker-1").wait(2).exit("worker-1", code=code)

    return fault


def announced(reason: str) -> Fault:
    """The condition DisruptionTarget, some moments before anything is done about it."""
    return lambda world: world.kubelet.mark_disrupted(VICTIM, reason)


def announced_and_carried_out(reason: str) -> Fault:
    """The same, seen only after the program was killed."""

    def fault(world: World) -> None:
        world.kubelet.mark_disrupted(VICTIM, reason)
        world.delete("worker-1").wait(3).exit("worker-1", code=137)

    return fault


def evicted_by_the_kubelet(world: World) -> None:
    """The node is short of memory, disk or process ids."""
    world.kubelet.evict(VICTIM)


def ended_with(reason: str, message: str = "") -> Fault:
    """The kubelet ends the pod with a reason of its own."""

    def fault(world: World) -> None:
        world.exit("worker-1", code=143)
        world.api.pods[VICTIM]["status"] |= {"reason": reason, "message": message}

    return fault


def not_admitted(reason: str) -> Fault:
    """The next kubelet does not take the pod that is to replace a deleted one; no container of it ever runs."""

    def fault(world: World) -> None:
        world.kubelet.lose(VICTIM)
        world.settle()
        world.kubelet.remove_deleted()
        world.settle()
        pod = world.api.pods[VICTIM]
        pod["spec"]["nodeName"] = "node-a"
        pod["status"] = {"phase": "Failed", "reason": reason, "message": "Pod was rejected"}

    return fault


def found_dead(reason: str) -> Fault:
    """After a reboot of the node its kubelet finds the containers dead."""
    return lambda world: world.exit("worker-1", code=255 if reason == "Unknown" else 137, reason=reason)


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
    world: World, fault: Fault, reason: str, times: int
) -> None:
    fault(world)
    world.run_timers()
    status, restarts, last = world.status, world.status.restarts, world.status.last_restart
    assert (status.phase, status.ready, status.failure) == ("Running", "2/2", None)
    assert (restarts.counted, restarts.budget_used, restarts.disruptions) == (0, 0, times)
    assert last is not None and last.reason == reason
    assert [note.type for note in world.events if note.reason == reason] == ["Normal"]


@pytest.mark.parametrize("fault", [each for each, *_ in DISRUPTIONS.values()], ids=DISRUPTIONS.keys())
def test_the_same_for_an_operator_that_was_down_meanwhile(world: World, fault: Fault) -> None:
    fault(world)
    world.forget()
    world.wait(3600).run_timers()
    assert (world.status.phase, world.status.restarts.counted) == ("Running", 0)
    assert world.status.restarts.disruptions >= 1


OVER_ITS_LIMIT = "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi."
FAILURES: dict[str, tuple[Fault, str]] = {
    "over its own limit of storage": (ended_with("Evicted", OVER_ITS_LIMIT), "Evicted"),
    "over its own deadline": (ended_with("DeadlineExceeded"), "DeadlineExceeded"),
    "out of its memory": (lambda world: world.exit("worker-1", code=137, reason="OOMKilled"), "OOMKilled"),
    "not admitted: what the template asks for": (not_admitted("SysctlForbidden"), "SysctlForbidden"),
}


@pytest.mark.parametrize(("fault", "reason"), FAILURES.values(), ids=FAILURES.keys())
def test_what_only_looks_like_it_is_charged(world: World, fault: Fault, reason: str) -> None:
    fault(world)
    world.run_timers()
    assert (world.status.phase, world.status.reason) == ("Failed", "MaxRestartsExceeded")
    assert world.status.failure is not None and world.status.failure.reason == reason
    assert world.status.message is not None and reason in world.status.message


@pytest.mark.parametrize("by_force", [False, True])
def test_all_pods_of_a_drained_node_are_one_disruption(world: World, by_force: bool) -> None:
    if by_force:
        world.kubelet.lose("mnist-worker-0", VICTIM)
    else:
        world.delete("worker-0", "worker-1")
    world.run_timers()
    assert (world.status.phase, world.status.restarts.disruptions) == ("Running", 1)


def test_nor_are_they_more_when_the_drain_takes_one_after_the_other(world: World) -> None:
    world.wait(5)
    began = world.now
    for pod in ("worker-1", "worker-0"):
        world.delete(pod).settle()
        world.wait(0.2)
    world.run_timers()
    restarts, last = world.status.restarts, world.status.last_restart
    assert (world.status.phase, restarts.disruptions, restarts.recreated, restarts.without_progress) == (
        "Running",
        1,
        1,
        1,
    )
    assert last is not None and (last.pod, last.time) == ("mnist-worker-1", began)
    assert (world.now - began).total_seconds() < 1, "nobody waits"


def test_a_disruption_of_what_was_made_for_the_restart_is_one_more(world: World) -> None:
    world.wait(5)
    world.delete("worker-1").settle()
    world.kubelet.remove_deleted()
    world.settle()
    world.wait(2).kubelet.mark_disrupted("mnist-worker-1", "PreemptionByScheduler")
    world.settle()
    assert (world.status.phase, world.status.restarts.without_progress) == ("Restarting", 2)
    world.run_timers()
    assert (world.status.phase, world.status.restarts.disruptions) == ("Running", 2)


def test_one_disruption_after_the_other_waits_longer_and_never_fails(world: World) -> None:
    waits = []
    for _ in range(9):
        before = world.now
        world.delete("worker-1").run_timers()
        waits.append((world.now - before).total_seconds())
    assert waits == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    restarts = world.status.restarts
    assert world.status.phase == "Running"
    assert (restarts.counted, restarts.disruptions, restarts.recreated, restarts.without_progress) == (0, 9, 9, 9)


def test_a_disruption_is_told_once_with_what_it_was(world: World) -> None:
    world.kubelet.evict(VICTIM)
    world.run_timers()
    told = [note.message for note in world.events if note.reason == "TerminationByKubelet"]
    assert len(told) == 1
    assert told[0].startswith("worker-1 was disrupted: TerminationByKubelet (The node was low on resource: memory.)")


def test_a_condition_that_is_taken_back_is_no_disruption(world: World) -> None:
    # The disruption controller does so two minutes after an eviction that was not carried out.
    target = {"type": "DisruptionTarget", "status": "False", "reason": "EvictionByEvictionAPI"}
    world.kubelet.condition(VICTIM, target | {"lastTransitionTime": stamp(world.now)})
    assert world.run().status.restarts.disruptions == 0


# --- without launchers: the whole gang is recreated


def disrupted(world: World) -> bool:
    """Whether exactly one restart was made and none charged."""
    restarts = world.status.restarts
    return (restarts.counted, restarts.disruptions, world.status.attempt) == (0, 1, 2)


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
    world = World(a_job().max_restarts(0)).run()
    fault(world)
    assert (world.settle().status.message or "").startswith(message)
    assert disrupted(world.run())


@pytest.mark.parametrize(
    ("fault", "seconds"), [(deleted, 0), (deleted, 2), (evicted_by_the_kubelet, 1), (deleted_at_once, 1)]
)
def test_failures_that_follow_a_disruption_are_not_charged(fault: Fault, seconds: float) -> None:
    world = World(a_job().max_restarts(0)).run()
    fault(world)
    assert disrupted(world.wait(seconds).exit("worker-0").run())


def test_a_failure_before_a_later_deletion_is_charged() -> None:
    world = World(a_job().workers(3)).run().exit("worker-1", code=3).wait(5).delete("worker-2").run()
    assert (world.status.restarts.counted, world.status.restarts.disruptions) == (1, 0)


@pytest.mark.parametrize("fault", [deleted, announced("EvictionByEvictionAPI")])
def test_a_failure_before_a_disruption_of_its_own_pod_is_charged(fault: Fault) -> None:
    # A side-car keeps the pod alive after the training container has failed.
    world = World(a_job().beside(name="logs", image="logs:1")).run().exit("worker-1", code=3).wait(5)
    fault(world)
    assert world.settle().status.restarts.counted == 1


def test_an_evicted_pod_with_a_finalizer_is_still_evicted_when_it_is_deleted() -> None:
    world = World(a_job()).run()
    world.kubelet.evict(VICTIM)
    deleted = world.now + timedelta(seconds=40)
    metadata = world.api.pods[VICTIM]["metadata"]
    metadata |= {"deletionTimestamp": deleted.isoformat(), "deletionGracePeriodSeconds": 30}
    assert disrupted(world.settle())


def test_a_deletion_during_the_start_is_a_disruption_too() -> None:
    world = World(a_job()).settle()
    world.kubelet.start("mnist-worker-0")
    world.settle().delete("worker-0")
    assert disrupted(world.run())


def test_a_pod_lost_before_the_gang_was_complete_is_recreated_without_a_restart() -> None:
    world = World(a_job())
    world.step()
    world.kubelet.lose(VICTIM)
    assert world.run().status.attempt == 1
    assert world.status.restarts.recreated == 0


def test_a_deletion_during_a_restart_is_an_incident_without_a_charge() -> None:
    world = World(a_job()).run().exit("worker-1").run().delete("worker-0").run_timers()
    assert (world.status.restarts.counted, world.status.restarts.disruptions) == (1, 1)
    assert (world.status.phase, world.status.attempt) == ("Running", 3)


def test_a_deletion_of_a_pod_of_an_older_attempt_is_no_incident() -> None:
    world = World(a_job()).run().exit("worker-1").settle().delete("worker-0").run()
    assert world.status.attempt == 2
    assert world.status.restarts.disruptions == 0
