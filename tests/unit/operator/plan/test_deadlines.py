"""Row: deadlines. activeDeadlineSeconds (suspended time does not count), startDeadlineSeconds (with the reason that
keeps pods from starting), stallTimeoutSeconds, ttlSecondsAfterFinished; all right when the operator was down past them.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tftraining_api.manifests.network_policy import OperatorSelector
from tftraining_operator.model.launcher_report import parse_report
from tftraining_operator.model.observed import LauncherReport
from tftraining_operator.plan.messages import LATE

ACTIVE = "runPolicy.activeDeadlineSeconds"
START = "runPolicy.startDeadlineSeconds"
STALL = "runPolicy.stallTimeoutSeconds"
TTL = "runPolicy.ttlSecondsAfterFinished"
HELD = "container tensorflow: image pull failed (trainer:1): no such image"
POD_GROUP, VOLCANO = "podgroup/mnist-job-uid", {"apiVersion": "scheduling.volcano.sh/v1beta1"}
NewJob = Callable[[], JobBuilder]
BOTH = pytest.mark.parametrize("new_job", [a_job, a_launched_job], ids=["Recreate", "InPlace"])


# --- activeDeadlineSeconds


@BOTH
def test_a_job_that_runs_too_long(new_job: NewJob) -> None:
    cluster = SimulatedCluster(new_job()).run()
    cluster.api.edit(ACTIVE, 100)
    cluster.wait(99).run()
    assert cluster.status.phase == "Running" and cluster.timer is not None
    cluster.api.now = cluster.timer
    cluster.settle()
    assert (cluster.status.phase, cluster.status.reason) == ("Failed", "DeadlineExceeded")
    assert cluster.status.message == "not finished after 100 s (spec.runPolicy.activeDeadlineSeconds)"
    assert cluster.api.writes[-2:] == ["delete pod/mnist-worker-0", "delete pod/mnist-worker-1"], "nobody is waited for"
    assert (cluster.events[-1].type, cluster.events[-1].reason) == ("Warning", "Failed")
    assert cluster.run().pods == []


def test_it_counts_restarts_too() -> None:
    cluster = SimulatedCluster(a_job().set(ACTIVE, 100)).run().wait(60).exit("worker-1").run().wait(40).run()
    assert (cluster.status.reason, cluster.status.restarts.counted) == ("DeadlineExceeded", 1)


def test_it_ends_a_job_that_never_starts() -> None:
    cluster = SimulatedCluster(a_job().set(ACTIVE, 100)).settle().wait(100).settle()
    assert cluster.status.reason == "DeadlineExceeded"


def test_a_failure_in_the_same_moment_is_not_charged() -> None:
    cluster = SimulatedCluster(a_job().set(ACTIVE, 100)).run().wait(100).exit("worker-1").run()
    assert (cluster.status.reason, cluster.status.restarts.counted) == ("DeadlineExceeded", 0)
    assert cluster.status.replicas["worker"].failed == 1
    assert cluster.pods == ["worker-1"], "failed pods are kept"


def test_what_is_done_is_done_however_late_the_operator_sees_it() -> None:
    cluster = SimulatedCluster(a_job().set(ACTIVE, 100)).run().wait(50).exit("worker-0", code=0).wait(500)
    cluster.forget()
    assert cluster.run().status.phase == "Succeeded"


def test_an_operator_that_was_down_past_it() -> None:
    cluster = SimulatedCluster(a_job().set(ACTIVE, 100)).run()
    cluster.forget()
    assert cluster.wait(500).run().status.reason == "DeadlineExceeded"


def test_it_may_be_changed_while_the_job_runs() -> None:
    cluster = SimulatedCluster(a_job().set(ACTIVE, 100)).run().wait(90)
    cluster.api.edit(ACTIVE, 1000)
    assert cluster.wait(90).run().status.phase == "Running"
    cluster.api.edit(ACTIVE, 60)
    assert cluster.run().status.phase == "Failed"


def test_a_job_whose_status_is_written_late_has_started_with_its_pods() -> None:
    cluster = SimulatedCluster(a_job())
    began = cluster.now
    cluster.step(soon=True)
    assert cluster.api.pods and cluster.status.phase == "Pending"
    cluster.wait(8).run()
    assert cluster.status.start_time == began.replace(microsecond=0)


def test_a_start_time_beyond_the_calendar_does_no_harm() -> None:
    cluster = SimulatedCluster(a_job().set(ACTIVE, 100)).run()
    cluster.api.job["status"]["startTime"] = "9999-12-31T23:59:59Z"
    assert cluster.run().status.phase == "Running"


@BOTH
def test_suspended_time_does_not_count_however_often_it_is_suspended(new_job: NewJob) -> None:
    cluster = SimulatedCluster(new_job().set(ACTIVE, 100)).run()
    for _ in range(3):
        cluster.wait(99).run()
        cluster.api.edit("runPolicy.suspend", True)
        cluster.run().wait(1000).run()
        assert cluster.status.phase == "Suspended"
        cluster.api.edit("runPolicy.suspend", False)
        cluster.run()
    assert cluster.wait(99).run().status.phase == "Running"
    assert cluster.wait(1).run().status.reason == "DeadlineExceeded"


@BOTH
def test_a_suspension_in_time_saves_a_job_though_the_operator_hears_of_it_late(new_job: NewJob) -> None:
    cluster = SimulatedCluster(new_job().set(ACTIVE, 100)).run()
    cluster.forget()
    cluster.wait(50).api.edit("runPolicy.suspend", True)
    assert cluster.wait(500).run().status.phase == "Suspended"


@BOTH
def test_what_has_ended_while_the_operator_was_down_is_no_matter_of_time(new_job: NewJob) -> None:
    cluster = SimulatedCluster(new_job().set(ACTIVE, 100).set(START, 60)).run().wait(50)
    if cluster.launched:
        cluster.launchers.finish()
    else:
        cluster.exit("worker-0", code=0)
    cluster.wait(500).forget()
    assert cluster.run().status.phase == "Succeeded"


# --- startDeadlineSeconds


def unschedulable(cluster: SimulatedCluster) -> str:
    """The scheduler has no place for worker-1."""
    why = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
    cluster.kubelet.condition("mnist-worker-1", condition)
    return f"worker-1: cannot be scheduled: {why}"


def no_image(cluster: SimulatedCluster) -> str:
    """The registry has no image for worker-1."""
    cluster.kubelet.set_waiting(
        "mnist-worker-1", "ImagePullBackOff", "Back-off pulling image: ErrImagePull: no such image"
    )
    return f"worker-1: {HELD}"


def no_volume(cluster: SimulatedCluster) -> str:
    """The volumes of worker-1 cannot be mounted; the kubelet says so in an event only."""
    cluster.kubelet.set_waiting("mnist-worker-1", "ContainerCreating")
    cluster.kubelet.condition("mnist-worker-1", {"type": "PodReadyToStartContainers", "status": "False"})
    return "worker-1: volumes or network not ready (see kubectl describe pod)"


def no_quota(cluster: SimulatedCluster) -> str:
    """The namespace's quota has no room for worker-1."""
    cluster.kubelet.force_delete("mnist-worker-1")
    cluster.api.refusals["pod/mnist-worker-1"] = (403, "exceeded quota: pods=1")
    return "pod/mnist-worker-1: exceeded quota: pods=1"


