"""Launchers restart in place: what the status tells of it, and which pods the operator replaces, each alone."""

from datetime import timedelta

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_launched_job
from tests.support.simulated_cluster.simulation import World
from tftraining_api.model.status import Restarts


def running(job: JobBuilder | None = None) -> World:
    world = World(job or a_launched_job()).run()
    world.trajectory.clear()
    world.events.clear()
    return world


def uids(world: World) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in world.api.pods.items()}


# --- the start


def test_the_secret_comes_with_the_pods_and_only_then() -> None:
    world = World(a_launched_job())
    step = world.plan()
    assert step.create_secret is not None and len(step.create_pods) == 2
    world.run()
    assert world.plan().create_secret is None
    assert world.delete("worker-1").settle().plan().create_secret is None


def test_starting_becomes_running_when_all_train() -> None:
    world = World(a_launched_job()).settle()
    world.kubelet.start_all(launched=True)
    world.settle()
    assert (world.status.phase, world.status.message) == ("Starting", "waiting for worker-0, worker-1 to start")
    world.listen()
    assert world.settle().status.phase == "Running"
    assert world.status.message == "2 replicas training"


def test_a_report_that_is_older_than_readiness_delays_the_phase_and_never_turns_it_back() -> None:
    world = World(a_launched_job()).settle()
    world.kubelet.start_all(launched=True)
    world.heard = world.launchers.heard()
    world.kubelet.start("mnist-worker-0", "mnist-worker-1")
    assert world.settle().status.phase == "Starting"
    world.heard = None
    assert world.settle().status.phase == "Running"
    world.heard = world.launchers.heard()
    assert world.heard is not None and world.heard.report.phase == "Waiting"
    assert world.settle().status.phase == "Running"


def test_a_job_whose_launcher_cannot_be_reached_runs_by_its_pods_readiness() -> None:
    world = World(a_launched_job()).settle()
    world.kubelet.start_all()
    assert world.settle().status.phase == "Running"


def test_a_job_that_fails_by_a_lost_pod_counts_it_no_longer() -> None:
    world = running(a_launched_job().max_restarts(0)).exit("worker-1").run()
    assert (world.status.phase, world.status.ready) == ("Failed", "1/2")


# --- restarts in place


def test_a_restart_that_is_over_before_anybody_looked_is_told_without_a_change_of_phase() -> None:
    world = running()
    world.launchers.advance(3, 140)
    world.launchers.crash("worker-1")
    world.launchers.tick()
    world.run()
    status, last = world.status, world.status.last_restart
    assert {each.split()[0] for each in world.trajectory} == {"Running"}
    assert status.message == "worker-1 was killed (SIGKILL); resumed from epoch 2 after 1.1 s"
    assert last is not None
    assert (last.pod, last.signal, last.reason) == ("mnist-worker-1", 9, "Killed")
    assert (last.down_seconds, last.resumed_from_epoch, last.resumed_from_step, last.lost_steps) == (1.1, 2, 140, 3)
    assert status.restarts == Restarts(
        counted=1, in_place=1, budget_used=1, without_progress=1, epoch=3, checkpoint=140
    )
    assert [(note.type, note.reason, note.message) for note in world.events] == [
        ("Warning", "Killed", "worker-1 was killed (SIGKILL); resumed from epoch 2 after 1.1 s")
    ]
    assert status.attempt == 1
    assert status.failure is not None
    assert (status.failure.reason, status.failure.log_tail) == ("Killed", "the last line")


def test_a_restart_that_takes_its_time_is_shown() -> None:
    world = running()
    world.launchers.crash("worker-1", code=3)
    world.heard = world.launchers.heard()
    world.settle()
    assert (world.status.phase, world.status.reason) == ("Restarting", "Error")
    assert world.status.message == "worker-1 failed with exit code 3; restarting in place"
    assert not world.step(), "no flapping while nothing happens"
    world.run()
    assert world.status.phase == "Running"
    assert [each.split()[0] for each in world.trajectory] == ["Restarting", "Running"]
    assert [note.reason for note in world.events] == ["Error", "Training"]


