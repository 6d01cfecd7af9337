"""Row: deadlines. activeDeadlineSeconds (suspended time does not count), startDeadlineSeconds (with the reason that
keeps pods from starting), stallTimeoutSeconds, ttlSecondsAfterFinished; all right when the operator was down past them.
"""

from collections.abc import Callable

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import World

ACTIVE = "runPolicy.activeDeadlineSeconds"
START = "runPolicy.startDeadlineSeconds"
STALL = "runPolicy.stallTimeoutSeconds"
TTL = "runPolicy.ttlSecondsAfterFinished"
HELD = "container tensorflow: image pull failed (trainer:1): no such image"
NewJob = Callable[[], JobBuilder]
BOTH = pytest.mark.parametrize("new_job", [a_job, a_launched_job], ids=["Recreate", "InPlace"])


# --- activeDeadlineSeconds


@BOTH
def test_a_job_that_runs_too_long(new_job: NewJob) -> None:
    world = World(new_job()).run()
    world.api.edit(ACTIVE, 100)
    world.wait(99).run()
    assert world.status.phase == "Running" and world.timer is not None
    world.api.now = world.timer
    world.settle()
    assert (world.status.phase, world.status.reason) == ("Failed", "DeadlineExceeded")
    assert world.status.message == "not done after 100 s (spec.runPolicy.activeDeadlineSeconds)"
    assert world.api.writes[-2:] == ["delete pod/mnist-worker-0", "delete pod/mnist-worker-1"], "nobody is waited for"
    assert (world.events[-1].type, world.events[-1].reason) == ("Warning", "Failed")
    assert world.run().pods == []


def test_it_counts_restarts_too() -> None:
    world = World(a_job().set(ACTIVE, 100)).run().wait(60).exit("worker-1").run().wait(40).run()
    assert (world.status.reason, world.status.restarts.counted) == ("DeadlineExceeded", 1)


def test_it_ends_a_job_that_never_starts() -> None:
    world = World(a_job().set(ACTIVE, 100)).settle().wait(100).settle()
    assert world.status.reason == "DeadlineExceeded"


def test_a_failure_in_the_same_moment_is_not_charged() -> None:
    world = World(a_job().set(ACTIVE, 100)).run().wait(100).exit("worker-1").run()
    assert (world.status.reason, world.status.restarts.counted) == ("DeadlineExceeded", 0)
    assert world.status.replicas["worker"].failed == 1
    assert world.pods == ["worker-1"], "failed pods are kept"


def test_what_is_done_is_done_however_late_the_operator_sees_it() -> None:
    world = World(a_job().set(ACTIVE, 100)).run().wait(50).exit("worker-0", code=0).wait(500)
    world.forget()
    assert world.run().status.phase == "Succeeded"


def test_an_operator_that_was_down_past_it() -> None:
    world = World(a_job().set(ACTIVE, 100)).run()
    world.forget()
    assert world.wait(500).run().status.reason == "DeadlineExceeded"


def test_it_may_be_changed_while_the_job_runs() -> None:
    world = World(a_job().set(ACTIVE, 100)).run().wait(90)
    world.api.edit(ACTIVE, 1000)
    assert world.wait(90).run().status.phase == "Running"
    world.api.edit(ACTIVE, 60)
    assert world.run().status.phase == "Failed"


def test_a_start_time_beyond_the_calendar_does_no_harm() -> None:
    world = World(a_job().set(ACTIVE, 100)).run()
    world.api.job["status"]["startTime"] = "9999-12-31T23:59:59Z"
    assert world.run().status.phase == "Running"


@BOTH
def test_suspended_time_does_not_count_however_often_it_is_suspended(new_job: NewJob) -> None:
    world = World(new_job().set(ACTIVE, 100)).run()
    for _ in range(3):
        world.wait(99).run()
        world.api.edit("runPolicy.suspend", True)
        world.run().wait(1000).run()
        assert world.status.phase == "Suspended"
        world.api.edit("runPolicy.suspend", False)
        world.run()
    assert world.wait(99).run().status.phase == "Running"
    assert world.wait(1).run().status.reason == "DeadlineExceeded"


