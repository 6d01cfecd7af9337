"""Row: suspend and resume. The pods go quickly and safely, the checkpoints stay, the job goes on from them; created
suspended, and suspended at any moment.
"""

from collections.abc import Callable

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.pauses import resume, suspend
from tests.support.simulated_cluster.simulation import World
from tftraining_api.model.status import Condition

NewJob = Callable[[], JobBuilder]
MODES = pytest.mark.parametrize("new_job", [a_job, a_launched_job])


def condition(world: World, kind: str = "Suspended") -> Condition:
    found = world.status.condition(kind)
    assert found is not None
    return found


@MODES
def test_created_suspended(new_job: NewJob) -> None:
    world = World(new_job().storage().set("runPolicy.suspend", True)).run().wait(86400).run()
    assert (world.status.phase, world.status.reason, world.status.ready) == ("Suspended", "Suspended", "0/2")
    assert (world.pods, world.api.services, world.status.start_time) == ([], {}, None)
    assert (condition(world).status, world.status.condition("Cleaned")) == ("True", None)
    assert [note.reason for note in world.events] == ["Suspended"]
    began = world.now
    resume(world).run()
    assert (world.status.phase, world.status.attempt, world.status.start_time) == ("Running", 1, began)
    assert (condition(world).status, condition(world).reason) == ("False", "Resumed")
    assert [note.reason for note in world.events] == ["Suspended", "Resumed", "Training"]


def test_the_trajectory_of_a_suspension() -> None:
    world = World(a_job()).run().wait(60)
    world.trajectory.clear()
    suspend(world).settle()
    assert world.status.message == "suspended: waiting for worker-0 to stop"
    world.kubelet.remove_deleted()
    world.settle()
    resume(world).settle()
    world.kubelet.start_all()
    world.settle()
    assert world.trajectory == [
        "Suspended 0/2 Suspended",
        "Suspended 0/2 Suspended",
        "Starting 0/2 CreatingPods",
        "Starting 0/2 PodsStarting",
        "Running 2/2 Training",
    ]
    assert world.status.message == "2 replicas train"


@MODES
def test_the_pods_get_their_own_grace(new_job: NewJob) -> None:
    world = suspend(World(new_job().set("launcher.terminationGraceSeconds", 40)).run())
    world.settle()
    graces = {pod["metadata"]["deletionGracePeriodSeconds"] for pod in world.api.pods.values()}
    assert len(graces) == 1 and graces.pop() >= 40


def test_the_intent_is_written_before_a_pod_is_deleted() -> None:
    world = suspend(World(a_job()).run())
    world.api.writes.clear()
    world.step()
    assert world.api.writes == ["status", "delete pod/mnist-worker-0", "delete pod/mnist-worker-1"]


@MODES
def test_a_suspension_is_no_failure_and_no_disruption(new_job: NewJob) -> None:
    world = suspend(World(new_job()).run()).settle()
    world.exit("worker-0", code=143).exit("worker-1", code=1).run()
    resume(world).run()
    restarts = world.status.restarts
    assert (restarts.counted, restarts.disruptions, restarts.recreated, restarts.in_place) == (0, 0, 0, 0)
    assert (world.status.phase, world.status.attempt, world.attempts()) == ("Running", 2, {"2"})
    assert (world.status.failure, world.status.last_restart) == (None, None)


@MODES
def test_the_new_pods_wait_until_the_old_ones_are_gone(new_job: NewJob) -> None:
    world = resume(suspend(World(new_job()).run()).settle()).settle()
    assert world.status.reason == "Stopping"
    world.kubelet.lose("mnist-worker-0")
    assert world.settle().pods == ["worker-1"]
    world.kubelet.lose("mnist-worker-1")
    assert world.settle().pods == ["worker-0", "worker-1"]
    assert world.attempts() == {"2"}


@MODES
def test_suspended_while_it_starts(new_job: NewJob) -> None:
    world = World(new_job()).settle()
    world.kubelet.start("mnist-worker-1", ready=False)
    assert suspend(world).run().pods == []
    assert resume(world).run().status.phase == "Running"


