"""Launchers restart in place: what the status tells of it, and which pods the operator replaces, each alone."""

import json
from datetime import timedelta

import msgspec
import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tftraining_api.model.status import Restarts
from tftraining_operator.model.launcher_report import parse_report
from tftraining_operator.model.observed import LauncherReport


def running(job: JobBuilder | None = None) -> SimulatedCluster:
    cluster = SimulatedCluster(job or a_launched_job()).run()
    cluster.trajectory.clear()
    cluster.events.clear()
    return cluster


def report_of_next_round(cluster: SimulatedCluster) -> LauncherReport:
    """The report of launchers whose next round has started, and whose programs have told nothing yet."""
    heard = cluster.launchers.last_report()
    assert heard is not None
    return msgspec.structs.replace(heard, report=msgspec.structs.replace(heard.report, phase="Starting"))


def uids(cluster: SimulatedCluster) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in cluster.api.pods.items()}


# --- the start


def test_the_secret_comes_with_the_pods_and_only_then() -> None:
    cluster = SimulatedCluster(a_launched_job())
    assert cluster.plan().create_secret is None
    cluster.step()
    step = cluster.plan()
    assert step.create_secret is not None and len(step.create_pods) == 2
    cluster.run()
    assert cluster.plan().create_secret is None
    assert cluster.delete("worker-1").settle().plan().create_secret is None


def test_starting_becomes_running_when_all_train() -> None:
    cluster = SimulatedCluster(a_launched_job()).settle()
    cluster.kubelet.start_all(launched=True)
    cluster.settle()
    assert (cluster.status.phase, cluster.status.message) == ("Starting", "waiting for worker-0, worker-1 to start")
    cluster.poll_launchers()
    assert cluster.settle().status.phase == "Running"
    assert cluster.status.message == "2 replicas training"


def test_a_report_that_is_older_than_readiness_delays_the_phase_and_never_turns_it_back() -> None:
    cluster = SimulatedCluster(a_launched_job()).settle()
    cluster.kubelet.start_all(launched=True)
    cluster.launcher_report = cluster.launchers.last_report()
    cluster.kubelet.start("mnist-worker-0", "mnist-worker-1")
    assert cluster.settle().status.phase == "Starting"
    cluster.launcher_report = None
    assert cluster.settle().status.phase == "Running"
    cluster.launcher_report = cluster.launchers.last_report()
    assert cluster.launcher_report is not None and cluster.launcher_report.report.phase == "Waiting"
    assert cluster.settle().status.phase == "Running"
    cluster.launchers.tick()
    cluster.launchers.crash("worker-1")
    before = report_of_next_round(cluster)
    cluster.run()
    cluster.launcher_report = before
    assert cluster.settle().status.phase == "Running"


def test_a_job_whose_launcher_cannot_be_reached_runs_by_its_pods_readiness() -> None:
    cluster = SimulatedCluster(a_launched_job()).settle()
    cluster.kubelet.start_all()
    assert cluster.settle().status.phase == "Running"


def test_a_job_that_fails_by_a_lost_pod_counts_it_no_longer() -> None:
    cluster = running(a_launched_job().max_restarts(0)).exit("worker-1").run()
    assert (cluster.status.phase, cluster.status.ready) == ("Failed", "1/2")


def test_a_program_that_has_finished_but_for_a_thread_is_named() -> None:
    cluster = running()
    assert cluster.launcher_report is not None
    report = msgspec.structs.replace(cluster.launcher_report.report, lingering=("worker-1",))
    cluster.launcher_report = msgspec.structs.replace(cluster.launcher_report, report=report)
    words = "2 replicas training; a thread of the finished program still runs in worker-1"
    assert cluster.settle().status.message == words


# --- restarts in place


def test_a_restart_that_is_over_before_anybody_looked_is_told_without_a_change_of_phase() -> None:
    cluster = running()
    cluster.launchers.advance(3, 140)
    cluster.launchers.crash("worker-1")
    cluster.launchers.tick()
    cluster.run()
    status, last = cluster.status, cluster.status.last_restart
    assert {each.split()[0] for each in cluster.trajectory} == {"Running"}
    assert status.message == "worker-1 was killed (SIGKILL); resumed from epoch 2 after 1.1 s"
    assert last is not None
    assert (last.pod, last.signal, last.reason) == ("mnist-worker-1", 9, "Killed")
    assert (last.down_seconds, last.resumed_from_epoch, last.resumed_from_step, last.lost_steps) == (1.1, 2, 140, 3)
    assert status.restarts == Restarts(
        counted=1, in_place=1, budget_used=1, without_progress=1, epoch=3, checkpoint=140
    )
    assert [(note.type, note.reason, note.message) for note in cluster.events] == [
        ("Warning", "Killed", "worker-1 was killed (SIGKILL); resumed from epoch 2 after 1.1 s; 3 steps lost")
    ]
    assert status.attempt == 1
    assert status.failure is not None
    assert (status.failure.reason, status.failure.log_tail) == ("Killed", "the last line")