@BOTH
def test_a_suspension_in_time_saves_a_job_though_the_operator_hears_of_it_late(new_job: NewJob) -> None:
    world = World(new_job().set(ACTIVE, 100)).run()
    world.forget()
    world.wait(50).api.edit("runPolicy.suspend", True)
    assert world.wait(500).run().status.phase == "Suspended"


@BOTH
def test_what_has_ended_while_the_operator_was_down_is_no_matter_of_time(new_job: NewJob) -> None:
    world = World(new_job().set(ACTIVE, 100).set(START, 60)).run().wait(50)
    if world.launched:
        world.launchers.finish()
    else:
        world.exit("worker-0", code=0)
    world.wait(500).forget()
    assert world.run().status.phase == "Succeeded"


# --- startDeadlineSeconds


def unschedulable(world: World) -> str:
    """The scheduler has no place for worker-1."""
    why = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
    world.kubelet.condition("mnist-worker-1", condition)
    return f"worker-1: cannot be scheduled: {why}"


def no_image(world: World) -> str:
    """The registry has no image for worker-1."""
    world.kubelet.hold("mnist-worker-1", "ImagePullBackOff", "Back-off pulling image: ErrImagePull: no such image")
    return f"worker-1: {HELD}"


def no_volume(world: World) -> str:
    """The volumes of worker-1 cannot be mounted; the kubelet says so in an event only."""
    world.kubelet.hold("mnist-worker-1", "ContainerCreating")
    world.kubelet.condition("mnist-worker-1", {"type": "PodReadyToStartContainers", "status": "False"})
    return "worker-1: its volumes or its network are not ready (kubectl describe pod shows what is missing)"


def no_quota(world: World) -> str:
    """The namespace's quota has no room for worker-1."""
    world.kubelet.lose("mnist-worker-1")
    world.api.refusals["pod/mnist-worker-1"] = (403, "exceeded quota: pods=1")
    return "pod/mnist-worker-1: exceeded quota: pods=1"


REASONS = [unschedulable, no_image, no_volume, no_quota]


@pytest.mark.parametrize("down", [False, True], ids=["", "the operator was down"])
@pytest.mark.parametrize("hold_up", REASONS)
def test_the_reason_that_keeps_a_pod_from_starting(hold_up: Callable[[World], str], down: bool) -> None:
    world = World(a_job().set(START, 60)).settle()
    why = hold_up(world)
    world.settle()
    if down:
        world.forget()
        world.wait(3600)
    world.run_timers()
    assert (world.status.phase, world.status.reason) == ("Failed", "StartDeadlineExceeded")
    assert world.status.message == f"not training after 60 s (spec.runPolicy.startDeadlineSeconds): {why}"


@pytest.mark.parametrize("hold_up", REASONS)
def test_the_reason_beside_those_whom_the_launchers_miss(hold_up: Callable[[World], str]) -> None:
    world = World(a_launched_job().set(START, 60)).settle()
    why = hold_up(world)
    world.kubelet.start("mnist-worker-0", ready=False)
    world.settle().wait(60).settle()
    assert (world.status.phase != "Running", world.status.message) == (True, why)
    missing = "worker-1 did not join within 60 s (spec.runPolicy.startDeadlineSeconds)"
    world.launchers.end("Failed", "StartDeadlineExceeded", missing, {})
    world.run_timers()
    assert (world.status.phase, world.status.message) == ("Failed", f"{missing}; {why}")


def held(world: World, *pods: str) -> World:
    """These pods cannot get their image."""
    for each in pods:
        world.kubelet.hold(world.name(each), "ErrImagePull", "no such image")
    return world.run()


def test_a_pod_that_never_starts_ends_the_job_with_its_reason() -> None:
    world = held(World(a_job().set(START, 60)).settle(), "worker-1")
    assert world.status.phase == "Starting" and world.timer is not None
    world.run_timers()
    assert (world.status.phase, world.status.reason) == ("Failed", "StartDeadlineExceeded")
    assert world.status.message == f"not training after 60 s (spec.runPolicy.startDeadlineSeconds): worker-1: {HELD}"
    assert world.run().pods == []


