"""How long a job may take to start and to run; also when the operator was not there to see the time pass."""

from collections.abc import Callable

import pytest

from tests.unit.operator.builders import JobBuilder, a_job, a_launched_job
from tests.unit.operator.simulation import World

ACTIVE = "runPolicy.activeDeadlineSeconds"
START = "runPolicy.startDeadlineSeconds"
HELD = "image pull failed: no such image"


# --- activeDeadlineSeconds


@pytest.mark.parametrize("new_job", [a_job, a_launched_job])
def test_a_job_that_runs_too_long(new_job: Callable[[], JobBuilder]) -> None:
    world = World(new_job()).run()
    world.api.edit(ACTIVE, 100)
    world.wait(99).run()
    assert world.status.phase == "Running" and world.timer is not None
    world.api.now = world.timer
    world.settle()
    assert (world.status.phase, world.status.reason) == ("Failed", "DeadlineExceeded")
    assert world.status.message == "not done after 100 s (spec.runPolicy.activeDeadlineSeconds)"
    assert world.api.writes[-2:] == ["delete pod/mnist-worker-0", "delete pod/mnist-worker-1"], "nobody is waited for"
    assert (world.notes[-1].type, world.notes[-1].reason) == ("Warning", "Failed")
    assert world.run().pods == []


def test_its_temporary_directories_are_removed() -> None:
    world = World(a_job().storage().set(ACTIVE, 100)).run().wait(100).run()
    assert (world.status.phase, world.pods) == ("Failed", ["cleanup"])


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


# --- startDeadlineSeconds


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
    assert world.status.message is not None and world.status.message.endswith(f"worker-0: {HELD} (and 1 more)")


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
