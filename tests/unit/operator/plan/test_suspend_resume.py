"""Row: suspend and resume. The pods go quickly and safely, the checkpoints stay, the job goes on from them; created
suspended, and suspended at any moment.
"""

from collections.abc import Callable

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tests.support.simulated_cluster.suspension import resume, suspend
from tftraining_api.model.status import Condition

NewJob = Callable[[], JobBuilder]
MODES = pytest.mark.parametrize("new_job", [a_job, a_launched_job])


def condition(cluster: SimulatedCluster, kind: str = "Suspended") -> Condition:
    found = cluster.status.condition(kind)
    assert found is not None
    return found


@MODES
def test_created_suspended(new_job: NewJob) -> None:
    cluster = SimulatedCluster(new_job().storage().set("runPolicy.suspend", True)).run().wait(86400).run()
    assert (cluster.status.phase, cluster.status.reason, cluster.status.ready) == ("Suspended", "Suspended", "0/2")
    assert (cluster.pods, cluster.api.services, cluster.status.start_time) == ([], {}, None)
    assert (condition(cluster).status, cluster.status.condition("Cleaned")) == ("True", None)
    assert [note.reason for note in cluster.events] == ["Suspended"]
    began = cluster.now
    resume(cluster).run()
    assert (cluster.status.phase, cluster.status.attempt, cluster.status.start_time) == ("Running", 1, began)
    assert (condition(cluster).status, condition(cluster).reason) == ("False", "Resumed")
    assert [note.reason for note in cluster.events] == ["Suspended", "Resumed", "Training"]


def test_the_trajectory_of_a_suspension() -> None:
    cluster = SimulatedCluster(a_job()).run().wait(60)
    cluster.trajectory.clear()
    suspend(cluster).settle()
    assert cluster.status.message == "suspended: waiting for worker-0 to stop"
    cluster.kubelet.remove_deleted()
    cluster.settle()
    resume(cluster).settle()
    cluster.kubelet.start_all()
    cluster.settle()
    assert cluster.trajectory == [
        "Suspended 0/2 Suspended",
        "Suspended 0/2 Suspended",
        "Starting 0/2 CreatingPods",
        "Starting 0/2 PodsStarting",
        "Running 2/2 Training",
    ]
    assert cluster.status.message == "2 replicas training"


@MODES
def test_the_pods_get_their_own_grace(new_job: NewJob) -> None:
    cluster = suspend(SimulatedCluster(new_job().set("launcher.terminationGraceSeconds", 40)).run())
    cluster.settle()
    graces = {pod["metadata"]["deletionGracePeriodSeconds"] for pod in cluster.api.pods.values()}
    assert len(graces) == 1 and graces.pop() >= 40


def test_the_intent_is_written_before_a_pod_is_deleted() -> None:
    cluster = suspend(SimulatedCluster(a_job()).run())
    cluster.api.writes.clear()
    cluster.step()
    assert cluster.api.writes == ["status", "delete pod/mnist-worker-0", "delete pod/mnist-worker-1"]


@MODES
def test_a_suspension_is_no_failure_and_no_disruption(new_job: NewJob) -> None:
    cluster = suspend(SimulatedCluster(new_job()).run()).settle()
    cluster.exit("worker-0", code=143).exit("worker-1", code=1).run()
    resume(cluster).run()
    restarts = cluster.status.restarts
    assert (restarts.counted, restarts.disruptions, restarts.recreated, restarts.in_place) == (0, 0, 0, 0)
    assert (cluster.status.phase, cluster.status.attempt, cluster.attempts()) == ("Running", 2, {"2"})
    assert (cluster.status.failure, cluster.status.last_restart) == (None, None)


@MODES
def test_the_new_pods_wait_until_the_old_ones_are_gone(new_job: NewJob) -> None:
    cluster = resume(suspend(SimulatedCluster(new_job()).run()).settle()).settle()
    assert cluster.status.reason == "Stopping"
    cluster.kubelet.force_delete("mnist-worker-0")
    assert cluster.settle().pods == ["worker-1"]
    cluster.kubelet.force_delete("mnist-worker-1")
    assert cluster.settle().pods == ["worker-0", "worker-1"]
    assert cluster.attempts() == {"2"}


@MODES
def test_suspended_while_it_starts(new_job: NewJob) -> None:
    cluster = SimulatedCluster(new_job()).settle()
    cluster.kubelet.start("mnist-worker-1", ready=False)
    assert suspend(cluster).run().pods == []
    assert resume(cluster).run().status.phase == "Running"


