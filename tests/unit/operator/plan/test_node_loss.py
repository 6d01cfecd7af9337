"""Row: dead node. Pods of nodes that die, vanish, fall silent or come back are given up in time and by force, the gang
resumes elsewhere, nobody is charged, and nothing trains twice.
"""

from collections.abc import Callable

import msgspec
import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import IMAGE, SimulatedCluster
from tftraining_operator.model.node import CONTROL_PLANE
from tftraining_operator.plan.planner import plan

Fault = Callable[[SimulatedCluster], object]


def on_two_nodes(job: JobBuilder) -> SimulatedCluster:
    """A gang that trains: worker-1 alone on node-b, and room for it on node-c."""
    cluster = SimulatedCluster(job)
    cluster.settle()
    cluster.nodes.add("node-b")
    for name in cluster.pods:
        cluster.api.pods[cluster.name(name)]["spec"]["nodeName"] = "node-b" if name == "worker-1" else "node-a"
    cluster.run().nodes.add("node-c")
    cluster.events.clear()
    return cluster


@pytest.fixture(params=["InPlace", "Recreate"])
def cluster(request: pytest.FixtureRequest) -> SimulatedCluster:
    job = a_launched_job() if request.param == "InPlace" else a_job()
    return on_two_nodes(job.max_restarts(0).storage())


def node_of(cluster: SimulatedCluster, pod: str) -> str:
    return str(cluster.api.pods[cluster.name(pod)]["spec"].get("nodeName"))


def recovered(cluster: SimulatedCluster, pod: str = "worker-1") -> bool:
    """Whether it trains again, elsewhere, after one disruption that was charged to nobody."""
    restarts, last = cluster.status.restarts, cluster.status.last_restart
    assert last is not None and (last.pod, last.reason) == (f"mnist-{pod}", "NodeLost")
    assert (restarts.counted, restarts.disruptions) == (0, 1)
    assert {note.reason for note in cluster.events if note.type == "Warning"} <= {"PodsNotReady"}
    assert "NodeLost" in [note.reason for note in cluster.events]
    assert "node-b" not in [node_of(cluster, each) for each in cluster.pods]
    return (cluster.status.phase, cluster.status.ready) == ("Running", "2/2")


def untouched(cluster: SimulatedCluster) -> bool:
    return cluster.status.restarts.disruptions == 0 and node_of(cluster, "worker-1") == "node-b"


# --- when a node is lost


def test_a_dead_node_is_given_up_in_time_and_not_before(cluster: SimulatedCluster) -> None:
    cluster.nodes.power_off("node-b")
    cluster.run().wait(59).run()
    assert untouched(cluster) and not cluster.step()
    assert not cluster.status.is_true("Ready")
    assert cluster.timer is not None and (cluster.timer - cluster.now).total_seconds() == 1
    assert recovered(cluster.wait(1).run())


def test_what_is_said_until_then(cluster: SimulatedCluster) -> None:
    cluster.nodes.partition("node-b")
    cluster.run()
    assert (cluster.status.phase, cluster.status.reason) == ("Running", "NodeNotReady")
    assert cluster.status.message == (
        "worker-1: node node-b has not been ready since 2026-03-01T12:00:00Z; replacing the pod at 2026-03-01T12:01:00Z"
    )
    cluster.wait(60).settle()
    assert (cluster.events[-1].type, cluster.events[-1].reason) == ("Normal", "NodeLost")
    assert cluster.events[-1].message.startswith(
        "worker-1 was lost with its node (node node-b has not been ready since 2026-03-01T12:00:00Z); "
    )


def test_what_is_said_where_the_others_are_not_ready_either(cluster: SimulatedCluster) -> None:
    for name in ("node-a", "node-b", "node-c"):
        cluster.nodes.partition(name)
    assert (cluster.run().status.message or "").endswith(
        " since 2026-03-01T12:00:00Z, like most of its zone; replacing the pod at 2026-03-01T12:10:00Z"
    )