def test_suspended_while_it_restarts() -> None:
    world = World(a_job()).run().exit("worker-1").run().exit("worker-1").settle()
    assert (world.status.phase, world.status.attempt) == ("Restarting", 3)
    assert suspend(world).run().pods == []
    world.wait(600)
    resume(world).run()
    assert (world.status.phase, world.attempts(), world.status.restarts.counted) == ("Running", {"4"}, 2)
    last = world.status.last_restart
    assert last is not None and last.down_seconds is None, "that restart never came to its end"
    assert world.events[-1].message == "2/2 replicas train"


def test_suspended_while_launchers_restart() -> None:
    world = World(a_launched_job()).run()
    world.launchers.advance(4, 200)
    world.launchers.crash("worker-1")
    world.heard = world.launchers.heard()
    world.settle()
    assert world.status.phase == "Restarting"
    suspend(world).run()
    assert (world.status.phase, world.status.progress and world.status.progress.epoch) == ("Suspended", 4)
    resume(world).run()
    assert (world.status.phase, world.status.message) == ("Running", "2 replicas train")
    assert (world.status.restarts.counted, world.status.restarts.in_place) == (1, 0)


def test_suspended_in_the_back_off_no_pod_is_made() -> None:
    world = World(a_job()).run().exit("worker-1").run().exit("worker-1").settle()
    world.kubelet.remove_deleted()
    suspend(world).run_timers()
    assert world.wait(3600).run().pods == []


@MODES
def test_a_chief_that_had_finished_has_finished(new_job: NewJob) -> None:
    world = World(new_job()).run()
    if not world.launchers.finish():
        world.exit("worker-0", code=0)
    suspend(world).run()
    assert world.status.phase == "Succeeded"
    assert world.status.condition("Suspended") is None


def test_a_chief_that_finishes_on_the_way_has_finished() -> None:
    world = suspend(World(a_launched_job()).run()).settle()
    assert world.status.phase == "Suspended"
    world.launchers.finish()
    assert world.run().status.phase == "Succeeded"
    assert (condition(world).status, condition(world).reason) == ("False", "ChiefSucceeded")


def test_a_chief_that_finished_on_the_way_has_finished_though_the_job_is_resumed_before_anybody_looks() -> None:
    world = suspend(World(a_launched_job()).run()).settle()
    world.launchers.finish()
    assert resume(world).run().status.phase == "Succeeded"
    assert (world.status.attempt, condition(world).status) == (1, "False")


def test_a_spec_that_nobody_can_run_ends_the_suspension_of_a_new_job() -> None:
    world = World(a_job().set("runPolicy.suspend", True)).run()
    world.api.edit("replicaSpecs", {})
    assert world.run().status.reason == "InvalidSpec"
    assert condition(world).status == "False"


def test_a_verdict_before_the_suspension_counts() -> None:
    world = World(a_launched_job().max_restarts(0)).run()
    world.launchers.crash("worker-1")
    assert suspend(world).run().status.reason == "MaxRestartsExceeded"


def test_a_chief_that_leaves_politely_has_not_finished() -> None:
    world = suspend(World(a_job()).run()).settle()
    world.exit("worker-0", "worker-1", code=0).run()
    assert (world.status.phase, world.pods) == ("Suspended", [])


def test_the_operator_was_down_all_the_while() -> None:
    world = suspend(World(a_job().set("runPolicy.activeDeadlineSeconds", 60)).run())
    world.forget()
    world.wait(3600).run()
    assert world.status.phase == "Suspended"
    world.forget()
    resume(world).wait(3600).run()
    assert (world.status.phase, world.status.attempt) == ("Running", 2)