REASONS = [unschedulable, no_image, no_volume, no_quota]


@pytest.mark.parametrize("down", [False, True], ids=["", "the operator was down"])
@pytest.mark.parametrize("hold_up", REASONS)
def test_the_reason_that_keeps_a_pod_from_starting(hold_up: Callable[[SimulatedCluster], str], down: bool) -> None:
    cluster = SimulatedCluster(a_job().set(START, 60)).settle()
    why = hold_up(cluster)
    cluster.settle()
    if down:
        cluster.forget()
        cluster.wait(3600)
    cluster.run_timers()
    assert (cluster.status.phase, cluster.status.reason) == ("Failed", "StartDeadlineExceeded")
    assert cluster.status.message == f"not training after 60 s (spec.runPolicy.startDeadlineSeconds): {why}"


@pytest.mark.parametrize("hold_up", REASONS)
def test_the_reason_beside_those_whom_the_launchers_miss(hold_up: Callable[[SimulatedCluster], str]) -> None:
    cluster = SimulatedCluster(a_launched_job().set(START, 60)).settle()
    why = hold_up(cluster)
    cluster.kubelet.start("mnist-worker-0", ready=False)
    cluster.settle().wait(60).settle()
    assert (cluster.status.phase != "Running", cluster.status.message) == (True, why)
    missing = "worker-1 did not connect within 60 s (spec.runPolicy.startDeadlineSeconds)"
    cluster.launchers.end("Failed", "StartDeadlineExceeded", missing, {})
    cluster.run_timers()
    assert (cluster.status.phase, cluster.status.message) == ("Failed", f"{missing}; {why}")