@pytest.mark.parametrize(("fault", "seconds"), [("remove", 0), ("taint", 2)])
def test_a_node_that_is_gone_or_out_of_service_is_given_up_at_once(
    cluster: SimulatedCluster, fault: str, seconds: int
) -> None:
    cluster.nodes.power_off("node-b")
    cluster.run()
    getattr(cluster.nodes, fault)("node-b")
    assert recovered(cluster.run().wait(seconds).run())


def test_a_taint_that_evicts_nobody_is_enough(cluster: SimulatedCluster) -> None:
    cluster.nodes.power_off("node-b")
    cluster.run().nodes.taint("node-b", effect="NoSchedule")
    assert recovered(cluster.run())


def test_the_next_pod_waits_until_kubernetes_has_evicted_this_one(cluster: SimulatedCluster) -> None:
    """The taint manager deletes by name, again and again: it would take the next pod for this one."""
    cluster.nodes.power_off("node-b")
    cluster.run().nodes.taint("node-b", seen=False)
    assert untouched(cluster.run())
    cluster.nodes.announce_eviction(cluster.api.pods["mnist-worker-1"])
    assert untouched(cluster.run())
    cluster.nodes.taint("node-b")
    assert untouched(cluster.run().wait(1).run()), "it may do so once more, for the deletion that it hears of late"
    assert recovered(cluster.wait(1).run())


def test_suspended_during_the_eviction_a_pod_is_not_deleted_over_and_over(cluster: SimulatedCluster) -> None:
    cluster.nodes.power_off("node-b")
    cluster.run().nodes.taint("node-b")
    cluster.api.edit("runPolicy.suspend", True)
    cluster.settle()
    assert cluster.api.writes.count("delete pod/mnist-worker-1") == 1, "that of Kubernetes"
    assert "worker-1" not in cluster.wait(2).run().pods


def test_what_the_garbage_collector_declares_to_have_failed_did_not(cluster: SimulatedCluster) -> None:
    """It comes every 20 s, perhaps while the eviction is waited for, and deletes the pod by force right after."""
    cluster.nodes.power_off("node-b")
    cluster.run().nodes.taint("node-b")
    assert untouched(cluster.run())
    cluster.api.pods["mnist-worker-1"]["status"] |= {"phase": "Failed", "containerStatuses": []}
    assert recovered(cluster.run())


def test_a_pod_that_tolerates_the_taint_is_given_up_in_time(cluster: SimulatedCluster) -> None:
    cluster.nodes.power_off("node-b")
    cluster.run().nodes.taint("node-b", seen=False)
    assert untouched(cluster.run().wait(59).run())
    assert recovered(cluster.wait(1).run())


def test_a_pod_that_somebody_deletes_while_its_node_is_silent_is_a_disruption_at_once(
    cluster: SimulatedCluster,
) -> None:
    cluster.nodes.power_off("node-b")
    cluster.run().delete("worker-1").settle()
    last = cluster.status.last_restart
    assert last is not None and (last.pod, last.reason) == ("mnist-worker-1", "PodDeleted")
    assert (cluster.status.restarts.counted, cluster.status.restarts.disruptions) == (0, 1)


def test_the_taint_alone_means_nothing_as_long_as_the_node_is_ready(cluster: SimulatedCluster) -> None:
    cluster.nodes.taint("node-b", effect="NoSchedule")
    assert untouched(cluster.run().wait(3600).run())


def test_a_node_that_comes_back_in_time_was_no_incident(cluster: SimulatedCluster) -> None:
    cluster.nodes.partition("node-b")
    cluster.run().wait(59).run()
    cluster.nodes.reconnect("node-b")
    assert untouched(cluster.run().wait(3600).run())
    assert (cluster.status.phase, cluster.status.reason, cluster.status.ready) == ("Running", "Training", "2/2")


def test_the_time_is_the_jobs_own_and_may_be_changed(cluster: SimulatedCluster) -> None:
    cluster.api.edit("runPolicy.nodeLostSeconds", 600)
    cluster.run().nodes.power_off("node-b")
    assert untouched(cluster.run().wait(599).run())
    cluster.api.edit("runPolicy.nodeLostSeconds", 30)
    assert recovered(cluster.run())