def test_a_restart_that_takes_its_time_is_shown() -> None:
    cluster = running()
    cluster.launchers.crash("worker-1", code=3)
    cluster.launcher_report = cluster.launchers.last_report()
    cluster.settle()
    assert (cluster.status.phase, cluster.status.reason) == ("Restarting", "Error")
    assert cluster.status.message == "worker-1 failed with exit code 3; restarting in place"
    assert not cluster.step(), "no flapping while nothing happens"
    cluster.run()
    assert cluster.status.phase == "Running"
    assert [each.split()[0] for each in cluster.trajectory] == ["Restarting", "Running"]
    assert [note.reason for note in cluster.events] == ["Error", "Training"]


def test_programs_that_skip_their_input_are_told_until_they_train() -> None:
    """In the launchers' words; one of an earlier version has none."""
    cluster = running()
    cluster.launchers.crash("worker-1", code=3)
    cluster.launcher_report = cluster.launchers.last_report()
    cluster.settle()
    before = cluster.launcher_report
    assert before is not None
    failed = "worker-1 failed with exit code 3"
    words = f"{failed}; round 2 has started; skipping 1136 batches of input"
    cluster.kubelet.start("mnist-worker-0", "mnist-worker-1", ready=False)
    for skipping, expected in ((0, f"{failed}; restarting in place"), (1136, words)):
        told = {**cluster.launchers.status(), "phase": "Starting", "message": words, "backup": {"skipping": skipping}}
        report = parse_report(msgspec.json.encode(told))
        cluster.launcher_report = msgspec.structs.replace(before, report=report)
        cluster.settle()
        assert (cluster.status.phase, cluster.status.message) == ("Restarting", expected)
        assert not cluster.step(), "no flapping while nothing happens"
    cluster.run()
    assert "skipping" not in (cluster.status.message or "")


def test_programs_that_skip_the_input_of_a_later_fit_are_told() -> None:
    cluster = running()
    cluster.launchers.in_memory = {"on": True, "skipping": 1}
    assert cluster.run().status.message == "2 replicas training; skipping 1 batch of input"
    cluster.launchers.in_memory = {"on": True}
    assert cluster.run().status.message == "2 replicas training"


def test_a_failure_is_told_before_the_next_round_starts_and_once() -> None:
    cluster = running()
    cluster.launchers.crash("worker-1", code=3, exception="ValueError: boom")
    cluster.launcher_report = cluster.launchers.last_report()
    status = cluster.settle().status
    assert (status.restarts.counted, status.restarts.in_place) == (1, 0), "the launchers wait"
    assert status.last_restart is not None and status.failure is not None
    assert (status.last_restart.pod, status.last_restart.exit_code) == ("mnist-worker-1", 3)
    assert (status.failure.exception, status.failure.log_tail) == ("ValueError: boom", "the last line")
    told = ("Warning", "Error", "worker-1: ValueError: boom; restarting in place")
    assert [(note.type, note.reason, note.message) for note in cluster.events] == [told]
    status = cluster.run().status
    assert status.last_restart is not None and status.last_restart.down_seconds == 1.1
    assert [note.reason for note in cluster.events] == ["Error", "Training"]
    assert len(status.history.restarts if status.history else ()) <= 1


def test_the_failure_that_ends_a_job_is_no_restart() -> None:
    cluster = running(a_launched_job().max_restarts(0))
    cluster.launchers.crash("worker-1", code=3)
    cluster.launcher_report = cluster.launchers.last_report()
    cluster.settle()
    assert cluster.run().status.last_restart is None