def held(cluster: SimulatedCluster, *pods: str) -> SimulatedCluster:
    """These pods cannot get their image."""
    for each in pods:
        cluster.kubelet.set_waiting(cluster.name(each), "ErrImagePull", "no such image")
    return cluster.run()


def test_a_pod_that_never_starts_ends_the_job_with_its_reason() -> None:
    cluster = held(SimulatedCluster(a_job().set(START, 60)).settle(), "worker-1")
    assert cluster.status.phase == "Starting" and cluster.timer is not None
    cluster.run_timers()
    assert (cluster.status.phase, cluster.status.reason) == ("Failed", "StartDeadlineExceeded")
    assert cluster.status.message == f"not training after 60 s (spec.runPolicy.startDeadlineSeconds): worker-1: {HELD}"
    assert cluster.run().pods == []


def test_it_is_ten_minutes_by_default() -> None:
    cluster = held(SimulatedCluster(a_job()).settle(), "worker-0").wait(599).run()
    assert cluster.status.phase == "Starting"
    assert cluster.wait(1).run().status.reason == "StartDeadlineExceeded"


def test_it_ends_with_the_start() -> None:
    cluster = SimulatedCluster(a_job().set(START, 60)).run().wait(3600).run()
    assert (cluster.status.phase, cluster.timer) == ("Running", None)
    cluster.kubelet.start("mnist-worker-1", ready=False)
    assert cluster.wait(3600).run().status.phase == "Running", "a pod that is not ready for a while is no start"


def test_every_restart_has_its_own() -> None:
    cluster = SimulatedCluster(a_job().set(START, 60)).run().wait(3600).exit("worker-1").settle()
    cluster.kubelet.remove_deleted()
    held(cluster.settle(), "worker-0")
    assert cluster.wait(59).run().status.phase == "Restarting"
    assert cluster.wait(1).run().status.reason == "StartDeadlineExceeded"


def test_a_quota_that_never_passes() -> None:
    cluster = SimulatedCluster(a_job().set(START, 60))
    cluster.api.refusals["pod/mnist-worker-1"] = (403, "exceeded quota: pods")
    cluster.run_timers()
    assert cluster.status.reason == "StartDeadlineExceeded"
    assert cluster.status.message is not None and cluster.status.message.endswith(
        "pod/mnist-worker-1: exceeded quota: pods"
    )


def test_an_old_pod_that_never_goes() -> None:
    cluster = SimulatedCluster(a_job().set(START, 60)).run().exit("worker-1").settle().wait(60).settle()
    assert cluster.status.reason == "StartDeadlineExceeded"
    assert cluster.status.message is not None
    assert f"waiting for worker-0 of attempt 1 on node-a to stop; {LATE}" in cluster.status.message