def test_suspended_while_it_restarts() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-1").run().exit("worker-1").settle()
    assert (cluster.status.phase, cluster.status.attempt) == ("Restarting", 3)
    assert suspend(cluster).run().pods == []
    cluster.wait(600)
    resume(cluster).run()
    assert (cluster.status.phase, cluster.attempts(), cluster.status.restarts.counted) == ("Running", {"4"}, 2)
    last = cluster.status.last_restart
    assert last is not None and last.down_seconds is None, "that restart never came to its end"
    assert cluster.events[-1].message == "2/2 replicas training"


def test_suspended_while_launchers_restart() -> None:
    cluster = SimulatedCluster(a_launched_job()).run()
    cluster.launchers.advance(4, 200)
    cluster.launchers.crash("worker-1")
    cluster.launcher_report = cluster.launchers.last_report()
    cluster.settle()
    assert cluster.status.phase == "Restarting"
    suspend(cluster).run()
    assert (cluster.status.phase, cluster.status.progress and cluster.status.progress.epoch) == ("Suspended", 4)
    resume(cluster.wait(1)).run()  # a launcher's clock is a little ahead
    assert (cluster.status.phase, cluster.status.message) == ("Running", "2 replicas training")
    assert (cluster.status.restarts.counted, cluster.status.restarts.in_place) == (1, 0)


def test_suspended_in_the_back_off_no_pod_is_made() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-1").run().exit("worker-1").settle()
    cluster.kubelet.remove_deleted()
    suspend(cluster).run_timers()
    assert cluster.wait(3600).run().pods == []


@MODES
def test_a_chief_that_had_finished_has_finished(new_job: NewJob) -> None:
    cluster = SimulatedCluster(new_job()).run()
    if not cluster.launchers.finish():
        cluster.exit("worker-0", code=0)
    suspend(cluster).run()
    assert cluster.status.phase == "Succeeded"
    assert cluster.status.condition("Suspended") is None


def test_a_chief_that_finishes_on_the_way_has_finished() -> None:
    cluster = suspend(SimulatedCluster(a_launched_job()).run()).settle()
    assert cluster.status.phase == "Suspended"
    cluster.launchers.finish()
    assert cluster.run().status.phase == "Succeeded"
    assert (condition(cluster).status, condition(cluster).reason) == ("False", "ChiefSucceeded")


def test_a_chief_that_finished_on_the_way_has_finished_though_the_job_is_resumed_before_anybody_looks() -> None:
    cluster = suspend(SimulatedCluster(a_launched_job()).run()).settle()
    cluster.launchers.finish()
    assert resume(cluster).run().status.phase == "Succeeded"
    assert (cluster.status.attempt, condition(cluster).status) == (1, "False")


def test_a_spec_that_nobody_can_run_ends_the_suspension_of_a_new_job() -> None:
    cluster = SimulatedCluster(a_job().set("runPolicy.suspend", True)).run()
    cluster.api.edit("replicaSpecs", {})
    assert cluster.run().status.reason == "InvalidSpec"
    assert condition(cluster).status == "False"


def test_a_verdict_before_the_suspension_counts() -> None:
    cluster = SimulatedCluster(a_launched_job().max_restarts(0)).run()
    cluster.launchers.crash("worker-1")
    assert suspend(cluster).run().status.reason == "MaxRestartsExceeded"


def test_a_chief_that_leaves_politely_has_not_finished() -> None:
    cluster = suspend(SimulatedCluster(a_job()).run()).settle()
    cluster.exit("worker-0", "worker-1", code=0).run()
    assert (cluster.status.phase, cluster.pods) == ("Suspended", [])


def test_the_operator_was_down_all_the_while() -> None:
    cluster = suspend(SimulatedCluster(a_job().set("runPolicy.activeDeadlineSeconds", 60)).run())
    cluster.forget()
    cluster.wait(3600).run()
    assert cluster.status.phase == "Suspended"
    cluster.forget()
    resume(cluster).wait(3600).run()
    assert (cluster.status.phase, cluster.status.attempt) == ("Running", 2)


def test_what_is_changed_meanwhile_counts() -> None:
    cluster = suspend(SimulatedCluster(a_job().workers(4)).run()).run()
    cluster.api.edit("replicaSpecs.worker.replicas", 1)
    cluster.api.edit("restartPolicy.mode", "InPlace")
    cluster.launched = True
    assert cluster.run().status.ready == "0/1"
    resume(cluster).run()
    assert (cluster.pods, cluster.status.ready, cluster.status.phase) == (["worker-0"], "1/1", "Running")
    assert cluster.status.replicas["worker"].highest == 3