def test_a_gang_that_restarts_is_not_ready_whatever_the_probes_have_not_seen_yet() -> None:
    world = running()
    world.launchers.crash("worker-1")
    world.kubelet.start("mnist-worker-0", "mnist-worker-1")
    world.heard = world.launchers.heard()
    world.settle()
    assert (world.status.phase, world.status.is_true("Ready")) == ("Restarting", False)


def test_a_crash_before_the_gang_had_trained_is_a_restart_too() -> None:
    world = World(a_launched_job()).settle()
    world.kubelet.start_all(launched=True)
    world.settle()
    world.launchers.tick()
    world.launchers.crash("worker-0", code=1)
    world.heard = world.launchers.heard()
    assert world.settle().status.phase == "Restarting"
    assert world.run().status.restarts.in_place == 1


@pytest.mark.parametrize(
    ("epoch", "step", "status", "reason", "words"),
    [
        (3, 140, "True", "Resumed", "resumed from epoch 2 after 1.1 s"),
        (1, 0, "False", "StartedOver", "started over: no backup found, after 1.1 s"),
    ],
)
def test_whether_anything_was_kept_is_a_condition(epoch: int, step: int, status: str, reason: str, words: str) -> None:
    world = running()
    world.launchers.advance(epoch, step)
    world.launchers.crash("worker-1")
    condition = world.run().status.condition("Resumed")
    assert condition is not None and (condition.status, condition.reason) == (status, reason)
    assert condition.message.startswith(words)
    assert world.status.message == f"worker-1 was killed (SIGKILL); {words}"


def test_a_restart_of_which_no_member_is_known_is_that_of_the_gang() -> None:
    world = running()
    world.launchers.crash("worker-1")
    assert world.launchers.last is not None
    world.launchers.last["member"] = None
    assert world.run().status.message == "the gang was killed (SIGKILL); started over: no backup found, after 1.1 s"


def test_a_program_that_tells_of_steps_alone_is_resumed_from_a_step() -> None:
    world = running()
    world.launchers.crash("worker-1")
    world.launchers.tick()
    assert world.launchers.last is not None
    world.launchers.last |= {"resumedFromEpoch": None, "resumedFromStep": 140}
    condition = world.run().status.condition("Resumed")
    assert condition is not None and (condition.status, condition.reason) == ("True", "Resumed")
    assert condition.message.startswith("resumed from step 140 after 1.1 s")


def test_counters_follow_the_launchers_ledger() -> None:
    world = running()
    for _ in range(3):
        world.launchers.crash("worker-1")
        world.run()
    assert world.status.restarts == Restarts(counted=3, in_place=3, budget_used=3, without_progress=3, epoch=1)
    world.launchers.advance(5, 350)
    world.launchers.crash("worker-0")
    world.launchers.tick()
    world.launchers.advance(7, 490)
    world.launchers.crash("worker-0")
    restarts = world.run().status.restarts
    assert (restarts.counted, restarts.in_place, restarts.budget_used, restarts.without_progress) == (5, 5, 1, 1)


def test_a_restart_is_told_again_by_no_new_operator() -> None:
    world = running()
    world.launchers.crash("worker-1")
    world.run()
    told, writes = len(world.events), len(world.api.writes)
    world.forget()
    world.run()
    assert (len(world.events), len(world.api.writes)) == (told, writes)


def test_a_clock_that_is_far_ahead_is_not_believed() -> None:
    world = running()
    world.launchers.crash("worker-1")
    world.launchers.tick()
    assert world.launchers.last is not None
    world.launchers.last["time"] = (world.now + timedelta(days=3)).isoformat()
    world.run()
    assert world.status.restarts.in_place == 1 and world.status.last_restart is None


def test_what_an_earlier_pod_of_the_chief_has_said_is_nothing() -> None:
    world = running()
    world.launchers.crash("worker-1")
    heard = world.launchers.heard()
    world.kubelet.lose("mnist-worker-0")
    world.heard = heard
    world.settle()
    assert world.status.restarts.in_place == 0
    assert world.status.reason == "PodDeleted"


# --- progress


def test_progress_comes_along_with_whatever_else_is_written() -> None:
    world = running()
    world.launchers.advance(1, 10)
    world.run().wait(1)
    world.launchers.advance(1, 20)
    world.launchers.crash("worker-1")
    world.run()
    assert world.status.progress is not None and world.status.progress.step == 20