def test_the_operator_was_down_and_the_gang_has_started_meanwhile() -> None:
    cluster = SimulatedCluster(a_job().set(START, 60)).settle()
    cluster.kubelet.start_all()
    cluster.forget()
    assert cluster.wait(3600).run().status.phase == "Running"


def test_the_operator_was_down_and_the_gang_has_not() -> None:
    cluster = SimulatedCluster(a_job().set(START, 60)).settle()
    cluster.kubelet.start("mnist-worker-0")
    cluster.forget()
    assert cluster.wait(3600).run().status.reason == "StartDeadlineExceeded"


def test_pods_that_nobody_has_made_are_not_late() -> None:
    cluster = SimulatedCluster(a_job().set(START, 60))
    cluster.step(writes=2)
    cluster.forget()
    assert cluster.wait(3600).run().status.phase == "Running"


def test_old_pods_that_nobody_has_told_to_go_are_not_late() -> None:
    cluster = SimulatedCluster(a_job().set(START, 60)).run().exit("worker-1")
    cluster.step(writes=1)
    cluster.forget()
    assert cluster.wait(3600).run().status.phase == "Running"


def test_the_chiefs_launcher_holds_it_where_it_runs() -> None:
    cluster = SimulatedCluster(a_launched_job().set(START, 60)).settle()
    cluster.kubelet.start("mnist-worker-0", ready=False)
    held(cluster, "worker-1")
    assert cluster.wait(3600).run().status.phase == "Starting"
    missing = "worker-1 did not connect within 60 s (spec.runPolicy.startDeadlineSeconds)"
    cluster.launchers.end("Failed", "StartDeadlineExceeded", missing, {})
    assert cluster.run().status.message == f"{missing}; worker-1: {HELD}"


def test_the_operator_holds_it_where_the_chief_cannot_run() -> None:
    cluster = held(SimulatedCluster(a_launched_job().set(START, 60)).settle(), "worker-0").wait(60).run()
    assert cluster.status.reason == "StartDeadlineExceeded"
    assert cluster.status.message is not None and cluster.status.message.endswith(f"worker-0: {HELD}")


def test_and_where_the_chief_is_lost_and_cannot_come_back() -> None:
    cluster = SimulatedCluster(a_launched_job().set(START, 60)).run().wait(3600)
    cluster.kubelet.force_delete("mnist-worker-0")
    held(cluster.settle(), "worker-0")
    assert cluster.wait(59).run().status.phase == "Restarting"
    assert cluster.wait(1).run().status.reason == "StartDeadlineExceeded"


@BOTH
@pytest.mark.parametrize("child", ["pod/mnist-worker-0", "service/mnist", "networkpolicy/mnist-job-uid", POD_GROUP])
def test_whatever_object_is_refused_the_wait_for_it_is_as_long(new_job: NewJob, child: str) -> None:
    cluster = SimulatedCluster(new_job().set("runPolicy.scheduling.podGroup", VOLCANO).set(START, 60))
    cluster.operator_selector = OperatorSelector("system", {"a": "b"}) if child != POD_GROUP else None
    cluster.api.refusals[child] = (403, "denied the request: window")
    cluster.settle()
    assert (cluster.status.phase, cluster.status.reason) == ("Starting", "CreationRefused")
    began = cluster.now
    cluster.run_timers()
    assert (cluster.status.reason, (cluster.now - began).total_seconds()) == ("StartDeadlineExceeded", 60)
    assert cluster.status.message is not None
    assert cluster.status.message.endswith(f"{child}: denied the request: window")


def test_how_far_it_came_is_told_at_the_end() -> None:
    cluster = SimulatedCluster(a_launched_job().set(ACTIVE, 100)).run().wait(100)
    cluster.launchers.advance(7, 400)
    cluster.launcher_report = cluster.launchers.last_report()
    status = cluster.settle().status
    assert (status.reason, status.progress and status.progress.epoch) == ("DeadlineExceeded", 7)