def test_a_worker_that_had_finished_runs_again() -> None:
    cluster = suspend(SimulatedCluster(a_job().workers(3)).run().exit("worker-1", code=0).run()).run()
    assert cluster.pods == []
    assert resume(cluster).run().pods == ["worker-0", "worker-1", "worker-2"]


def test_twice() -> None:
    cluster = SimulatedCluster(a_job()).run()
    for attempt in (2, 3):
        resume(suspend(cluster).run()).wait(1).run()
        assert (cluster.status.phase, cluster.status.attempt) == ("Running", attempt)
    assert cluster.exit("worker-0", code=0).run().status.phase == "Succeeded"
    assert condition(cluster).status == "False"


def test_the_counts_of_a_suspended_job() -> None:
    cluster = suspend(SimulatedCluster(a_job().workers(3)).run()).settle()
    assert cluster.status.replicas["worker"].active == 3
    workers = cluster.run().status.replicas["worker"]
    assert (workers.desired, workers.active, workers.ready, workers.highest) == (3, 0, 0, 2)


# --- at any moment


@MODES
@pytest.mark.parametrize("writes", range(6))
def test_suspended_at_any_write_of_the_start(new_job: NewJob, writes: int) -> None:
    cluster = SimulatedCluster(new_job().chief())
    cluster.step(writes=writes)
    suspend(cluster).run()
    assert (cluster.status.phase, cluster.pods, cluster.status.restarts.counted) == ("Suspended", [], 0)
    resume(cluster).run()
    assert (cluster.status.phase, cluster.status.ready) == ("Running", "3/3")


@MODES
@pytest.mark.parametrize("writes", range(6))
def test_suspended_at_any_write_of_a_restart(new_job: NewJob, writes: int) -> None:
    cluster = SimulatedCluster(new_job().max_restarts(1)).run().exit("worker-1", code=137, reason="OOMKilled")
    cluster.step(writes=writes)
    suspend(cluster).run()
    assert (cluster.status.phase, cluster.pods) == ("Suspended", [])
    resume(cluster).run()
    assert (cluster.status.phase, cluster.status.ready) == ("Running", "2/2")
    assert cluster.status.restarts.counted == (writes > 0), "what nobody had seen before is no incident"


def test_suspended_while_a_lost_pod_is_made_anew() -> None:
    cluster = SimulatedCluster(a_launched_job().workers(3)).run().delete("worker-1").settle()
    assert cluster.status.phase == "Restarting"
    suspend(cluster).run()
    assert (cluster.status.phase, cluster.pods, cluster.status.ready) == ("Suspended", [], "0/3")
    assert resume(cluster).run().status.ready == "3/3"
    assert cluster.status.restarts.disruptions == 1


@MODES
def test_back_and_forth_while_the_pods_go(new_job: NewJob) -> None:
    cluster = suspend(SimulatedCluster(new_job().storage()).run()).settle()
    for _ in range(3):
        resume(cluster).settle()
        suspend(cluster).settle()
    assert cluster.run().pods == ["cleanup"]
    resume(cleanup_done(cluster)).run()
    assert (cluster.status.phase, cluster.status.restarts.counted, cluster.status.restarts.disruptions) == (
        "Running",
        0,
        0,
    )


@MODES
def test_created_suspended_and_changed_before_it_begins(new_job: NewJob) -> None:
    cluster = SimulatedCluster(new_job().storage().set("runPolicy.suspend", True)).run()
    cluster.api.edit("replicaSpecs.worker.replicas", 3)
    cluster.run().wait(3600).forget()
    resume(cluster).run()
    assert (cluster.status.phase, cluster.status.ready, cluster.status.attempt) == ("Running", "3/3", 1)
    assert cluster.status.restarts.recreated == 0


@MODES
def test_created_suspended_with_deadlines_that_begin_with_it(new_job: NewJob) -> None:
    job = new_job().set("runPolicy.activeDeadlineSeconds", 60).set("runPolicy.startDeadlineSeconds", 60)
    cluster = SimulatedCluster(job.set("runPolicy.suspend", True)).run().wait(86400).run()
    assert cluster.status.phase == "Suspended"
    assert resume(cluster).run().wait(59).run().status.phase == "Running"
    assert cluster.wait(1).run().status.reason == "DeadlineExceeded"


def test_a_cleanup_that_the_api_server_will_never_accept_fails_no_suspended_job() -> None:
    cluster = SimulatedCluster(a_job().storage()).run()
    cluster.api.refusals["pod/mnist-cleanup"] = (422, "spec.containers[0].image: Invalid value")
    suspend(cluster).run_timers()
    assert (cluster.status.phase, condition(cluster, "Cleaned").status) == ("Suspended", "False")
    assert resume(cluster).run().status.phase == "Running"