def test_it_is_ten_minutes_by_default() -> None:
    world = held(World(a_job()).settle(), "worker-0").wait(599).run()
    assert world.status.phase == "Starting"
    assert world.wait(1).run().status.reason == "StartDeadlineExceeded"


def test_it_ends_with_the_start() -> None:
    world = World(a_job().set(START, 60)).run().wait(3600).run()
    assert (world.status.phase, world.timer) == ("Running", None)
    world.kubelet.start("mnist-worker-1", ready=False)
    assert world.wait(3600).run().status.phase == "Running", "a pod that is not ready for a while is no start"


def test_every_restart_has_its_own() -> None:
    world = World(a_job().set(START, 60)).run().wait(3600).exit("worker-1").settle()
    world.kubelet.remove_deleted()
    held(world.settle(), "worker-0")
    assert world.wait(59).run().status.phase == "Restarting"
    assert world.wait(1).run().status.reason == "StartDeadlineExceeded"


def test_a_quota_that_never_passes() -> None:
    world = World(a_job().set(START, 60))
    world.api.refusals["pod/mnist-worker-1"] = (403, "exceeded quota: pods")
    world.run_timers()
    assert world.status.reason == "StartDeadlineExceeded"
    assert world.status.message is not None and world.status.message.endswith(
        "pod/mnist-worker-1: exceeded quota: pods"
    )


def test_an_old_pod_that_never_goes() -> None:
    world = World(a_job().set(START, 60)).run().exit("worker-1").settle().wait(60).settle()
    assert world.status.reason == "StartDeadlineExceeded"
    assert world.status.message is not None
    assert world.status.message.endswith("waiting for worker-0 of attempt 1 on node-a to stop")


def test_the_operator_was_down_and_the_gang_has_started_meanwhile() -> None:
    world = World(a_job().set(START, 60)).settle()
    world.kubelet.start_all()
    world.forget()
    assert world.wait(3600).run().status.phase == "Running"


def test_the_operator_was_down_and_the_gang_has_not() -> None:
    world = World(a_job().set(START, 60)).settle()
    world.kubelet.start("mnist-worker-0")
    world.forget()
    assert world.wait(3600).run().status.reason == "StartDeadlineExceeded"


def test_pods_that_nobody_has_made_are_not_late() -> None:
    world = World(a_job().set(START, 60))
    world.step(writes=2)
    world.forget()
    assert world.wait(3600).run().status.phase == "Running"


def test_old_pods_that_nobody_has_told_to_go_are_not_late() -> None:
    world = World(a_job().set(START, 60)).run().exit("worker-1")
    world.step(writes=1)
    world.forget()
    assert world.wait(3600).run().status.phase == "Running"


def test_the_chiefs_launcher_holds_it_where_it_runs() -> None:
    world = World(a_launched_job().set(START, 60)).settle()
    world.kubelet.start("mnist-worker-0", ready=False)
    held(world, "worker-1")
    assert world.wait(3600).run().status.phase == "Starting"
    missing = "worker-1 did not join within 60 s (spec.runPolicy.startDeadlineSeconds)"
    world.launchers.end("Failed", "StartDeadlineExceeded", missing, {})
    assert world.run().status.message == f"{missing}; worker-1: {HELD}"


def test_the_operator_holds_it_where_the_chief_cannot_run() -> None:
    world = held(World(a_launched_job().set(START, 60)).settle(), "worker-0").wait(60).run()
    assert world.status.reason == "StartDeadlineExceeded"
    assert world.status.message is not None and world.status.message.endswith(f"worker-0: {HELD}")


def test_and_where_the_chief_is_lost_and_cannot_come_back() -> None:
    world = World(a_launched_job().set(START, 60)).run().wait(3600)
    world.kubelet.lose("mnist-worker-0")
    held(world.settle(), "worker-0")
    assert world.wait(59).run().status.phase == "Restarting"
    assert world.wait(1).run().status.reason == "StartDeadlineExceeded"