# --- stallTimeoutSeconds: the launchers hold it; the status tells of it


def stalled() -> SimulatedCluster:
    """A gang that stands still; the chief has found out, and the restart is not over."""
    cluster = SimulatedCluster(a_launched_job().set(STALL, 60)).run()
    assert cluster.status.condition("NoProgress") is None
    cluster.launchers.stall("worker-1")
    cluster.launcher_report = cluster.launchers.last_report()
    return cluster.settle()


def no_progress(cluster: SimulatedCluster) -> tuple[str, str]:
    condition = cluster.status.condition("NoProgress")
    assert condition is not None
    return condition.status, condition.reason


def test_a_stall_is_a_condition_until_all_train_again() -> None:
    cluster = stalled()
    condition = cluster.status.condition("NoProgress")
    assert condition is not None and condition.status == "True"
    assert (
        condition.message == "mnist-worker-1 made no step for spec.runPolicy.stallTimeoutSeconds; restarting the gang"
    )
    assert cluster.status.phase == "Restarting"
    cluster.run()
    assert (cluster.status.phase, no_progress(cluster)) == ("Running", ("False", "Training"))


def test_a_loss_on_the_way_back_is_no_step_yet() -> None:
    cluster = stalled()
    assert cluster.launchers.last is not None
    cluster.launchers.last |= {"reason": "MemberLost", "member": "worker-0"}
    cluster.launcher_report = cluster.launchers.last_report()
    cluster.settle()
    assert no_progress(cluster)[0] == "True"
    assert no_progress(cluster.run_timers()) == ("False", "Training")


def test_a_chief_that_is_made_anew_knows_of_no_stall() -> None:
    cluster = stalled().delete("worker-0")
    cluster.launchers.begin("1")
    cluster.run_timers()
    assert (cluster.status.phase, no_progress(cluster)) == ("Running", ("False", "Training"))


def test_a_job_that_ends_while_it_stands_still_does_not_stand_still_any_more() -> None:
    cluster = stalled()
    cluster.launchers.end("Failed", "MaxRestartsExceeded", "worker-1 stalled; all restarts are used up", {})
    cluster.run()
    assert (cluster.status.phase, no_progress(cluster)) == ("Failed", ("False", "MaxRestartsExceeded"))


def test_neither_does_one_that_runs_out_of_time_meanwhile() -> None:
    cluster = stalled()
    cluster.api.edit(ACTIVE, 1)
    cluster.wait(2).settle()
    assert no_progress(cluster) == ("False", "DeadlineExceeded")


def test_neither_does_one_that_is_suspended() -> None:
    cluster = stalled()
    cluster.api.edit("runPolicy.suspend", True)
    cluster.run()
    assert (cluster.status.phase, no_progress(cluster)) == ("Suspended", ("False", "Suspended"))
    cluster.api.edit("runPolicy.suspend", False)
    assert no_progress(cluster.run())[0] == "False"


def test_a_stall_is_charged_and_the_operator_need_not_be_there() -> None:
    cluster = SimulatedCluster(a_launched_job().set(STALL, 60)).run()
    cluster.forget()
    cluster.launchers.stall("worker-1")
    cluster.launchers.tick()
    cluster.wait(600).run()
    assert (cluster.status.phase, cluster.status.restarts.counted) == ("Running", 1)
    assert cluster.status.last_restart is not None and cluster.status.last_restart.reason == "Stalled"
    assert cluster.status.condition("NoProgress") is None, "it was over before anybody looked"


# --- a gang that has connected and does not begin to train: the launchers notice it; the status tells of it


def starting(**told: Any) -> SimulatedCluster:
    """Both launchers run, and no program trains; the chief's launcher reports this."""
    cluster = SimulatedCluster(a_launched_job()).settle()
    for name in ("mnist-worker-0", "mnist-worker-1"):
        cluster.kubelet.start(name, ready=False)
    return report(cluster, phase="Starting", **told)