def test_a_time_beyond_the_calendar_is_never(cluster: SimulatedCluster) -> None:
    cluster.api.edit("runPolicy.nodeLostSeconds", 2**31 - 1)
    cluster.nodes.power_off("node-b")
    assert untouched(cluster.run().wait(10**6).run())


def test_an_operator_that_was_down_meanwhile_waits_as_long_as_if_it_had_seen_the_beginning(
    cluster: SimulatedCluster,
) -> None:
    """The machine that set the time of the condition may have a wrong clock."""
    cluster.nodes.power_off("node-b")
    cluster.wait(3600).forget()
    cluster.noticed.clear()
    assert untouched(cluster.run().wait(59).run())
    assert recovered(cluster.wait(1).run())


def in_zones(cluster: SimulatedCluster, zones: dict[str, str]) -> None:
    """Nodes of these zones, which joined with the others; a zone of one's own means a control-plane node."""
    for name, zone in zones.items():
        if name not in cluster.api.nodes:
            cluster.nodes.add(name)
        cluster.api.nodes[name]["metadata"]["labels"] = (
            {CONTROL_PLANE: ""} if zone == "control plane" else {"topology.kubernetes.io/zone": zone}
        )


OUTAGES = {
    # name: (zones, not ready)
    "no worker beside a ready control plane": ({"cp": "control plane"}, ("node-a", "node-b", "node-c")),
    "the only nodes are of the control plane": (
        dict.fromkeys(("node-a", "node-b", "node-c"), "control plane"),
        ("node-a", "node-b", "node-c"),
    ),
    "two of three": ({}, ("node-b", "node-c")),
    "two of three of the zone, beside a zone that is well": (
        {"node-a": "a", "node-b": "b", "b2": "b", "b3": "b", "node-c": "c"},
        ("node-b", "b2"),
    ),
}
SINGLE_NODES = {
    "one of three": ({}, ("node-b",)),
    "the only one of its zone": ({"node-a": "a", "node-b": "b", "node-c": "c"}, ("node-b",)),
    "a small zone as a whole": ({"node-a": "a", "node-b": "b", "b2": "b", "node-c": "c"}, ("node-b", "b2")),
    "half of a zone, beside a zone that is not ready": (
        {"node-a": "a", "a2": "a", "node-c": "a", "c1": "c", "c2": "c", "c3": "c"},
        ("c1", "c2", "c3", "node-b"),
    ),
    "beside a control plane that is not ready": ({"cp": "control plane"}, ("cp", "node-b")),
}


@pytest.mark.parametrize(("zones", "unready"), OUTAGES.values(), ids=OUTAGES.keys())
def test_where_most_nodes_are_not_ready_it_takes_ten_times_as_long_and_never_for_ever(
    cluster: SimulatedCluster, zones: dict[str, str], unready: tuple[str, ...]
) -> None:
    in_zones(cluster, zones)
    for name in unready:
        cluster.nodes.partition(name)
    assert untouched(cluster.run().wait(599).run())
    cluster.nodes.reconnect("node-c")  # for the new pod: its own time does not begin anew then
    cluster.nodes.add("node-d")
    assert recovered(cluster.wait(1).run(), "worker-0" if "node-a" in unready else "worker-1")


@pytest.mark.parametrize(("zones", "unready"), SINGLE_NODES.values(), ids=SINGLE_NODES.keys())
def test_where_most_of_the_others_are_well_a_node_is_given_up_in_time(
    cluster: SimulatedCluster, zones: dict[str, str], unready: tuple[str, ...]
) -> None:
    in_zones(cluster, zones)
    for name in unready:
        cluster.nodes.partition(name)
    assert untouched(cluster.run().wait(59).run())
    assert recovered(cluster.wait(1).run())