@pytest.mark.parametrize("begun", [False, True], ids=["no round yet", "the next round"])
def test_a_gang_that_restarts_is_not_ready_whatever_the_probes_have_not_seen_yet(begun: bool) -> None:
    cluster = running()
    cluster.launchers.crash("worker-1")
    cluster.kubelet.start("mnist-worker-0", "mnist-worker-1")
    cluster.launcher_report = report_of_next_round(cluster) if begun else cluster.launchers.last_report()
    cluster.settle()
    assert (cluster.status.phase, cluster.status.is_true("Ready")) == ("Restarting", False)


def test_a_crash_before_the_gang_had_trained_is_a_restart_too() -> None:
    cluster = SimulatedCluster(a_launched_job()).settle()
    cluster.kubelet.start_all(launched=True)
    cluster.settle()
    cluster.launchers.tick()
    cluster.launchers.crash("worker-0", code=1)
    cluster.launcher_report = cluster.launchers.last_report()
    assert cluster.settle().status.phase == "Restarting"
    assert cluster.run().status.restarts.in_place == 1


@pytest.mark.parametrize(
    ("epoch", "step", "status", "reason", "words"),
    [
        (3, 140, "True", "Resumed", "resumed from epoch 2 after 1.1 s"),
        (1, 0, "False", "StartedOver", "started over: no backup found, after 1.1 s"),
    ],
)
def test_whether_anything_was_kept_is_a_condition(epoch: int, step: int, status: str, reason: str, words: str) -> None:
    cluster = running()
    cluster.launchers.advance(epoch, step)
    cluster.launchers.crash("worker-1")
    condition = cluster.run().status.condition("Resumed")
    assert condition is not None and (condition.status, condition.reason) == (status, reason)
    assert condition.message.startswith(words)
    assert cluster.status.message == f"worker-1 was killed (SIGKILL); {words}"


def test_a_restart_of_which_no_member_is_known_is_that_of_the_gang() -> None:
    cluster = running()
    cluster.launchers.crash("worker-1")
    assert cluster.launchers.last is not None
    cluster.launchers.last["member"] = None
    assert cluster.run().status.message == "the gang was killed (SIGKILL); started over: no backup found, after 1.1 s"


def test_a_program_that_tells_of_steps_alone_is_resumed_from_a_step() -> None:
    cluster = running()
    cluster.launchers.crash("worker-1")
    cluster.launchers.tick()
    assert cluster.launchers.last is not None
    cluster.launchers.last |= {"resumedFromEpoch": None, "resumedFromStep": 140}
    condition = cluster.run().status.condition("Resumed")
    assert condition is not None and (condition.status, condition.reason) == ("True", "Resumed")
    assert condition.message.startswith("resumed from step 140 after 1.1 s")


def test_counters_follow_the_launchers_ledger() -> None:
    cluster = running()
    for _ in range(3):
        cluster.launchers.crash("worker-1")
        cluster.run()
    assert cluster.status.restarts == Restarts(counted=3, in_place=3, budget_used=3, without_progress=3, epoch=1)
    cluster.launchers.advance(5, 350)
    cluster.launchers.crash("worker-0")
    cluster.launchers.tick()
    cluster.launchers.advance(7, 490)
    cluster.launchers.crash("worker-0")
    restarts = cluster.run().status.restarts
    assert (restarts.counted, restarts.in_place, restarts.budget_used, restarts.without_progress) == (5, 5, 1, 1)


def test_a_restart_is_told_again_by_no_new_operator() -> None:
    cluster = running()
    cluster.launchers.crash("worker-1")
    cluster.run()
    told, writes = len(cluster.events), len(cluster.api.writes)
    cluster.forget()
    cluster.run()
    assert (len(cluster.events), len(cluster.api.writes)) == (told, writes)


def test_a_clock_that_is_far_ahead_is_not_believed() -> None:
    cluster = running()
    cluster.launchers.crash("worker-1")
    cluster.launchers.tick()
    assert cluster.launchers.last is not None
    cluster.launchers.last["time"] = (cluster.now + timedelta(days=3)).isoformat()
    cluster.run()
    assert cluster.status.restarts.in_place == 1 and cluster.status.last_restart is None


def test_what_an_earlier_pod_of_the_chief_has_said_is_nothing() -> None:
    cluster = running()
    cluster.launchers.crash("worker-1")
    heard = cluster.launchers.last_report()
    cluster.kubelet.force_delete("mnist-worker-0")
    cluster.launcher_report = heard
    cluster.settle()
    assert cluster.status.restarts.in_place == 0
    assert cluster.status.reason == "PodDeleted"


# --- progress