# --- the training goes on from where it was


RESUMED = "resumed from epoch 3, after the suspension"


def test_it_goes_on_from_the_saved_epoch() -> None:
    cluster = SimulatedCluster(a_launched_job().storage()).run()
    cluster.launchers.advance(4, 280)
    cluster.launchers.backup = (3, 210)
    suspend(cluster.run()).run()
    cleanup_done(cluster)
    assert cluster.status.progress is not None and cluster.status.progress.epoch == 4
    resume(cluster.wait(60)).run()
    assert cluster.status.condition("Resumed") is None, "its programs have not told yet"
    cluster.launchers.advance(4, 220)
    cluster.wait(10).run()
    resumed = condition(cluster, "Resumed")
    assert (resumed.status, resumed.message) == ("True", f"{RESUMED}; 70 steps lost (5.7 s of training)")
    cluster.launchers.advance(4, 260)
    assert condition(cluster.wait(10).run(), "Resumed") == resumed, "these steps are those of the new pods"
    assert cluster.status.last_restart is None and not cluster.step()
    assert not [note for note in cluster.events if note.reason == "EarlierRun"], "the backup is this job's own"


def test_a_job_that_had_saved_nothing_yet_says_that_it_began_again() -> None:
    cluster = resume(suspend(SimulatedCluster(a_launched_job()).run()).run()).run()
    cluster.launchers.advance(1, 5)
    resumed = condition(cluster.wait(10).run(), "Resumed")
    assert (resumed.status, resumed.reason) == ("False", "StartedOver")
    assert resumed.message == "started over: no backup found, after the suspension"


def test_a_restart_after_the_resumption_is_told_of_from_then_on() -> None:
    cluster = resume(suspend(SimulatedCluster(a_launched_job()).run()).run()).run()
    cluster.launchers.advance(4, 220)
    cluster.run().launchers.crash("worker-1")
    assert condition(cluster.run(), "Resumed").message.startswith("resumed from epoch 3 after 1.1 s")


@MODES
def test_nothing_but_temporary_directories_is_touched(new_job: NewJob) -> None:
    cluster = suspend(SimulatedCluster(new_job().workers(3).storage()).run()).run()
    (container,) = cluster.api.pods["mnist-cleanup"]["spec"]["containers"]
    removed = [each for each in container["command"] if each.startswith(("--index", "--save-dir"))]
    assert removed == ["--save-dir=.", "--index=1", "--index=2"]


# --- the temporary save directories


def cleanup_done(cluster: SimulatedCluster) -> SimulatedCluster:
    return cluster.exit("cleanup", code=0, message='{"removed": 2}').run()


def test_they_are_removed_when_nobody_can_write_any_more() -> None:
    cluster = suspend(SimulatedCluster(a_job().workers(3).storage()).run()).settle()
    assert cluster.pods == ["worker-0", "worker-1", "worker-2"]
    cluster.kubelet.force_delete("mnist-worker-0", "mnist-worker-1")
    assert cluster.settle().pods == ["worker-2"]
    cluster.kubelet.force_delete("mnist-worker-2")
    assert cluster.run().pods == ["cleanup"]
    cleanup_done(cluster)
    assert (cluster.pods, condition(cluster, "Cleaned").message) == ([], "removed 2 temporary save directories")


@MODES
def test_they_are_removed_where_the_pods_have_written_though_the_storage_changed_unseen(new_job: NewJob) -> None:
    """Both changes come while no operator runs. The status of a new job is written after its pods are created."""
    cluster = SimulatedCluster(new_job().workers(3).storage(directory="old"))
    cluster.step(soon=True)
    cluster.run().forget()
    cluster.api.edit("runPolicy.suspend", True)
    cluster.api.edit("storage.directory", "new")
    cluster.run()
    (container,) = cluster.api.pods["mnist-cleanup"]["spec"]["containers"]
    assert container["command"][container["command"].index("--root") + 1] == "/training/old"
    resume(cleanup_done(cluster)).run()
    cleanup = cluster.status.cleanup
    assert cleanup is not None and cleanup.storage is not None and cleanup.storage.directory == "new"


def test_they_are_removed_again_at_the_end() -> None:
    cluster = cleanup_done(suspend(SimulatedCluster(a_job().storage()).run()).run())
    resume(cluster).run()
    assert cluster.status.condition("Cleaned") is None
    cleanup_done(cluster.exit("worker-0", code=0).run())
    assert (cluster.status.phase, condition(cluster, "Cleaned").status) == ("Succeeded", "True")
    assert cluster.status.cleanup is not None and cluster.status.cleanup.removed == 4