def test_as_long_as_no_node_is_ready_it_is_not_the_nodes(cluster: SimulatedCluster) -> None:
    for name in ("node-a", "node-b", "node-c"):
        cluster.nodes.partition(name)
    cluster.run().wait(300).run()
    assert untouched(cluster) and not cluster.step()
    assert cluster.timer is not None and 0 < (cluster.timer - cluster.now).total_seconds() <= 15
    for name in ("node-a", "node-c"):
        cluster.nodes.reconnect(name)
    assert untouched(cluster.run().wait(59).run())
    assert recovered(cluster.wait(1).run())


def test_nodes_that_are_heard_of_again_one_after_the_other(cluster: SimulatedCluster) -> None:
    for name in ("node-a", "node-b", "node-c"):
        cluster.nodes.partition(name)
    cluster.run().wait(500).run()
    for name in ("node-c", "node-a", "node-b"):
        cluster.nodes.reconnect(name)
        assert untouched(cluster.run().wait(20).run())
    assert (cluster.status.phase, cluster.status.ready) == ("Running", "2/2")


# --- how its pods are given up


def test_the_old_pod_is_deleted_by_force_and_alone(cluster: SimulatedCluster) -> None:
    cluster.nodes.power_off("node-b")
    cluster.wait(60).step()
    deletions = cluster.plan().delete_pods if cluster.launched else ()
    assert all(each.grace == 0 and each.name == "mnist-worker-1" for each in deletions)
    assert recovered(cluster.run())


def test_a_pod_whose_deletion_nobody_carries_out(cluster: SimulatedCluster) -> None:
    cluster.nodes.power_off("node-b", noticed=False)
    cluster.delete("worker-1").run()
    assert cluster.status.reason == "PodDeleted"
    assert "worker-1" in cluster.pods and node_of(cluster, "worker-1") == "node-b"
    cluster.wait(40).nodes.mark_not_ready("node-b")
    cluster.run().wait(60).run()
    assert (cluster.status.phase, cluster.status.ready) == ("Running", "2/2")
    assert (cluster.status.restarts.counted, cluster.status.restarts.disruptions) == (0, 1)


def test_a_finalizer_costs_no_endless_deletions(cluster: SimulatedCluster) -> None:
    cluster.api.pods["mnist-worker-1"]["metadata"]["finalizers"] = ["example.com/audit"]
    cluster.nodes.power_off("node-b")
    cluster.wait(60).settle()
    assert cluster.api.writes.count("delete pod/mnist-worker-1") == 1
    cluster.kubelet.force_delete("mnist-worker-1")
    assert recovered(cluster.run())


def test_the_others_wait_and_only_the_lost_pod_is_made_anew_where_launchers_are() -> None:
    cluster = on_two_nodes(a_launched_job())
    before = cluster.api.pods["mnist-worker-0"]["metadata"]["uid"]
    cluster.nodes.power_off("node-b")
    cluster.wait(60).run()
    assert cluster.api.pods["mnist-worker-0"]["metadata"]["uid"] == before
    assert (cluster.status.attempt, cluster.status.restarts.recreated) == (1, 1)


def test_the_node_of_the_chief(cluster: SimulatedCluster) -> None:
    for name in cluster.pods:
        cluster.api.pods[cluster.name(name)]["spec"]["nodeName"] = "node-b" if name == "worker-0" else "node-a"
    cluster.nodes.power_off("node-b")
    assert recovered(cluster.run().wait(60).run(), "worker-0")


def test_the_node_of_the_whole_gang(cluster: SimulatedCluster) -> None:
    for name in cluster.pods:
        cluster.api.pods[cluster.name(name)]["spec"]["nodeName"] = "node-b"
    cluster.nodes.power_off("node-b")
    assert recovered(cluster.run().wait(60).run(), "worker-0")


def test_a_pod_that_had_not_started_yet() -> None:
    cluster = SimulatedCluster(a_job().max_restarts(0)).settle()
    cluster.kubelet.start("mnist-worker-0")
    cluster.nodes.add("node-b", "node-c")
    cluster.api.pods["mnist-worker-1"]["spec"]["nodeName"] = "node-b"
    cluster.settle()
    cluster.nodes.power_off("node-b")
    cluster.run()
    assert cluster.status.message is not None and cluster.status.message.startswith(
        "worker-1: node node-b has not been"
    )
    assert recovered(cluster.wait(60).run())