def test_what_is_changed_meanwhile_counts() -> None:
    world = suspend(World(a_job().workers(4)).run()).run()
    world.api.edit("replicaSpecs.worker.replicas", 1)
    world.api.edit("restartPolicy.mode", "InPlace")
    world.launched = True
    assert world.run().status.ready == "0/1"
    resume(world).run()
    assert (world.pods, world.status.ready, world.status.phase) == (["worker-0"], "1/1", "Running")
    assert world.status.replicas["worker"].highest == 3


def test_a_worker_that_had_finished_runs_again() -> None:
    world = suspend(World(a_job().workers(3)).run().exit("worker-1", code=0).run()).run()
    assert world.pods == []
    assert resume(world).run().pods == ["worker-0", "worker-1", "worker-2"]


def test_twice() -> None:
    world = World(a_job()).run()
    for attempt in (2, 3):
        resume(suspend(world).run()).wait(1).run()
        assert (world.status.phase, world.status.attempt) == ("Running", attempt)
    assert world.exit("worker-0", code=0).run().status.phase == "Succeeded"
    assert condition(world).status == "False"


def test_the_counts_of_a_suspended_job() -> None:
    world = suspend(World(a_job().workers(3)).run()).settle()
    assert world.status.replicas["worker"].active == 3
    workers = world.run().status.replicas["worker"]
    assert (workers.desired, workers.active, workers.ready, workers.highest) == (3, 0, 0, 2)


# --- at any moment


@MODES
@pytest.mark.parametrize("writes", range(6))
def test_suspended_at_any_write_of_the_start(new_job: NewJob, writes: int) -> None:
    world = World(new_job().chief())
    world.step(writes=writes)
    suspend(world).run()
    assert (world.status.phase, world.pods, world.status.restarts.counted) == ("Suspended", [], 0)
    resume(world).run()
    assert (world.status.phase, world.status.ready) == ("Running", "3/3")


@MODES
@pytest.mark.parametrize("writes", range(6))
def test_suspended_at_any_write_of_a_restart(new_job: NewJob, writes: int) -> None:
    world = World(new_job().max_restarts(1)).run().exit("worker-1", code=137, reason="OOMKilled")
    world.step(writes=writes)
    suspend(world).run()
    assert (world.status.phase, world.pods) == ("Suspended", [])
    resume(world).run()
    assert (world.status.phase, world.status.ready) == ("Running", "2/2")
    assert world.status.restarts.counted == (writes > 0), "what nobody had seen before is no incident"


def test_suspended_while_a_lost_pod_is_made_anew() -> None:
    world = World(a_launched_job().workers(3)).run().delete("worker-1").settle()
    assert world.status.phase == "Restarting"
    suspend(world).run()
    assert (world.status.phase, world.pods, world.status.ready) == ("Suspended", [], "0/3")
    assert resume(world).run().status.ready == "3/3"
    assert world.status.restarts.disruptions == 1


@MODES
def test_back_and_forth_while_the_pods_go(new_job: NewJob) -> None:
    world = suspend(World(new_job().storage()).run()).settle()
    for _ in range(3):
        resume(world).settle()
        suspend(world).settle()
    assert world.run().pods == ["cleanup"]
    resume(cleanup_done(world)).run()
    assert (world.status.phase, world.status.restarts.counted, world.status.restarts.disruptions) == ("Running", 0, 0)


@MODES
def test_created_suspended_and_changed_before_it_begins(new_job: NewJob) -> None:
    world = World(new_job().storage().set("runPolicy.suspend", True)).run()
    world.api.edit("replicaSpecs.worker.replicas", 3)
    world.run().wait(3600).forget()
    resume(world).run()
    assert (world.status.phase, world.status.ready, world.status.attempt) == ("Running", "3/3", 1)
    assert world.status.restarts.recreated == 0


@MODES
def test_created_suspended_with_deadlines_that_begin_with_it(new_job: NewJob) -> None:
    job = new_job().set("runPolicy.activeDeadlineSeconds", 60).set("runPolicy.startDeadlineSeconds", 60)
    world = World(job.set("runPolicy.suspend", True)).run().wait(86400).run()
    assert world.status.phase == "Suspended"
    assert resume(world).run().wait(59).run().status.phase == "Running"
    assert world.wait(1).run().status.reason == "DeadlineExceeded"