def test_a_job_of_which_nothing_can_be_made_at_all() -> None:
    world = World(a_job().set(START, 60))
    world.api.refusals["service/mnist"] = (403, "exceeded quota: services")
    world.run_timers()
    assert world.status.reason == "StartDeadlineExceeded"
    assert world.status.message is not None and world.status.message.endswith("service/mnist: exceeded quota: services")


def test_how_far_it_came_is_told_at_the_end() -> None:
    world = World(a_launched_job().set(ACTIVE, 100)).run().wait(100)
    world.launchers.advance(7, 400)
    world.heard = world.launchers.heard()
    status = world.settle().status
    assert (status.reason, status.progress and status.progress.epoch) == ("DeadlineExceeded", 7)


# --- stallTimeoutSeconds: the launchers hold it; the status tells of it


def stalled() -> World:
    """A gang that stands still; its watchdog has found out, and the restart is not over."""
    world = World(a_launched_job().set(STALL, 60)).run()
    assert world.status.condition("NoProgress") is None
    world.launchers.stall("worker-1")
    world.heard = world.launchers.heard()
    return world.settle()


def no_progress(world: World) -> tuple[str, str]:
    condition = world.status.condition("NoProgress")
    assert condition is not None
    return condition.status, condition.reason


def test_a_stall_is_a_condition_until_all_train_again() -> None:
    world = stalled()
    condition = world.status.condition("NoProgress")
    assert condition is not None and condition.status == "True"
    assert condition.message == "mnist-worker-1 made no step for stallTimeoutSeconds; the gang restarts"
    assert world.status.phase == "Restarting"
    world.run()
    assert (world.status.phase, no_progress(world)) == ("Running", ("False", "Training"))


def test_a_loss_on_the_way_back_is_no_step_yet() -> None:
    world = stalled()
    assert world.launchers.last is not None
    world.launchers.last |= {"reason": "MemberLost", "member": "worker-0"}
    world.heard = world.launchers.heard()
    world.settle()
    assert no_progress(world)[0] == "True"
    assert no_progress(world.run_timers()) == ("False", "Training")


def test_a_chief_that_is_made_anew_knows_of_no_stall() -> None:
    world = stalled().delete("worker-0")
    world.launchers.begin("1")
    world.run_timers()
    assert (world.status.phase, no_progress(world)) == ("Running", ("False", "Training"))


def test_a_job_that_ends_while_it_stands_still_does_not_stand_still_any_more() -> None:
    world = stalled()
    world.launchers.end("Failed", "MaxRestartsExceeded", "worker-1 stalled; all restarts are used up", {})
    world.run()
    assert (world.status.phase, no_progress(world)) == ("Failed", ("False", "MaxRestartsExceeded"))


def test_neither_does_one_that_runs_out_of_time_meanwhile() -> None:
    world = stalled()
    world.api.edit(ACTIVE, 1)
    world.wait(2).settle()
    assert no_progress(world) == ("False", "DeadlineExceeded")


def test_neither_does_one_that_is_suspended() -> None:
    world = stalled()
    world.api.edit("runPolicy.suspend", True)
    world.run()
    assert (world.status.phase, no_progress(world)) == ("Suspended", ("False", "Suspended"))
    world.api.edit("runPolicy.suspend", False)
    assert no_progress(world.run())[0] == "False"


def test_a_stall_is_charged_and_the_operator_need_not_be_there() -> None:
    world = World(a_launched_job().set(STALL, 60)).run()
    world.forget()
    world.launchers.stall("worker-1")
    world.launchers.tick()
    world.wait(600).run()
    assert (world.status.phase, world.status.restarts.counted) == ("Running", 1)
    assert world.status.last_restart is not None and world.status.last_restart.reason == "Stalled"
    assert world.status.condition("NoProgress") is None, "it was over before anybody looked"


# --- ttlSecondsAfterFinished: the job itself is deleted, after all that is to be done for it, and not before


def succeeded(ttl: int, **storage: object) -> World:
    job = a_job().set(TTL, ttl)
    world = World(job.storage() if storage else job).run().wait(60)
    return world.exit("worker-0", code=0).run()


