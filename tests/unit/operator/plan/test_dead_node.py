"""Row: dead node. Pods of nodes that die, vanish, fall silent or come back are given up in time and by force, the gang
resumes elsewhere, nobody is charged, and nothing trains twice.
"""

from collections.abc import Callable

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import World

Fault = Callable[[World], object]


def on_two_nodes(job: JobBuilder) -> World:
    """A gang that trains: worker-1 alone on node-b, and room for it on node-c."""
    world = World(job)
    world.settle()
    world.machines.add("node-b")
    for name in world.pods:
        world.api.pods[world.name(name)]["spec"]["nodeName"] = "node-b" if name == "worker-1" else "node-a"
    world.run().machines.add("node-c")
    world.events.clear()
    return world


@pytest.fixture(params=["InPlace", "Recreate"])
def world(request: pytest.FixtureRequest) -> World:
    job = a_launched_job() if request.param == "InPlace" else a_job()
    return on_two_nodes(job.max_restarts(0).storage())


def node_of(world: World, pod: str) -> str:
    return str(world.api.pods[world.name(pod)]["spec"].get("nodeName"))


def recovered(world: World, pod: str = "worker-1") -> bool:
    """Whether it trains again, elsewhere, after one disruption that was charged to nobody."""
    restarts, last = world.status.restarts, world.status.last_restart
    assert last is not None and (last.pod, last.reason) == (f"mnist-{pod}", "NodeLost")
    assert (restarts.counted, restarts.disruptions) == (0, 1)
    assert {note.reason for note in world.events if note.type == "Warning"} <= {"PodsNotReady"}
    assert "NodeLost" in [note.reason for note in world.events]
    assert "node-b" not in [node_of(world, each) for each in world.pods]
    return (world.status.phase, world.status.ready) == ("Running", "2/2")


def untouched(world: World) -> bool:
    return world.status.restarts.disruptions == 0 and node_of(world, "worker-1") == "node-b"


# --- when a node is lost


def test_a_dead_node_is_given_up_in_time_and_not_before(world: World) -> None:
    world.machines.die("node-b")
    world.run().wait(59).run()
    assert untouched(world) and not world.step()
    assert not world.status.is_true("Ready")
    assert world.timer is not None and (world.timer - world.now).total_seconds() == 1
    assert recovered(world.wait(1).run())


def test_what_is_said_until_then(world: World) -> None:
    world.machines.cut("node-b")
    world.run()
    assert (world.status.phase, world.status.reason) == ("Running", "NodeNotReady")
    assert world.status.message == (
        "worker-1: node node-b has not been ready since 2026-03-01T12:00:00Z; replacing the pod at 2026-03-01T12:01:00Z"
    )
    world.wait(60).settle()
    assert (world.events[-1].type, world.events[-1].reason) == ("Normal", "NodeLost")
    assert world.events[-1].message.startswith(
        "worker-1 was lost with its node (node node-b has not been ready since 2026-03-01T12:00:00Z); "
    )


def test_where_no_node_is_ready_no_time_is_told(world: World) -> None:
    for name in ("node-a", "node-b", "node-c"):
        world.machines.cut(name)
    assert (world.run().status.message or "").endswith("has not been ready since 2026-03-01T12:00:00Z")


@pytest.mark.parametrize(("fault", "seconds"), [("remove", 0), ("taint", 2)])
def test_a_node_that_is_gone_or_out_of_service_is_given_up_at_once(world: World, fault: str, seconds: int) -> None:
    world.machines.die("node-b")
    world.run()
    getattr(world.machines, fault)("node-b")
    assert recovered(world.run().wait(seconds).run())


def test_a_taint_that_evicts_nobody_is_enough(world: World) -> None:
    world.machines.die("node-b")
    world.run().machines.taint("node-b", effect="NoSchedule")
    assert recovered(world.run())


def test_the_next_pod_waits_until_kubernetes_has_evicted_this_one(world: World) -> None:
    """The taint manager deletes by name, again and again: it would take the next pod for this one."""
    world.machines.die("node-b")
    world.run().machines.taint("node-b", seen=False)
    assert untouched(world.run())
    world.machines.announce_eviction(world.api.pods["mnist-worker-1"])
    assert untouched(world.run())
    world.machines.taint("node-b")
    assert untouched(world.run().wait(1).run()), "it may do so once more, for the deletion that it hears of late"
    assert recovered(world.wait(1).run())