def test_a_cleanup_that_the_api_server_will_never_accept_fails_no_suspended_job() -> None:
    world = World(a_job().storage()).run()
    world.api.refusals["pod/mnist-cleanup"] = (422, "spec.containers[0].image: Invalid value")
    suspend(world).run_timers()
    assert (world.status.phase, condition(world, "Cleaned").status) == ("Suspended", "False")
    assert resume(world).run().status.phase == "Running"


# --- the training goes on from where it was


def test_it_goes_on_from_the_saved_epoch() -> None:
    world = World(a_launched_job().storage()).run()
    world.launchers.advance(4, 280)
    world.launchers.backup = (3, 210)
    suspend(world.run()).run()
    cleanup_done(world)
    assert world.status.progress is not None and world.status.progress.epoch == 4
    resume(world).run()
    assert world.status.condition("Resumed") is None, "its programs have not told yet"
    world.launchers.advance(4, 220)
    world.wait(10).run()
    resumed = condition(world, "Resumed")
    assert (resumed.status, resumed.message) == ("True", "resumed from epoch 3, after the suspension")
    assert world.status.last_restart is None and not world.step()
    assert not [note for note in world.events if note.reason == "EarlierRun"], "the backup is this job's own"


def test_a_job_that_had_saved_nothing_yet_says_that_it_began_again() -> None:
    world = resume(suspend(World(a_launched_job()).run()).run()).run()
    world.launchers.advance(1, 5)
    resumed = condition(world.wait(10).run(), "Resumed")
    assert (resumed.status, resumed.reason) == ("False", "StartedOver")
    assert resumed.message == "started over: no backup found, after the suspension"


def test_a_restart_after_the_resumption_is_told_of_from_then_on() -> None:
    world = resume(suspend(World(a_launched_job()).run()).run()).run()
    world.launchers.advance(4, 220)
    world.run().launchers.crash("worker-1")
    assert condition(world.run(), "Resumed").message.startswith("resumed from epoch 3 after 1.1 s")


@MODES
def test_nothing_but_temporary_directories_is_touched(new_job: NewJob) -> None:
    world = suspend(World(new_job().workers(3).storage()).run()).run()
    (container,) = world.api.pods["mnist-cleanup"]["spec"]["containers"]
    removed = [each for each in container["command"] if each.startswith(("--index", "--save-dir"))]
    assert removed == ["--save-dir=.", "--index=1", "--index=2"]


# --- the temporary save directories


def cleanup_done(world: World) -> World:
    return world.exit("cleanup", code=0, message='{"removed": 2}').run()


def test_they_are_removed_when_nobody_can_write_any_more() -> None:
    world = suspend(World(a_job().workers(3).storage()).run()).settle()
    assert world.pods == ["worker-0", "worker-1", "worker-2"]
    world.kubelet.lose("mnist-worker-0", "mnist-worker-1")
    assert world.settle().pods == ["worker-2"]
    world.kubelet.lose("mnist-worker-2")
    assert world.run().pods == ["cleanup"]
    cleanup_done(world)
    assert (world.pods, condition(world, "Cleaned").message) == ([], "removed 2 temporary save directories")


def test_they_are_removed_again_at_the_end() -> None:
    world = cleanup_done(suspend(World(a_job().storage()).run()).run())
    resume(world).run()
    assert world.status.condition("Cleaned") is None
    cleanup_done(world.exit("worker-0", code=0).run())
    assert (world.status.phase, condition(world, "Cleaned").status) == ("Succeeded", "True")
    assert world.status.cleanup is not None and world.status.cleanup.removed == 4