def report(cluster: SimulatedCluster, **told: Any) -> SimulatedCluster:
    text = msgspec.json.encode({**cluster.launchers.status(), **told})
    uid = cluster.api.pods["mnist-worker-0"]["metadata"]["uid"]
    cluster.launcher_report = LauncherReport(uid, parse_report(text))
    return cluster.settle()


def test_a_gang_that_loads_for_longer_than_ten_minutes_is_a_condition_and_one_event_until_it_trains() -> None:
    words = "worker-0, worker-1: no step within 600 s (spec.runPolicy.startDeadlineSeconds)"
    cluster = starting(reason="SlowStart", message=words)
    condition = cluster.status.condition("NoProgress")
    assert condition is not None and (condition.status, condition.message) == ("True", words)
    report(cluster.wait(60), phase="Starting", reason="SlowStart", message=words)
    assert (cluster.status.phase, no_progress(cluster)) == ("Starting", ("True", "SlowStart"))
    assert [(each.type, each.message) for each in cluster.events if each.reason == "SlowStart"] == [("Warning", words)]
    assert cluster.run().status.phase == "Running"
    assert no_progress(cluster) == ("False", "Training")


def test_a_member_that_exits_with_0_before_the_others_have_started_is_named() -> None:
    cluster = starting(finished=["worker-1"])
    cluster.kubelet.start("mnist-worker-1")
    cluster.settle()
    words = "waiting for worker-0 to start; worker-1 exited with code 0 before the others had started"
    assert (cluster.status.phase, cluster.status.message) == ("Starting", words)


# --- ttlSecondsAfterFinished: the job itself is deleted, after all that is to be done for it, and not before


def succeeded(ttl: int, **storage: object) -> SimulatedCluster:
    job = a_job().set(TTL, ttl)
    cluster = SimulatedCluster(job.storage() if storage else job).run().wait(60)
    return cluster.exit("worker-0", code=0).run()


def test_a_job_goes_when_its_time_has_come() -> None:
    cluster = succeeded(100)
    assert cluster.timer is not None and cluster.status.completion_time is not None
    assert (cluster.timer - cluster.status.completion_time).total_seconds() == 100
    assert not cluster.wait(99).step() and not cluster.api.gone
    assert cluster.wait(1).run().api.gone
    assert cluster.api.writes[-1] == "delete job"
    assert not cluster.step(), "it is asked for once"


def test_a_failed_job_goes_too() -> None:
    cluster = SimulatedCluster(a_job().set(TTL, 10).max_restarts(0)).run().exit("worker-1").run()
    assert cluster.wait(10).run().api.gone


def test_never_by_default() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-0", code=0).run().wait(10**8).run()
    assert not cluster.api.gone and cluster.timer is None


def test_at_once() -> None:
    assert succeeded(0).api.gone


def test_not_before_the_cleanup_is_given_up() -> None:
    cluster = succeeded(0, storage=True)
    assert cluster.status.completion_time is not None
    cluster.kubelet.set_waiting("mnist-cleanup", "ErrImagePull", "no such image")
    cluster.run_timers()
    assert cluster.api.gone and (cluster.now - cluster.status.completion_time).total_seconds() == 600
    cleaned = cluster.status.condition("Cleaned")
    assert cleaned is not None and cleaned.status == "False"


def test_not_before_the_members_have_left() -> None:
    cluster = SimulatedCluster(a_launched_job().set(TTL, 0).max_restarts(0)).run().exit("worker-1", code=137).run()
    assert cluster.status.phase == "Failed" and not cluster.api.gone, "worker-0 may leave by itself"
    assert cluster.run_timers().api.gone


def test_an_operator_that_was_down_past_the_end_of_its_time() -> None:
    cluster = SimulatedCluster(a_job().set(TTL, 100)).run().exit("worker-0", code=0)
    cluster.forget()
    cluster.wait(10**6).run()
    assert cluster.status.phase == "Succeeded" and not cluster.api.gone, "nobody has known of the end until now"
    cluster.forget()
    assert cluster.wait(100).run().api.gone