def test_suspended_during_the_eviction_a_pod_is_not_deleted_over_and_over(world: World) -> None:
    world.machines.die("node-b")
    world.run().machines.taint("node-b")
    world.api.edit("runPolicy.suspend", True)
    world.settle()
    assert world.api.writes.count("delete pod/mnist-worker-1") == 1, "that of Kubernetes"
    assert "worker-1" not in world.wait(2).run().pods


def test_what_the_garbage_collector_declares_to_have_failed_did_not(world: World) -> None:
    """It comes every 20 s, perhaps while the eviction is waited for, and deletes the pod by force right after."""
    world.machines.die("node-b")
    world.run().machines.taint("node-b")
    assert untouched(world.run())
    world.api.pods["mnist-worker-1"]["status"] |= {"phase": "Failed", "containerStatuses": []}
    assert recovered(world.run())


def test_a_pod_that_tolerates_the_taint_is_given_up_in_time(world: World) -> None:
    world.machines.die("node-b")
    world.run().machines.taint("node-b", seen=False)
    assert untouched(world.run().wait(59).run())
    assert recovered(world.wait(1).run())


def test_a_pod_that_somebody_deletes_while_its_node_is_silent_is_a_disruption_at_once(world: World) -> None:
    world.machines.die("node-b")
    world.run().delete("worker-1").settle()
    last = world.status.last_restart
    assert last is not None and (last.pod, last.reason) == ("mnist-worker-1", "PodDeleted")
    assert (world.status.restarts.counted, world.status.restarts.disruptions) == (0, 1)


def test_the_taint_alone_means_nothing_as_long_as_the_node_is_ready(world: World) -> None:
    world.machines.taint("node-b", effect="NoSchedule")
    assert untouched(world.run().wait(3600).run())


def test_a_node_that_comes_back_in_time_was_no_incident(world: World) -> None:
    world.machines.cut("node-b")
    world.run().wait(59).run()
    world.machines.come_back("node-b")
    assert untouched(world.run().wait(3600).run())
    assert (world.status.phase, world.status.reason, world.status.ready) == ("Running", "Training", "2/2")


def test_the_time_is_the_jobs_own_and_may_be_changed(world: World) -> None:
    world.api.edit("runPolicy.nodeLostSeconds", 600)
    world.run().machines.die("node-b")
    assert untouched(world.run().wait(599).run())
    world.api.edit("runPolicy.nodeLostSeconds", 30)
    assert recovered(world.run())


def test_a_time_beyond_the_calendar_is_never(world: World) -> None:
    world.api.edit("runPolicy.nodeLostSeconds", 2**31 - 1)
    world.machines.die("node-b")
    assert untouched(world.run().wait(10**6).run())


def test_an_operator_that_was_down_meanwhile_acts_at_once(world: World) -> None:
    world.machines.die("node-b")
    world.wait(3600).forget()
    assert recovered(world.run())


def test_as_long_as_no_node_is_ready_it_is_not_the_nodes(world: World) -> None:
    for name in ("node-a", "node-b", "node-c"):
        world.machines.cut(name)
    world.run().wait(3600).run()
    assert untouched(world) and not world.step()
    assert world.timer is not None and 0 < (world.timer - world.now).total_seconds() <= 15
    for name in ("node-a", "node-c"):
        world.machines.come_back(name)
    assert untouched(world.run().wait(59).run())
    assert recovered(world.wait(1).run())


def test_nodes_that_are_heard_of_again_one_after_the_other(world: World) -> None:
    for name in ("node-a", "node-b", "node-c"):
        world.machines.cut(name)
    world.run().wait(3600).run()
    for name in ("node-c", "node-a", "node-b"):
        world.machines.come_back(name)
        assert untouched(world.run().wait(20).run())
    assert (world.status.phase, world.status.ready) == ("Running", "2/2")


# --- how its pods are given up


def test_the_old_pod_is_deleted_by_force_and_alone(world: World) -> None:
    world.machines.die("node-b")
    world.wait(60).step()
    deletions = world.plan().delete_pods if world.launched else ()
    assert all(each.grace == 0 and each.name == "mnist-worker-1" for each in deletions)
    assert recovered(world.run())