def test_a_calm_job_costs_no_write() -> None:
    world = running()
    world.launchers.advance(1, 10)
    world.run()
    writes = len(world.api.writes)
    for _ in range(5):
        world.wait(3600).run()
    assert len(world.api.writes) == writes


# --- lost pods


def test_a_deleted_pod_is_made_anew_alone_and_free() -> None:
    world = running(a_launched_job().workers(3).max_restarts(0))
    before = uids(world)
    world.launchers.advance(2, 70)
    world.delete("worker-1").settle()
    assert world.status.phase == "Restarting"
    assert world.status.message == "worker-1 was deleted; recreating its pod; other members are waiting"
    assert world.pods == ["worker-0", "worker-1", "worker-2"], "the name is taken until the pod is gone"
    world.run()
    after = uids(world)
    assert {name for name in after if after[name] != before[name]} == {"mnist-worker-1"}
    status, last = world.status, world.status.last_restart
    assert (status.phase, status.attempt, world.attempts()) == ("Running", 1, {"1"})
    assert (status.restarts.counted, status.restarts.disruptions, status.restarts.recreated) == (0, 1, 1)
    assert status.restarts.in_place == 0
    assert last is not None
    assert (last.reason, last.down_seconds, last.resumed_from_epoch) == ("PodDeleted", 1.1, 1)
    assert status.message == "worker-1 was deleted; resumed from epoch 1 after 1.1 s"
    assert [note.reason for note in world.events] == ["PodDeleted", "Training"]


def test_the_chiefs_pod_is_made_anew_alone() -> None:
    world = running(a_launched_job().chief())
    before = uids(world)
    world.kubelet.evict("mnist-chief-0")
    world.run()
    after = uids(world)
    assert {name for name in after if after[name] != before[name]} == {"mnist-chief-0"}
    assert (world.status.phase, world.status.restarts.disruptions) == ("Running", 1)


def test_a_pod_that_fails_as_a_whole_is_charged() -> None:
    world = running()
    world.launchers.advance(3, 140)
    world.exit("worker-1", code=137, reason="OOMKilled", message="epoch 2").run()
    status = world.status
    assert (status.phase, status.attempt, status.restarts.counted, status.restarts.pod_failures) == ("Running", 1, 1, 1)
    assert status.restarts.in_place == 0
    assert status.failure is not None and (status.failure.reason, status.failure.log_tail) == ("OOMKilled", "epoch 2")
    assert status.message is not None and status.message.startswith("worker-1 ran out of memory (OOMKilled); resumed")


def test_the_new_launcher_is_told_what_the_job_has_cost() -> None:
    world = running()
    world.launchers.crash("worker-0")
    world.run()
    world.exit("worker-1", code=137).run_timers()
    assert world.launchers.ledger["podFailures"] == 1
    assert world.launchers.ledger["processFailures"] == 1
    world.launchers.crash("worker-0")
    assert world.run().status.restarts.budget_used == 3


def test_lost_pods_are_one_incident_and_one_charge_and_each_is_charged_once() -> None:
    world = running(a_launched_job().workers(4))
    world.exit("worker-1", "worker-2", code=137).settle()
    assert world.status.restarts.pod_failures == 1
    world.delete("worker-3").settle()
    assert (world.status.restarts.pod_failures, world.status.restarts.disruptions) == (1, 1)
    world.run_timers()
    assert (world.status.phase, world.status.restarts.pod_failures, world.status.ready) == ("Running", 1, "4/4")


def test_no_pods_failure_is_excused_by_the_deletion_of_another() -> None:
    world = running(a_launched_job().workers(3))
    world.delete("worker-1").wait(2).exit("worker-2", code=137).settle()
    assert world.status.restarts.pod_failures == 1


def test_a_pod_that_does_not_go_holds_up_only_its_own_successor() -> None:
    world = running(a_launched_job().workers(3))
    world.delete("worker-1").settle()
    world.kubelet.lose("mnist-worker-2")
    world.settle()
    world.wait(60).settle()
    assert world.pods == ["worker-0", "worker-1", "worker-2"]
    assert "deletionTimestamp" in world.api.pods["mnist-worker-1"]["metadata"]