def test_progress_comes_along_with_whatever_else_is_written() -> None:
    cluster = running()
    cluster.launchers.advance(1, 10)
    cluster.run().wait(1)
    cluster.launchers.advance(1, 20)
    cluster.launchers.crash("worker-1")
    cluster.run()
    assert cluster.status.progress is not None and cluster.status.progress.step == 20


def test_a_calm_job_costs_no_write() -> None:
    cluster = running()
    cluster.launchers.advance(1, 10)
    cluster.run()
    writes = len(cluster.api.writes)
    for _ in range(5):
        cluster.wait(3600).run()
    assert len(cluster.api.writes) == writes


# --- lost pods


def test_a_deleted_pod_is_made_anew_alone_and_free() -> None:
    cluster = running(a_launched_job().workers(3).max_restarts(0))
    before = uids(cluster)
    cluster.launchers.advance(2, 70)
    cluster.delete("worker-1").settle()
    assert cluster.status.phase == "Restarting"
    assert cluster.status.message == "worker-1 was deleted; recreating its pod; other members are waiting"
    assert cluster.pods == ["worker-0", "worker-1", "worker-2"], "the name is taken until the pod is gone"
    cluster.run()
    after = uids(cluster)
    assert {name for name in after if after[name] != before[name]} == {"mnist-worker-1"}
    status, last = cluster.status, cluster.status.last_restart
    assert (status.phase, status.attempt, cluster.attempts()) == ("Running", 1, {"1"})
    assert (status.restarts.counted, status.restarts.disruptions, status.restarts.recreated) == (0, 1, 1)
    assert status.restarts.in_place == 0
    assert last is not None
    assert (last.reason, last.down_seconds, last.resumed_from_epoch) == ("PodDeleted", 1.1, 1)
    assert status.message == "worker-1 was deleted; resumed from epoch 1 after 1.1 s"
    assert [note.reason for note in cluster.events] == ["PodDeleted", "Training"]


def test_a_restart_that_ended_just_before_a_pod_was_lost_does_not_tell_how_long_that_loss_lasts() -> None:
    """A frozen node is back, the gang trains again for seconds, and then the pod that was silent ends."""
    cluster = running()
    cluster.launchers.advance(2, 70)
    cluster.delete("worker-1").settle()
    began = cluster.status.last_restart
    assert began is not None and began.down_seconds is None
    again = {"resumedFromEpoch": 1, "resumedFromStep": 70, "lostSteps": 0, "alone": False}
    cluster.launchers.last = {"time": _shifted(cluster, -10), "member": "worker-1", "reason": "MemberLost", **again}
    cluster.launchers.last["downSeconds"] = 4.1
    cluster.launcher_report = cluster.launchers.last_report()
    cluster.settle()
    cluster.launchers.last |= {"time": _shifted(cluster, 5), "downSeconds": None, "resumedFromEpoch": None}
    cluster.launchers.phase = "Restarting"
    cluster.launcher_report = cluster.launchers.last_report()
    cluster.settle()
    last = cluster.status.last_restart
    assert last is not None
    assert (cluster.status.phase, last.reason, last.down_seconds) == ("Restarting", "PodDeleted", None)