def test_a_pod_whose_deletion_nobody_carries_out(world: World) -> None:
    world.machines.die("node-b", noticed=False)
    world.delete("worker-1").run()
    assert world.status.reason == "PodDeleted"
    assert "worker-1" in world.pods and node_of(world, "worker-1") == "node-b"
    world.wait(40).machines.notice("node-b")
    world.run().wait(60).run()
    assert (world.status.phase, world.status.ready) == ("Running", "2/2")
    assert (world.status.restarts.counted, world.status.restarts.disruptions) == (0, 1)


def test_a_finalizer_costs_no_endless_deletions(world: World) -> None:
    world.api.pods["mnist-worker-1"]["metadata"]["finalizers"] = ["example.com/audit"]
    world.machines.die("node-b")
    world.wait(60).settle()
    assert world.api.writes.count("delete pod/mnist-worker-1") == 1
    world.kubelet.lose("mnist-worker-1")
    assert recovered(world.run())


def test_the_others_wait_and_only_the_lost_pod_is_made_anew_where_launchers_are() -> None:
    world = on_two_nodes(a_launched_job())
    before = world.api.pods["mnist-worker-0"]["metadata"]["uid"]
    world.machines.die("node-b")
    world.wait(60).run()
    assert world.api.pods["mnist-worker-0"]["metadata"]["uid"] == before
    assert (world.status.attempt, world.status.restarts.recreated) == (1, 1)


def test_the_node_of_the_chief(world: World) -> None:
    for name in world.pods:
        world.api.pods[world.name(name)]["spec"]["nodeName"] = "node-b" if name == "worker-0" else "node-a"
    world.machines.die("node-b")
    assert recovered(world.run().wait(60).run(), "worker-0")


def test_the_node_of_the_whole_gang(world: World) -> None:
    for name in world.pods:
        world.api.pods[world.name(name)]["spec"]["nodeName"] = "node-b"
    world.machines.die("node-b")
    assert recovered(world.run().wait(60).run(), "worker-0")


def test_a_pod_that_had_not_started_yet() -> None:
    world = World(a_job().max_restarts(0)).settle()
    world.kubelet.start("mnist-worker-0")
    world.machines.add("node-b", "node-c")
    world.api.pods["mnist-worker-1"]["spec"]["nodeName"] = "node-b"
    world.settle()
    world.machines.die("node-b")
    world.run()
    assert world.status.message is not None and world.status.message.startswith("worker-1: node node-b has not been")
    assert recovered(world.wait(60).run())


def test_a_member_that_has_finished_is_not_lost_with_its_node() -> None:
    world = on_two_nodes(a_job())
    world.exit("worker-1", code=0).run().machines.remove("node-b")
    assert untouched(world.run()) and world.status.ready == "2/2"


def test_the_failures_that_follow_are_not_charged() -> None:
    world = on_two_nodes(a_job().max_restarts(0))
    world.machines.remove("node-b")
    world.wait(1).exit("worker-0")
    assert recovered(world.run())


def a_failure_and_then_the_node(job: JobBuilder, before: int = 0) -> World:
    """Without a launcher the others fail first; that it was the node is noticed a minute later. The job has failed so
    many times `before`."""
    world = on_two_nodes(job)
    for _ in range(before):
        world.exit("worker-0", code=1).run_timers()
    world.machines.die(node_of(world, "worker-1"), noticed=False)
    world.wait(12).exit("worker-0", code=1).run()
    assert (world.status.restarts.counted, world.pods) == (1 + before, ["worker-1"])
    world.wait(38).machines.notice(node_of(world, "worker-1"))
    return world.run().wait(60).run_timers()


def test_a_failure_that_was_charged_before_anybody_could_know_is_paid_back() -> None:
    world = a_failure_and_then_the_node(a_job().max_restarts(1))
    status, restarts, last = world.status, world.status.restarts, world.status.last_restart
    assert (status.phase, status.attempt) == ("Running", 2)
    assert (restarts.counted, restarts.budget_used, restarts.disruptions) == (1, 0, 1)
    assert last is not None and (last.pod, last.exit_code, last.reason) == ("mnist-worker-1", None, "NodeLost")
    assert [note.reason for note in world.events].count("NodeLost") == 1
    assert "Restarting 0/2 NodeLost" in world.trajectory


def test_what_was_charged_before_stays_charged() -> None:
    world = a_failure_and_then_the_node(a_job().max_restarts(5), before=2)
    assert (world.status.restarts.counted, world.status.restarts.budget_used) == (3, 2)