def test_no_pod_trains_while_they_are_removed() -> None:
    world = suspend(World(a_job().storage()).run()).run()
    assert world.pods == ["cleanup"]
    resume(world).settle()
    assert world.pods == ["cleanup"]
    assert world.status.message is not None and "waiting for mnist-cleanup" in world.status.message
    world.run()
    assert (world.pods, world.status.phase) == (["worker-0", "worker-1"], "Running")


def test_a_cleanup_that_never_ends_is_given_up_ten_minutes_after_the_suspension() -> None:
    world = World(a_job().storage()).run().wait(3600)
    began = world.now
    suspend(world).run().run_timers()
    assert ((world.now - began).total_seconds(), condition(world, "Cleaned").status) == (600, "False")
    resume(world).run()
    assert world.status.cleanup is not None
    assert (world.status.phase, world.status.cleanup.failed_attempts) == ("Running", 0)


# --- the time


@pytest.mark.parametrize("path", ["activeDeadlineSeconds", "startDeadlineSeconds"])
def test_suspended_time_does_not_count(path: str) -> None:
    world = World(a_job().set(f"runPolicy.{path}", 100)).run().wait(99)
    suspend(world).run().wait(1000).run_timers()
    assert condition(world).status == "True"
    resume(world).run().wait(99).run()
    assert world.status.phase == "Running"


def test_the_start_deadline_begins_with_the_resumption() -> None:
    world = resume(suspend(World(a_job()).run()).run().wait(5000)).settle()
    began = world.now
    assert world.timer is not None and (world.timer - began).total_seconds() == 600


# --- what is kept, and what is not


def test_the_latest_progress_is_kept() -> None:
    world = World(a_launched_job()).run()
    world.launchers.advance(7, 400)
    world.heard = world.launchers.heard()
    suspend(world).run()
    assert world.status.progress is not None and world.status.progress.epoch == 7


def test_what_was_given_up_before_is_forgotten() -> None:
    world = World(a_launched_job()).run().exit("worker-1", code=137).run()
    assert "worker-1" in world.status.replaced
    assert resume(suspend(world).run()).run().status.replaced == {}


def test_only_those_that_still_run_are_active() -> None:
    world = suspend(World(a_job().workers(3)).run().exit("worker-1", code=0))
    world.step()
    assert world.status.replicas["worker"].active == 2


def test_after_a_cleanup_that_failed_the_next_suspension_tries_anew() -> None:
    world = suspend(World(a_job().storage()).run()).run()
    for _ in range(3):
        world.exit("cleanup", code=1, message="OSError: no").settle().wait(10).run()
    assert condition(world, "Cleaned").status == "False"
    suspend(resume(world).run()).run()
    assert world.pods == ["cleanup"]
    assert world.api.pods["mnist-cleanup"]["metadata"]["labels"]["tftraining.dev/attempt"] == "1"


def test_a_wiped_status_is_made_good_by_the_pods_that_are_still_there() -> None:
    world = suspend(World(a_job().workers(3).storage()).run()).settle()
    del world.api.job["status"]
    world.run()
    (container,) = world.api.pods["mnist-cleanup"]["spec"]["containers"]
    assert "--index=2" in container["command"]


@pytest.mark.parametrize("new_job", [a_job, a_launched_job], ids=["Recreate", "InPlace"])
def test_an_evaluator_that_goes_with_the_suspension_is_no_disruption(new_job: Callable[[], JobBuilder]) -> None:
    world = suspend(World(new_job().role("evaluator")).run()).settle()
    resume(world).settle()
    assert (world.status.phase, world.status.restarts.disruptions) == ("Starting", 0)
    assert world.run().status.phase == "Running"
    assert "evaluator-0" in world.pods and world.status.restarts.recreated == 0


def test_nor_is_one_that_goes_through_several_of_them_at_other_sizes() -> None:
    world = World(a_job().role("evaluator")).run()
    for size in (3, 2):
        suspend(world).settle()
        world.api.edit("replicaSpecs.worker.replicas", size)
        resume(world).settle()
    assert (world.run().status.phase, world.status.restarts.disruptions) == ("Running", 0)