def test_a_member_that_has_finished_is_not_lost_with_its_node() -> None:
    cluster = on_two_nodes(a_job())
    cluster.exit("worker-1", code=0).run().nodes.remove("node-b")
    assert untouched(cluster.run()) and cluster.status.ready == "2/2"


def test_the_failures_that_follow_are_not_charged() -> None:
    cluster = on_two_nodes(a_job().max_restarts(0))
    cluster.nodes.remove("node-b")
    cluster.wait(1).exit("worker-0")
    assert recovered(cluster.run())


def a_failure_and_then_the_node(job: JobBuilder, before: int = 0) -> SimulatedCluster:
    """Without a launcher the others fail first; that it was the node is noticed a minute later. The job has failed so
    many times `before`."""
    cluster = on_two_nodes(job)
    for _ in range(before):
        cluster.exit("worker-0", code=1).run_timers()
    cluster.nodes.power_off(node_of(cluster, "worker-1"), noticed=False)
    cluster.wait(12).exit("worker-0", code=1).run()
    assert (cluster.status.restarts.counted, cluster.pods) == (1 + before, ["worker-1"])
    cluster.wait(38).nodes.mark_not_ready(node_of(cluster, "worker-1"))
    return cluster.run().wait(60).run_timers()


def test_a_failure_that_was_charged_before_anybody_could_know_is_paid_back() -> None:
    cluster = a_failure_and_then_the_node(a_job().max_restarts(1))
    status, restarts, last = cluster.status, cluster.status.restarts, cluster.status.last_restart
    assert (status.phase, status.attempt) == ("Running", 2)
    assert (restarts.counted, restarts.budget_used, restarts.disruptions) == (1, 0, 1)
    assert last is not None and (last.pod, last.exit_code, last.reason) == ("mnist-worker-1", None, "NodeLost")
    assert [note.reason for note in cluster.events].count("NodeLost") == 1
    assert "Restarting 0/2 NodeLost" in cluster.trajectory


def test_what_was_charged_before_stays_charged() -> None:
    cluster = a_failure_and_then_the_node(a_job().max_restarts(5), before=2)
    assert (cluster.status.restarts.counted, cluster.status.restarts.budget_used) == (3, 2)


def test_it_is_paid_back_once() -> None:
    cluster = a_failure_and_then_the_node(a_job().max_restarts(3))
    cluster.exit("worker-0", code=1).run_timers()
    assert (cluster.status.restarts.counted, cluster.status.restarts.budget_used) == (2, 1)


def test_a_failure_of_the_program_is_not_excused_by_a_node_that_dies_later() -> None:
    cluster = on_two_nodes(a_job().max_restarts(3))
    cluster.exit("worker-0", code=1).run()
    cluster.nodes.remove(node_of(cluster, "worker-1"))
    cluster.run_timers()
    assert (cluster.status.phase, cluster.status.restarts.budget_used) == ("Running", 1)


# --- jobs that are done, or suspended


def test_a_job_ends_though_a_pod_is_on_a_dead_node(cluster: SimulatedCluster) -> None:
    cluster.nodes.power_off("node-b")
    cluster.exit("worker-0", code=0).run()
    assert cluster.status.phase == "Succeeded" and "worker-1" in cluster.pods
    cluster.wait(60).run()
    assert cluster.pods == ["cleanup", "worker-0"]
    cluster.exit("cleanup", code=0, message='{"removed": 1}').run()
    assert cluster.status.is_true("Cleaned")


def test_a_job_that_ends_waits_for_no_program_of_a_lost_node() -> None:
    cluster = on_two_nodes(a_launched_job())
    cluster.nodes.remove("node-b")
    cluster.exit("worker-0", code=0, message='tftraining/1 {"verdict": "Succeeded"}\n').settle()
    assert (cluster.status.phase, cluster.pods) == ("Succeeded", ["worker-0"])