def test_the_whole_gang_is_lost_and_keeps_its_attempt() -> None:
    world = running()
    world.kubelet.lose("mnist-worker-0", "mnist-worker-1")
    world.run()
    assert (world.status.phase, world.attempts(), world.status.restarts.disruptions) == ("Running", {"1"}, 1)


def test_a_gang_that_was_lost_as_a_whole_says_where_it_went_on() -> None:
    world = running()
    world.launchers.backup = (3, 210)
    world.kubelet.lose(*list(world.api.pods))
    world.launchers.begin("1")  # nobody is left who knew of the round
    world.wait(5).run()
    world.launchers.advance(4, 220)
    world.wait(10).run()
    last, resumed = world.status.last_restart, world.status.condition("Resumed")
    assert last is not None and (last.reason, last.resumed_from_epoch) == ("PodDeleted", 3)
    assert resumed is not None and (resumed.status, resumed.reason) == ("True", "Resumed")
    assert not world.step()


def test_pods_that_fail_again_and_again_wait_longer_and_longer_and_use_up_the_budget() -> None:
    world = running(a_launched_job().max_restarts(3))
    waits = []
    for _ in range(3):
        before = world.now
        world.exit("worker-1", code=137).run_timers()
        waits.append((world.now - before).total_seconds())
    assert waits == [0, 1, 2]
    world.exit("worker-1", code=137).run_timers()
    assert (world.status.phase, world.status.reason) == ("Failed", "MaxRestartsExceeded")
    assert world.status.restarts.pod_failures == 3


@pytest.mark.parametrize(("steps", "phase"), [((100, 200, 300), "Running"), ((100, 100, 100), "Failed")])
def test_a_newer_checkpoint_inside_an_epoch_refills_the_budget(steps: tuple[int, ...], phase: str) -> None:
    world = running(a_launched_job().max_restarts(1))
    for step in steps:
        world.launchers.advance(1, step)
        assert world.launchers.progress is not None
        world.launchers.progress["checkpoint"] = step
        world.listen()
        world.exit("worker-1", code=137).run_timers()
    assert world.status.phase == phase
    assert world.status.restarts.checkpoint == steps[-1]


def test_a_newer_epoch_refills_the_budget() -> None:
    world = running(a_launched_job().max_restarts(1))
    for epoch in (2, 4, 6):
        world.launchers.advance(epoch, 70 * epoch)
        world.listen()
        world.exit("worker-1", code=137).run_timers()
    restarts = world.status.restarts
    assert (world.status.phase, restarts.counted, restarts.budget_used, restarts.without_progress) == (
        "Running",
        3,
        1,
        1,
    )
    world.exit("worker-1", code=137).run_timers()
    assert world.status.reason == "MaxRestartsExceeded"


# --- the end


def test_the_chiefs_verdict_ends_the_job() -> None:
    world = running()
    world.launchers.advance(10, 700)
    world.launchers.finish()
    world.run()
    assert (world.status.phase, world.status.message) == ("Succeeded", "worker-0 (the chief) has succeeded")


def test_the_verdict_of_any_member_counts_if_the_chief_is_gone() -> None:
    world = running()
    world.launchers.finish()
    world.kubelet.lose("mnist-worker-0")
    assert world.run().status.phase == "Succeeded"


def test_a_verdict_of_failure_ends_the_job_with_its_words() -> None:
    world = running(a_launched_job().max_restarts(0))
    world.launchers.crash("worker-1", code=3)
    world.run()
    status = world.status
    assert (status.phase, status.reason) == ("Failed", "MaxRestartsExceeded")
    assert status.message == "worker-1 failed; all 0 restarts are used up"
    assert status.failure is not None
    failure = status.failure
    assert (failure.pod, failure.exit_code, failure.log_tail) == ("mnist-worker-1", 3, "the last line")
    assert failure.reason == "MaxRestartsExceeded"
    assert status.restarts.recreated == 0