def test_a_ttl_that_is_set_afterwards_counts() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-0", code=0).run().wait(60)
    cluster.api.edit(TTL, 30)
    assert cluster.run().api.gone


def test_a_job_that_was_changed_meanwhile_is_looked_at_again() -> None:
    cluster = succeeded(10).wait(10)
    seen = cluster.api.snapshot()
    cluster.api.edit(TTL, 1000)
    cluster.step(snapshot=seen)
    assert not cluster.run().api.gone


@pytest.mark.parametrize("phase", ["Running", "Suspended"])
def test_only_a_job_that_is_done(phase: str) -> None:
    cluster = (
        SimulatedCluster(a_job().set(TTL, 0).set("runPolicy.suspend", phase == "Suspended")).run().wait(3600).run()
    )
    assert cluster.status.phase == phase and not cluster.api.gone


def test_a_time_beyond_the_calendar_does_no_harm() -> None:
    cluster = succeeded(100)
    cluster.api.job["status"]["completionTime"] = "9999-12-31T23:59:59Z"
    cluster.settle().wait(99).settle()
    assert not cluster.api.gone
    assert cluster.wait(1).run().api.gone, "such a time counts from when it is found"


def test_not_before_the_pods_that_go_are_gone() -> None:
    cluster = SimulatedCluster(a_job().set(TTL, 0)).run().exit("worker-0", code=0).settle()
    assert "deletionTimestamp" in cluster.api.pods["mnist-worker-1"]["metadata"]
    assert not cluster.wait(30).step() and not cluster.api.gone
    cluster.kubelet.remove_deleted()
    assert cluster.run().api.gone


def test_a_pod_on_a_dead_node_is_not_left_behind() -> None:
    cluster = SimulatedCluster(a_job().set(TTL, 0).set("runPolicy.cleanPodPolicy", "All")).run()
    cluster.nodes.add("node-b")
    cluster.nodes.power_off("node-a")
    cluster.exit("worker-0", code=0).run_timers()
    assert cluster.api.gone and cluster.pods == []


def test_pods_that_are_kept_running_do_not_keep_the_job() -> None:
    cluster = (
        SimulatedCluster(a_job().set(TTL, 60).set("runPolicy.cleanPodPolicy", "None"))
        .run()
        .exit("worker-0", code=0)
        .run()
    )
    assert "worker-1" in cluster.pods
    assert cluster.wait(60).run().api.gone


def test_a_gang_without_a_step_is_a_condition_and_an_event_and_goes_on() -> None:
    words = "worker-1: no step for 600 s, which is unusual for this job"
    cluster = SimulatedCluster(a_launched_job()).run()
    report(cluster, phase="Training", reason="NoStep", message=words)
    report(cluster.wait(60), phase="Training", reason="NoStep", message=words)
    assert (cluster.status.phase, no_progress(cluster)) == ("Running", ("True", "NoStep"))
    assert cluster.status.message == f"2 replicas training; {words} (NoStep)"
    assert [(each.type, each.message) for each in cluster.events if each.reason == "NoStep"] == [("Warning", words)]
    report(cluster, phase="Training", reason="Training", message="all members training")
    assert (cluster.status.message, no_progress(cluster)) == ("2 replicas training", ("False", "Training"))


def test_a_gang_whose_programs_report_nothing_is_not_said_to_train() -> None:
    cluster = SimulatedCluster(a_launched_job()).settle()
    cluster.kubelet.start("mnist-worker-0", "mnist-worker-1")
    report(cluster, phase="Training", reason="NoStepYet", message="all members running; no step reported yet")
    assert cluster.status.message == "2 replicas running; no step reported yet"
    assert cluster.events[-1].message == "2/2 replicas running; no step reported yet"