def test_a_job_goes_when_its_time_has_come() -> None:
    world = succeeded(100)
    assert world.timer is not None and world.status.completion_time is not None
    assert (world.timer - world.status.completion_time).total_seconds() == 100
    assert not world.wait(99).step() and not world.api.gone
    assert world.wait(1).run().api.gone
    assert world.api.writes[-1] == "delete job"
    assert not world.step(), "it is asked for once"


def test_a_failed_job_goes_too() -> None:
    world = World(a_job().set(TTL, 10).max_restarts(0)).run().exit("worker-1").run()
    assert world.wait(10).run().api.gone


def test_never_by_default() -> None:
    world = World(a_job()).run().exit("worker-0", code=0).run().wait(10**8).run()
    assert not world.api.gone and world.timer is None


def test_at_once() -> None:
    assert succeeded(0).api.gone


def test_not_before_the_cleanup_is_given_up() -> None:
    world = succeeded(0, storage=True)
    assert world.status.completion_time is not None
    world.kubelet.hold("mnist-cleanup", "ErrImagePull", "no such image")
    world.run_timers()
    assert world.api.gone and (world.now - world.status.completion_time).total_seconds() == 600
    cleaned = world.status.condition("Cleaned")
    assert cleaned is not None and cleaned.status == "False"


def test_not_before_the_members_have_left() -> None:
    world = World(a_launched_job().set(TTL, 0).max_restarts(0)).run().exit("worker-1", code=137).run()
    assert world.status.phase == "Failed" and not world.api.gone, "worker-0 may leave by itself"
    assert world.run_timers().api.gone


def test_an_operator_that_was_down_past_the_end_of_its_time() -> None:
    world = World(a_job().set(TTL, 100)).run().exit("worker-0", code=0)
    world.forget()
    world.wait(10**6).run()
    assert world.status.phase == "Succeeded" and not world.api.gone, "nobody has known of the end until now"
    world.forget()
    assert world.wait(100).run().api.gone


def test_a_ttl_that_is_set_afterwards_counts() -> None:
    world = World(a_job()).run().exit("worker-0", code=0).run().wait(60)
    world.api.edit(TTL, 30)
    assert world.run().api.gone


def test_a_job_that_was_changed_meanwhile_is_looked_at_again() -> None:
    world = succeeded(10).wait(10)
    seen = world.api.snapshot()
    world.api.edit(TTL, 1000)
    world.step(seen=seen)
    assert not world.run().api.gone


@pytest.mark.parametrize("phase", ["Running", "Suspended"])
def test_only_a_job_that_is_done(phase: str) -> None:
    world = World(a_job().set(TTL, 0).set("runPolicy.suspend", phase == "Suspended")).run().wait(3600).run()
    assert world.status.phase == phase and not world.api.gone


def test_a_time_beyond_the_calendar_does_no_harm() -> None:
    world = succeeded(100)
    world.api.job["status"]["completionTime"] = "9999-12-31T23:59:59Z"
    assert not world.step() and not world.api.gone


def test_not_before_the_pods_that_go_are_gone() -> None:
    world = World(a_job().set(TTL, 0)).run().exit("worker-0", code=0).settle()
    assert "deletionTimestamp" in world.api.pods["mnist-worker-1"]["metadata"]
    assert not world.wait(30).step() and not world.api.gone
    world.kubelet.remove_deleted()
    assert world.run().api.gone


def test_a_pod_on_a_dead_node_is_not_left_behind() -> None:
    world = World(a_job().set(TTL, 0).set("runPolicy.cleanPodPolicy", "All")).run()
    world.machines.add("node-b")
    world.machines.die("node-a")
    world.exit("worker-0", code=0).run_timers()
    assert world.api.gone and world.pods == []


def test_pods_that_are_kept_running_do_not_keep_the_job() -> None:
    world = World(a_job().set(TTL, 60).set("runPolicy.cleanPodPolicy", "None")).run().exit("worker-0", code=0).run()
    assert "worker-1" in world.pods
    assert world.wait(60).run().api.gone