def test_launchers_end_by_themselves_and_their_pods_stay() -> None:
    world = running()
    world.exit("worker-0", code=0, message='tftraining/1 {"verdict": "Succeeded"}\n').settle()
    assert (world.status.phase, world.pods) == ("Succeeded", ["worker-0", "worker-1"])
    assert "deletionTimestamp" not in world.api.pods["mnist-worker-1"]["metadata"]
    world.exit("worker-1", code=0, message='tftraining/1 {"verdict": "Succeeded"}\n').run_timers()
    assert world.pods == ["worker-0", "worker-1"]


def test_a_launcher_that_does_not_end_is_ended() -> None:
    world = running()
    world.exit("worker-0", code=0, message='tftraining/1 {"verdict": "Succeeded"}\n').run_timers()
    assert world.pods == ["worker-0"]


def test_a_verdict_that_says_nothing_is_no_end() -> None:
    world = running()
    message = 'tftraining/1 {"verdict": "", "reason": "Terminated"}\nlast'
    world.exit("worker-1", code=143, message=message).run()
    assert (world.status.phase, world.status.restarts.recreated) == ("Running", 1)


def test_the_last_epoch_is_told_by_the_verdict() -> None:
    world = running()
    words = 'tftraining/1 {"verdict": "Succeeded", "progress": {"epoch": 10, "epochs": 10}}\n'
    world.exit("worker-0", code=0, message=words).settle()
    assert world.status.progress is not None and world.status.progress.display == "epoch 10/10"


def test_the_last_progress_may_come_from_a_member_that_ended_before_the_chief() -> None:
    world = running()
    words = 'tftraining/1 {"verdict": "Succeeded", "progress": {"epoch": 10, "epochs": 10}}\n'
    world.exit("worker-1", code=0, message=words).settle()
    assert world.status.phase == "Succeeded"
    assert world.status.progress is not None and world.status.progress.display == "epoch 10/10"


@pytest.mark.parametrize(
    "words",
    [
        'failed to create containerd task: runc create failed: exec: "python": executable file not found in $PATH',
        'error during container init: exec: "python": stat python: no such file or directory: unknown',
        "container create failed: executable file `python` not found in $PATH: No such file or directory",
    ],
)
def test_an_image_without_python_fails_at_once(words: str) -> None:
    world = World(a_launched_job()).settle()
    world.kubelet.start_all(launched=True)
    world.exit("worker-1", code=128, reason="StartError", message=words).run()
    assert (world.status.phase, world.status.reason) == ("Failed", "NoPython")
    assert world.status.message == (
        "worker-1: the image has no python, and the launcher needs Python 3.9 or newer: use an image with Python, or "
        "set spec.restartPolicy.mode: Recreate, which uses no launcher"
    )
    assert world.status.restarts.counted == 0


def test_an_image_without_python_where_the_kubelet_keeps_trying() -> None:
    world = World(a_launched_job()).settle()
    message = "container create failed: executable file `python` not found in $PATH"
    world.kubelet.hold("mnist-worker-1", "CreateContainerError", message)
    assert world.settle().status.reason == "NoPython"


def test_other_trouble_at_the_start_is_not_blamed_on_python() -> None:
    world = World(a_launched_job()).settle()
    world.kubelet.start_all(launched=True)
    words = (
        'failed to create containerd task: chdir to cwd ("/work") set in config.json failed: no such file or directory'
    )
    world.exit("worker-1", code=128, reason="StartError", message=words).run_timers()
    assert (world.status.phase, world.status.restarts.pod_failures) == ("Running", 1)


def test_members_leave_by_themselves_and_their_logs_stay() -> None:
    world = running().exit("worker-0", code=0).settle()
    assert world.status.phase == "Succeeded"
    assert world.pods == ["worker-0", "worker-1"]
    world.wait(2).exit("worker-1", code=0).run()
    assert world.pods == ["worker-0", "worker-1"]
    assert world.status.is_true("Cleaned")


def test_a_member_that_does_not_leave_is_stopped() -> None:
    world = running().exit("worker-0", code=0).settle()
    assert not world.wait(9).step() and world.pods == ["worker-0", "worker-1"]
    world.wait(1).run()
    assert world.pods == ["worker-0"]
    assert world.status.is_true("Cleaned")