def test_it_is_paid_back_once() -> None:
    world = a_failure_and_then_the_node(a_job().max_restarts(3))
    world.exit("worker-0", code=1).run_timers()
    assert (world.status.restarts.counted, world.status.restarts.budget_used) == (2, 1)


def test_a_failure_of_the_program_is_not_excused_by_a_node_that_dies_later() -> None:
    world = on_two_nodes(a_job().max_restarts(3))
    world.exit("worker-0", code=1).run()
    world.machines.remove(node_of(world, "worker-1"))
    world.run_timers()
    assert (world.status.phase, world.status.restarts.budget_used) == ("Running", 1)


# --- jobs that are done, or suspended


def test_a_job_ends_though_a_pod_is_on_a_dead_node(world: World) -> None:
    world.machines.die("node-b")
    world.exit("worker-0", code=0).run()
    assert world.status.phase == "Succeeded" and "worker-1" in world.pods
    world.wait(60).run()
    assert world.pods == ["cleanup", "worker-0"]
    world.exit("cleanup", code=0, message='{"removed": 1}').run()
    assert world.status.is_true("Cleaned")


def test_a_suspension_does_not_wait_for_a_dead_node(world: World) -> None:
    world.machines.die("node-b")
    world.api.edit("runPolicy.suspend", True)
    world.run()
    assert world.pods == ["worker-1"]
    assert world.wait(60).run().pods == ["cleanup"]


def test_a_cleanup_that_is_lost_with_its_node_is_made_anew_and_no_try_is_lost(world: World) -> None:
    world.exit("worker-0", "worker-1", code=0).run()
    where = node_of(world, "cleanup")
    world.machines.die(where)
    assert node_of(world.wait(60).run(), "cleanup") != where
    assert world.status.cleanup is None or world.status.cleanup.failed_attempts == 0


# --- fencing


def test_a_machine_that_comes_back_is_told_to_stop_what_it_still_runs(world: World) -> None:
    world.machines.cut("node-b")
    assert recovered(world.wait(60).run())
    writes = len(world.api.writes)
    world.machines.come_back("node-b")
    world.run().wait(3600).run()
    assert len(world.api.writes) == writes


# --- without the right to read nodes


@pytest.fixture
def namespaced(world: World) -> World:
    world.api.nodes_readable = False
    return world.run()


def test_the_condition_ready_tells_of_a_silent_node(namespaced: World) -> None:
    world = namespaced
    world.machines.die("node-b")
    world.run().wait(59).run()
    assert untouched(world) and not world.step()
    assert recovered(world.wait(1).run())


def test_a_silent_node_that_is_heard_of_again(namespaced: World) -> None:
    namespaced.machines.cut("node-b")
    namespaced.run().wait(59).run().machines.come_back("node-b")
    assert untouched(namespaced.run().wait(3600).run())


def test_a_readiness_gate_of_the_user_is_no_silent_node(namespaced: World) -> None:
    world = namespaced
    gate = {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"}
    world.kubelet.condition("mnist-worker-1", gate | {"lastTransitionTime": "2026-03-01T12:00:00Z"})
    world.kubelet.condition("mnist-worker-1", {"type": "ContainersReady", "status": "True"})
    assert untouched(world.run().wait(3600).run())


def test_a_deletion_that_is_long_overdue(namespaced: World) -> None:
    world = namespaced
    world.machines.die("node-b", noticed=False)
    world.delete("worker-1", grace=30).run().wait(89).run()
    assert node_of(world, "worker-1") == "node-b"
    world.wait(1).run()
    assert (world.status.phase, world.status.restarts.counted, world.status.restarts.disruptions) == ("Running", 0, 1)
    assert node_of(world, "worker-1") != "node-b"


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
    world = World(job.max_restarts(0)).settle()
    world.machines.add("node-b", "node-c")
    for name in world.pods:
        world.api.pods[world.name(name)]["spec"]["nodeName"] = "node-b" if name == pod else "node-a"
    assert world.run().status.phase == "Running"
    world.machines.die("node-b", noticed=False)
    if deleted:
        world.delete(pod).run()
    world.machines.notice("node-b")
    world.wait(61).run_timers()
    assert pod in world.pods and node_of(world, pod) != "node-b"
    assert (world.status.phase, world.status.restarts.counted) == ("Running", 0)
    assert world.status.restarts.disruptions == 1