@pytest.mark.parametrize("readable", [True, False], ids=["reads nodes", "reads no nodes"])
@pytest.mark.parametrize("fault", ["one node", "outage", "node removed"])
def test_a_job_that_has_ended_waits_for_no_node_of_a_pod_that_it_keeps(
    cluster: SimulatedCluster, fault: str, readable: bool
) -> None:
    cluster.api.edit("runPolicy.cleanPodPolicy", "None")
    cluster.api.nodes_readable = readable
    for name in ("node-a", "node-b", "node-c") if fault == "outage" else ("node-b",):
        cluster.nodes.power_off(name)
    cluster.exit("worker-0", code=1).run()
    if fault == "node removed":
        cluster.nodes.remove("node-b")
    cluster.wait(700).run_timers(most=3)
    assert (cluster.status.phase, cluster.timer) == ("Failed", None)
    assert cluster.pods == ["worker-0", "worker-1"]


@pytest.mark.parametrize("readable", [True, False], ids=["reads nodes", "reads no nodes"])
@pytest.mark.parametrize("policy", ["None", "Running", "All"])
def test_what_somebody_has_deleted_goes_by_every_policy_though_its_node_is_dead(
    cluster: SimulatedCluster, policy: str, readable: bool
) -> None:
    """The cleanup waits for it."""
    cluster.api.edit("runPolicy.cleanPodPolicy", policy)
    cluster.api.nodes_readable = readable
    cluster.nodes.power_off("node-b")
    cluster.exit("worker-0", code=1).settle().delete("worker-1").run().wait(90).run()
    cluster.exit("cleanup", code=0, message='{"removed": 1}').run()
    assert (cluster.status.phase, cluster.timer) == ("Failed", None)
    assert "worker-1" not in cluster.pods and cluster.status.is_true("Cleaned")


def test_a_suspension_does_not_wait_for_a_dead_node(cluster: SimulatedCluster) -> None:
    cluster.nodes.power_off("node-b")
    cluster.api.edit("runPolicy.suspend", True)
    cluster.run()
    assert cluster.pods == ["worker-1"]
    assert cluster.wait(60).run().pods == ["cleanup"]


def test_a_cleanup_that_is_lost_with_its_node_is_made_anew_and_no_try_is_lost(cluster: SimulatedCluster) -> None:
    cluster.exit("worker-0", "worker-1", code=0).run()
    where = node_of(cluster, "cleanup")
    cluster.nodes.power_off(where)
    assert node_of(cluster.wait(60).run(), "cleanup") != where
    assert cluster.status.cleanup is None or cluster.status.cleanup.failed_attempts == 0


# --- fencing


def test_a_machine_that_comes_back_is_told_to_stop_what_it_still_runs(cluster: SimulatedCluster) -> None:
    cluster.nodes.partition("node-b")
    assert recovered(cluster.wait(60).run())
    writes = len(cluster.api.writes)
    cluster.nodes.reconnect("node-b")
    cluster.run().wait(3600).run()
    assert len(cluster.api.writes) == writes


# --- without the right to read nodes


@pytest.fixture
def namespaced(cluster: SimulatedCluster) -> SimulatedCluster:
    cluster.api.nodes_readable = False
    return cluster.run()


def test_a_silent_node_counts_as_in_an_outage_where_nobody_may_read_nodes(namespaced: SimulatedCluster) -> None:
    cluster = namespaced
    cluster.nodes.power_off("node-b")
    cluster.run().wait(599).run()
    assert untouched(cluster) and not cluster.step()
    assert recovered(cluster.wait(1).run())


def test_an_operator_that_sees_the_silence_late_waits_as_long_as_if_it_had_begun_then(
    namespaced: SimulatedCluster,
) -> None:
    cluster = namespaced
    cluster.nodes.power_off("node-b")
    cluster.wait(600)
    job, observed = cluster.observe(cluster.api.snapshot())
    pods = [msgspec.structs.replace(pod, silence_noticed_at=cluster.now) for pod in observed.pods]
    step = plan(job, msgspec.structs.replace(observed, pods=tuple(pods)), cluster.now, IMAGE)
    assert (step.status.restarts.disruptions, step.delete_pods) == (0, ())