def test_no_pod_trains_while_they_are_removed() -> None:
    cluster = suspend(SimulatedCluster(a_job().storage()).run()).run()
    assert cluster.pods == ["cleanup"]
    resume(cluster).settle()
    assert cluster.pods == ["cleanup"]
    assert cluster.status.message is not None and "waiting for mnist-cleanup" in cluster.status.message
    cluster.run()
    assert (cluster.pods, cluster.status.phase) == (["worker-0", "worker-1"], "Running")


def test_a_cleanup_that_never_ends_is_given_up_ten_minutes_after_the_suspension() -> None:
    cluster = SimulatedCluster(a_job().storage()).run().wait(3600)
    began = cluster.now
    suspend(cluster).run().run_timers()
    assert ((cluster.now - began).total_seconds(), condition(cluster, "Cleaned").status) == (600, "False")
    resume(cluster).run()
    assert cluster.status.cleanup is not None
    assert (cluster.status.phase, cluster.status.cleanup.failed_attempts) == ("Running", 0)


# --- the time


@pytest.mark.parametrize("path", ["activeDeadlineSeconds", "startDeadlineSeconds"])
def test_suspended_time_does_not_count(path: str) -> None:
    cluster = SimulatedCluster(a_job().set(f"runPolicy.{path}", 100)).run().wait(99)
    suspend(cluster).run().wait(1000).run_timers()
    assert condition(cluster).status == "True"
    resume(cluster).run().wait(99).run()
    assert cluster.status.phase == "Running"


def test_the_start_deadline_begins_with_the_resumption() -> None:
    cluster = resume(suspend(SimulatedCluster(a_job()).run()).run().wait(5000)).settle()
    began = cluster.now
    assert cluster.timer is not None and (cluster.timer - began).total_seconds() == 600


# --- what is kept, and what is not


def test_the_latest_progress_is_kept() -> None:
    cluster = SimulatedCluster(a_launched_job()).run()
    cluster.launchers.advance(7, 400)
    cluster.launcher_report = cluster.launchers.last_report()
    suspend(cluster).run()
    assert cluster.status.progress is not None and cluster.status.progress.epoch == 7


def test_what_was_given_up_before_is_forgotten() -> None:
    cluster = SimulatedCluster(a_launched_job()).run().exit("worker-1", code=137).run()
    assert "worker-1" in cluster.status.replaced
    assert resume(suspend(cluster).run()).run().status.replaced == {}


def test_only_those_that_still_run_are_active() -> None:
    cluster = suspend(SimulatedCluster(a_job().workers(3)).run().exit("worker-1", code=0))
    cluster.step()
    assert cluster.status.replicas["worker"].active == 2


def test_after_a_cleanup_that_failed_the_next_suspension_tries_anew() -> None:
    cluster = suspend(SimulatedCluster(a_job().storage()).run()).run()
    for _ in range(3):
        cluster.exit("cleanup", code=1, message="OSError: no").settle().wait(10).run()
    assert condition(cluster, "Cleaned").status == "False"
    suspend(resume(cluster).run()).run()
    assert cluster.pods == ["cleanup"]
    assert cluster.api.pods["mnist-cleanup"]["metadata"]["labels"]["tftraining.dev/attempt"] == "1"


def test_a_wiped_status_is_made_good_by_the_pods_that_are_still_there() -> None:
    cluster = suspend(SimulatedCluster(a_job().workers(3).storage()).run()).settle()
    del cluster.api.job["status"]
    cluster.run()
    (container,) = cluster.api.pods["mnist-cleanup"]["spec"]["containers"]
    assert "--index=2" in container["command"]


@pytest.mark.parametrize("new_job", [a_job, a_launched_job], ids=["Recreate", "InPlace"])
def test_an_evaluator_that_goes_with_the_suspension_is_no_disruption(new_job: Callable[[], JobBuilder]) -> None:
    cluster = suspend(SimulatedCluster(new_job().role("evaluator")).run()).settle()
    resume(cluster).settle()
    assert (cluster.status.phase, cluster.status.restarts.disruptions) == ("Starting", 0)
    assert cluster.run().status.phase == "Running"
    assert "evaluator-0" in cluster.pods and cluster.status.restarts.recreated == 0


def test_nor_is_one_that_goes_through_several_of_them_at_other_sizes() -> None:
    cluster = SimulatedCluster(a_job().role("evaluator")).run()
    for size in (3, 2):
        suspend(cluster).settle()
        cluster.api.edit("replicaSpecs.worker.replicas", size)
        resume(cluster).settle()
    assert (cluster.run().status.phase, cluster.status.restarts.disruptions) == ("Running", 0)