def _shifted(cluster: SimulatedCluster, seconds: float) -> str:
    return (cluster.now + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def test_the_chiefs_pod_is_made_anew_alone() -> None:
    cluster = running(a_launched_job().chief())
    before = uids(cluster)
    cluster.kubelet.evict("mnist-chief-0")
    cluster.run()
    after = uids(cluster)
    assert {name for name in after if after[name] != before[name]} == {"mnist-chief-0"}
    assert (cluster.status.phase, cluster.status.restarts.disruptions) == ("Running", 1)


def test_a_pod_that_fails_as_a_whole_is_charged() -> None:
    cluster = running()
    cluster.launchers.advance(3, 140)
    cluster.exit("worker-1", code=137, reason="OOMKilled", message="epoch 2").run()
    status = cluster.status
    assert (status.phase, status.attempt, status.restarts.counted, status.restarts.pod_failures) == ("Running", 1, 1, 1)
    assert status.restarts.in_place == 0
    assert status.failure is not None and (status.failure.reason, status.failure.log_tail) == ("OOMKilled", "epoch 2")
    assert status.message is not None and status.message.startswith("worker-1 ran out of memory (OOMKilled); resumed")


def test_the_new_launcher_is_told_what_the_job_has_cost() -> None:
    cluster = running()
    cluster.launchers.crash("worker-0")
    cluster.run()
    cluster.exit("worker-1", code=137).run_timers()
    assert cluster.launchers.ledger["podFailures"] == 1
    assert cluster.launchers.ledger["processFailures"] == 1
    cluster.launchers.crash("worker-0")
    assert cluster.run().status.restarts.budget_used == 3


def test_lost_pods_are_one_incident_and_one_charge_and_each_is_charged_once() -> None:
    cluster = running(a_launched_job().workers(4))
    cluster.exit("worker-1", "worker-2", code=137).settle()
    assert cluster.status.restarts.pod_failures == 1
    cluster.delete("worker-3").settle()
    assert (cluster.status.restarts.pod_failures, cluster.status.restarts.disruptions) == (1, 1)
    cluster.run_timers()
    assert (cluster.status.phase, cluster.status.restarts.pod_failures, cluster.status.ready) == ("Running", 1, "4/4")


def test_no_pods_failure_is_excused_by_the_deletion_of_another() -> None:
    cluster = running(a_launched_job().workers(3))
    cluster.delete("worker-1").wait(2).exit("worker-2", code=137).settle()
    assert cluster.status.restarts.pod_failures == 1


def test_a_pod_that_does_not_go_holds_up_only_its_own_successor() -> None:
    cluster = running(a_launched_job().workers(3))
    cluster.delete("worker-1").settle()
    cluster.kubelet.force_delete("mnist-worker-2")
    cluster.settle()
    cluster.wait(60).settle()
    assert cluster.pods == ["worker-0", "worker-1", "worker-2"]
    assert "deletionTimestamp" in cluster.api.pods["mnist-worker-1"]["metadata"]


def test_the_whole_gang_is_lost_and_keeps_its_attempt() -> None:
    cluster = running()
    cluster.kubelet.force_delete("mnist-worker-0", "mnist-worker-1")
    cluster.run()
    assert (cluster.status.phase, cluster.attempts(), cluster.status.restarts.disruptions) == ("Running", {"1"}, 1)


def test_a_gang_that_was_lost_as_a_whole_says_where_it_went_on() -> None:
    cluster = running()
    cluster.launchers.backup = (3, 210)
    cluster.kubelet.force_delete(*list(cluster.api.pods))
    cluster.launchers.begin("1")  # nobody is left who knew of the round
    cluster.wait(5).run()
    cluster.launchers.advance(4, 220)
    cluster.wait(10).run()
    last, resumed = cluster.status.last_restart, cluster.status.condition("Resumed")
    assert last is not None and (last.reason, last.resumed_from_epoch) == ("PodDeleted", 3)
    assert resumed is not None and (resumed.status, resumed.reason) == ("True", "Resumed")
    assert not cluster.step()


def test_pods_that_fail_again_and_again_wait_longer_and_longer_and_use_up_the_budget() -> None:
    cluster = running(a_launched_job().max_restarts(3))
    waits = []
    for _ in range(3):
        before = cluster.now
        cluster.exit("worker-1", code=137).run_timers()
        waits.append((cluster.now - before).total_seconds())
    assert waits == [0, 1, 2]
    cluster.exit("worker-1", code=137).run_timers()
    assert (cluster.status.phase, cluster.status.reason) == ("Failed", "MaxRestartsExceeded")
    restarts = cluster.status.restarts
    assert (restarts.pod_failures, restarts.checkpoint) == (3, None)


@pytest.mark.parametrize(("steps", "phase"), [((100, 200, 300), "Running"), ((100, 100, 100), "Failed")])
def test_a_newer_checkpoint_inside_an_epoch_refills_the_budget(steps: tuple[int, ...], phase: str) -> None:
    cluster = running(a_launched_job().max_restarts(1))
    for step in steps:
        cluster.launchers.advance(1, step)
        assert cluster.launchers.progress is not None
        cluster.launchers.progress["checkpoint"] = step
        cluster.poll_launchers()
        cluster.exit("worker-1", code=137).run_timers()
    assert cluster.status.phase == phase
    assert cluster.status.restarts.checkpoint == steps[-1]


def test_a_newer_epoch_refills_the_budget() -> None:
    cluster = running(a_launched_job().max_restarts(1))
    for epoch in (2, 4, 6):
        cluster.launchers.advance(epoch, 70 * epoch)
        cluster.poll_launchers()
        cluster.exit("worker-1", code=137).run_timers()
    restarts = cluster.status.restarts
    assert (cluster.status.phase, restarts.counted, restarts.budget_used, restarts.without_progress) == (
        "Running",
        3,
        1,
        1,
    )
    cluster.exit("worker-1", code=137).run_timers()
    assert cluster.status.reason == "MaxRestartsExceeded"


# --- the end


def test_the_chiefs_verdict_ends_the_job() -> None:
    cluster = running()
    cluster.launchers.advance(10, 700)
    cluster.launchers.finish()
    cluster.run()
    assert (cluster.status.phase, cluster.status.message) == ("Succeeded", "worker-0 (the chief) has succeeded")


def test_the_verdict_of_any_member_counts_if_the_chief_is_gone() -> None:
    cluster = running()
    cluster.launchers.finish()
    cluster.kubelet.force_delete("mnist-worker-0")
    assert cluster.run().status.phase == "Succeeded"


def test_a_verdict_of_failure_ends_the_job_with_its_words() -> None:
    cluster = running(a_launched_job().max_restarts(0))
    cluster.launchers.crash("worker-1", code=3)
    cluster.run()
    status = cluster.status
    assert (status.phase, status.reason) == ("Failed", "MaxRestartsExceeded")
    assert status.message == "worker-1 failed; all 0 restarts are used up"
    assert status.failure is not None
    failure = status.failure
    assert (failure.pod, failure.exit_code, failure.log_tail) == ("mnist-worker-1", 3, "the last line")
    assert failure.reason == "MaxRestartsExceeded"
    assert status.restarts.recreated == 0


def test_launchers_end_by_themselves_and_their_pods_stay() -> None:
    cluster = running()
    cluster.exit("worker-0", code=0, message='tftraining/1 {"verdict": "Succeeded"}\n').settle()
    assert (cluster.status.phase, cluster.pods) == ("Succeeded", ["worker-0", "worker-1"])
    assert "deletionTimestamp" not in cluster.api.pods["mnist-worker-1"]["metadata"]
    cluster.exit("worker-1", code=0, message='tftraining/1 {"verdict": "Succeeded"}\n').run_timers()
    assert cluster.pods == ["worker-0", "worker-1"]


def test_a_launcher_that_does_not_end_is_ended() -> None:
    cluster = running()
    cluster.exit("worker-0", code=0, message='tftraining/1 {"verdict": "Succeeded"}\n').run_timers()
    assert cluster.pods == ["worker-0"]


def test_a_verdict_that_says_nothing_is_no_end() -> None:
    cluster = running()
    message = 'tftraining/1 {"verdict": "", "reason": "Terminated"}\nlast'
    cluster.exit("worker-1", code=143, message=message).run()
    assert (cluster.status.phase, cluster.status.restarts.recreated) == ("Running", 1)


SPOILT = "worker-1 failed 2 times in a row before its first step, in a pod where it had run longer"


def leave(cluster: SimulatedCluster, *members: str) -> SimulatedCluster:
    """The launchers of these members leave for new pods, after two failed starts that nobody has read yet."""
    ledger = {"inPlace": 2, "processFailures": 3, "withoutProgress": 3}
    told = {"verdict": "", "reason": "UncleanContainer", "message": SPOILT, "member": "worker-1", "ledger": ledger}
    for member in members:
        cluster.exit(member, code=143, message=f"tftraining/1 {json.dumps(told)}\n")
    return cluster


@pytest.mark.parametrize("members", [("worker-1",), ("worker-0",), ("worker-0", "worker-1")])
def test_a_launcher_that_leaves_its_pod_gets_a_new_one_without_a_charge(members: tuple[str, ...]) -> None:
    cluster = running(a_launched_job().max_restarts(3))
    before = {name: pod["metadata"]["uid"] for name, pod in cluster.api.pods.items()}
    leave(cluster, *members).settle()
    status = cluster.status
    assert (status.phase, status.reason, status.attempt) == ("Restarting", "UncleanContainer", 1)
    assert status.message is not None and status.message.startswith(f"{SPOILT}; recreating its pod in 4 s; other")
    assert [each.type for each in cluster.events if each.reason == "UncleanContainer"] == ["Normal"]
    restarts = status.restarts
    assert (restarts.counted, restarts.pod_failures, restarts.disruptions, restarts.recreated) == (3, 0, 0, 1)
    cluster.run_timers()
    after = {name: pod["metadata"]["uid"] for name, pod in cluster.api.pods.items()}
    assert {name for name in after if after[name] != before[name]} == {f"mnist-{each}" for each in members}
    assert (cluster.status.phase, cluster.status.restarts.counted) == ("Running", 3)


def test_a_pod_that_always_asks_for_another_one_waits_longer_each_time() -> None:
    cluster = running(a_launched_job().max_restarts(1000))
    began = cluster.now
    for _ in range(8):
        leave(cluster, "worker-1").run_timers()
    assert (cluster.now - began).total_seconds() > 100


def test_the_last_epoch_is_told_by_the_verdict() -> None:
    cluster = running()
    words = 'tftraining/1 {"verdict": "Succeeded", "progress": {"epoch": 10, "epochs": 10}}\n'
    cluster.exit("worker-0", code=0, message=words).settle()
    assert cluster.status.progress is not None and cluster.status.progress.display == "epoch 10/10"
    assert cluster.status.message == "worker-0 (the chief) has succeeded"


def test_a_program_that_ends_the_training_early_is_told_with_the_end() -> None:
    cluster = running()
    words = 'tftraining/1 {"verdict": "Succeeded", "progress": {"epoch": 4, "epochs": 10}}\n'
    cluster.exit("worker-0", code=0, message=words).settle()
    told = "worker-0 (the chief) has succeeded; the program ended the training early, in epoch 4 of 10"
    assert (cluster.status.message, cluster.events[-1].message) == (told, told)


def test_the_last_progress_may_come_from_a_member_that_ended_before_the_chief() -> None:
    cluster = running()
    words = 'tftraining/1 {"verdict": "Succeeded", "progress": {"epoch": 10, "epochs": 10}}\n'
    cluster.exit("worker-1", code=0, message=words).settle()
    assert cluster.status.phase == "Succeeded"
    assert cluster.status.progress is not None and cluster.status.progress.display == "epoch 10/10"


@pytest.mark.parametrize(
    "words",
    [
        'failed to create containerd task: runc create failed: exec: "python": executable file not found in $PATH',
        'error during container init: exec: "python": stat python: no such file or directory: unknown',
        "container create failed: executable file `python` not found in $PATH: No such file or directory",
    ],
)
def test_an_image_without_python_fails_at_once(words: str) -> None:
    cluster = SimulatedCluster(a_launched_job()).settle()
    cluster.kubelet.start_all(launched=True)
    cluster.exit("worker-1", code=128, reason="StartError", message=words).run()
    assert (cluster.status.phase, cluster.status.reason) == ("Failed", "NoPython")
    assert cluster.status.message == (
        "worker-1: the image has no python, and the launcher needs Python 3.9 or newer: use an image with Python, or "
        "set spec.restartPolicy.mode: Recreate, which uses no launcher"
    )
    assert cluster.status.restarts.counted == 0


def test_an_image_without_python_where_the_kubelet_keeps_trying() -> None:
    cluster = SimulatedCluster(a_launched_job()).settle()
    message = "container create failed: executable file `python` not found in $PATH"
    cluster.kubelet.set_waiting("mnist-worker-1", "CreateContainerError", message)
    assert cluster.settle().status.reason == "NoPython"


def test_other_trouble_at_the_start_is_not_blamed_on_python() -> None:
    cluster = SimulatedCluster(a_launched_job()).settle()
    cluster.kubelet.start_all(launched=True)
    words = (
        'failed to create containerd task: chdir to cwd ("/work") set in config.json failed: no such file or directory'
    )
    cluster.exit("worker-1", code=128, reason="StartError", message=words).run_timers()
    assert (cluster.status.phase, cluster.status.restarts.pod_failures) == ("Running", 1)


def test_members_leave_by_themselves_and_their_logs_stay() -> None:
    cluster = running().exit("worker-0", code=0).settle()
    assert cluster.status.phase == "Succeeded"
    assert cluster.pods == ["worker-0", "worker-1"]
    cluster.wait(2).exit("worker-1", code=0).run()
    assert cluster.pods == ["worker-0", "worker-1"]
    assert cluster.status.is_true("Cleaned")


def test_a_member_that_does_not_leave_is_stopped() -> None:
    cluster = running().exit("worker-0", code=0).settle()
    assert not cluster.wait(9).step() and cluster.pods == ["worker-0", "worker-1"]
    cluster.wait(1).run()
    assert cluster.pods == ["worker-0"]
    assert cluster.status.is_true("Cleaned")