def test_what_kubernetes_evicts_from_a_silent_node_is_replaced(namespaced: SimulatedCluster) -> None:
    cluster = namespaced
    cluster.nodes.power_off("node-b")
    cluster.run().wait(300).run()
    assert untouched(cluster)
    cluster.delete("worker-1", grace=30).run().wait(89).run()
    assert node_of(cluster, "worker-1") == "node-b"
    cluster.wait(1).run()
    assert node_of(cluster, "worker-1") != "node-b" and cluster.status.restarts.disruptions == 1


def test_an_outage_forces_no_pod_where_nobody_may_read_nodes(namespaced: SimulatedCluster) -> None:
    cluster = namespaced
    nodes = {node_of(cluster, name) for name in cluster.pods}
    for name in nodes:
        cluster.nodes.partition(name)
    cluster.run().wait(75).run()
    assert untouched(cluster)
    for name in nodes:
        cluster.nodes.reconnect(name)
    assert untouched(cluster.run().wait(3600).run())


def test_a_silent_node_that_is_heard_of_again(namespaced: SimulatedCluster) -> None:
    namespaced.nodes.partition("node-b")
    namespaced.run().wait(59).run().nodes.reconnect("node-b")
    assert untouched(namespaced.run().wait(3600).run())


def test_a_readiness_gate_of_the_user_is_no_silent_node(namespaced: SimulatedCluster) -> None:
    cluster = namespaced
    gate = {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"}
    cluster.kubelet.condition("mnist-worker-1", gate | {"lastTransitionTime": "2026-03-01T12:00:00Z"})
    cluster.kubelet.condition("mnist-worker-1", {"type": "ContainersReady", "status": "True"})
    assert untouched(cluster.run().wait(3600).run())


def test_a_deletion_that_is_long_overdue(namespaced: SimulatedCluster) -> None:
    cluster = namespaced
    cluster.nodes.power_off("node-b", noticed=False)
    cluster.delete("worker-1", grace=30).run().wait(89).run()
    assert node_of(cluster, "worker-1") == "node-b"
    cluster.wait(1).run()
    assert (cluster.status.phase, cluster.status.restarts.counted, cluster.status.restarts.disruptions) == (
        "Running",
        0,
        1,
    )
    assert node_of(cluster, "worker-1") != "node-b"


# --- every role

SHAPES: dict[str, tuple[JobBuilder, str]] = {
    "evaluator": (a_launched_job().workers(2).role("evaluator"), "evaluator-0"),
    "evaluator, no launcher": (a_job().workers(2).role("evaluator"), "evaluator-0"),
    "ps": (a_launched_job().workers(2).chief().role("ps"), "ps-0"),
    "ps, no launcher": (a_job().workers(2).chief().role("ps"), "ps-0"),
    "worker beside a ps": (a_launched_job().workers(2).chief().role("ps"), "worker-1"),
    "worker beside a ps, no launcher": (a_job().workers(2).chief().role("ps"), "worker-1"),
    "worker that can be spared": (a_launched_job().workers(3).set("minReplicas", 1), "worker-2"),
}


@pytest.mark.parametrize(("job", "pod"), SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("deleted", [False, True], ids=["running", "told to go"])
def test_any_member_is_made_anew_elsewhere(job: JobBuilder, pod: str, deleted: bool) -> None:
    cluster = SimulatedCluster(job.max_restarts(0)).settle()
    cluster.nodes.add("node-b", "node-c")
    for name in cluster.pods:
        cluster.api.pods[cluster.name(name)]["spec"]["nodeName"] = "node-b" if name == pod else "node-a"
    assert cluster.run().status.phase == "Running"
    cluster.nodes.power_off("node-b", noticed=False)
    if deleted:
        cluster.delete(pod).run()
    cluster.nodes.mark_not_ready("node-b")
    cluster.wait(61).run_timers()
    assert pod in cluster.pods and node_of(cluster, pod) != "node-b"
    assert (cluster.status.phase, cluster.status.restarts.counted) == ("Running", 0)
    assert cluster.status.restarts.disruptions == 1
