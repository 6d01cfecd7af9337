"""When a job has succeeded, and what only looks like it."""

from tests.support.simulated_cluster.builders import a_job
from tests.support.simulated_cluster.simulation import SimulatedCluster


def test_the_trajectory_of_a_success() -> None:
    cluster = SimulatedCluster(a_job()).run().wait(60)
    cluster.trajectory.clear()
    cluster.exit("worker-0", code=0).settle()
    assert cluster.trajectory[0] == "Succeeded 2/2 ChiefSucceeded"
    assert cluster.status.message == "worker-0 (the chief) has succeeded"
    assert cluster.status.is_true("Succeeded")
    assert cluster.status.condition("Failed") is None
    assert not cluster.status.is_true("Ready")
    assert cluster.status.completion_time == cluster.now
    assert (cluster.events[-1].type, cluster.events[-1].reason) == ("Normal", "Succeeded")


def test_times_are_whole_seconds_as_kubernetes_has_them() -> None:
    status = SimulatedCluster(a_job()).wait(0.4).run().wait(0.7).exit("worker-0", code=0).run().status
    times = [status.start_time, status.completion_time, *(each.last_transition_time for each in status.conditions)]
    assert all(time is not None and time.microsecond == 0 for time in times)


def test_the_chief_finishes_first() -> None:
    cluster = SimulatedCluster(a_job().workers(3)).run().exit("worker-0", code=0).run()
    assert cluster.status.phase == "Succeeded"
    assert cluster.pods == ["worker-0"]
    assert cluster.status.restarts.recreated == 0


def test_a_worker_finishes_first() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-1", code=0).run()
    assert (cluster.status.phase, cluster.status.ready) == ("Running", "2/2")
    assert cluster.status.replicas["worker"].succeeded == 1
    cluster.wait(60).exit("worker-0", code=0).run()
    assert cluster.status.phase == "Succeeded"
    assert cluster.pods == ["worker-0", "worker-1"]


def test_the_task_named_chief_decides() -> None:
    cluster = SimulatedCluster(a_job().chief()).run().exit("worker-0", "worker-1", code=0).run()
    assert cluster.status.phase == "Running"
    assert cluster.exit("chief-0", code=0).run().status.phase == "Succeeded"


def test_a_worker_that_has_finished_and_is_deleted_never_runs_again() -> None:
    cluster = SimulatedCluster(a_job().workers(3)).run().exit("worker-1", code=0).run().delete("worker-1").run()
    assert cluster.pods == ["worker-0", "worker-2"]
    assert (cluster.status.phase, cluster.status.ready, cluster.status.attempt) == ("Running", "3/3", 1)
    assert not cluster.step()
    assert cluster.exit("worker-0", code=0).run().status.phase == "Succeeded"
    assert cluster.status.replicas["worker"].succeeded == 2


def test_those_that_finish_after_a_deletion_do_not_bring_the_deleted_back() -> None:
    cluster = SimulatedCluster(a_job().workers(4)).run().exit("worker-2", code=0).run().delete("worker-2").run()
    cluster.exit("worker-1", code=0).run().delete("worker-1").run()
    assert (cluster.pods, cluster.status.attempt) == (["worker-0", "worker-3"], 1)
    assert cluster.status.replicas["worker"].completed_indexes == "1-2"
    cluster.exit("worker-3", code=0).run()
    assert (cluster.status.attempt, cluster.status.replicas["worker"].succeeded) == (1, 3)


def test_a_new_attempt_runs_everybody_again() -> None:
    cluster = SimulatedCluster(a_job().workers(3)).run().exit("worker-1", code=0).run().delete("worker-1").run()
    cluster.exit("worker-2", code=1).run()
    assert (cluster.pods, cluster.status.ready) == (["worker-0", "worker-1", "worker-2"], "3/3")
    assert cluster.status.replicas["worker"].completed_indexes == ""


def test_a_worker_that_is_lost_beside_one_that_has_finished_is_a_disruption() -> None:
    cluster = SimulatedCluster(a_job().workers(3)).run().exit("worker-1", code=0).run().delete("worker-1").run()
    cluster.kubelet.force_delete("mnist-worker-2")
    cluster.run()
    assert (cluster.status.attempt, cluster.pods) == (2, ["worker-0", "worker-1", "worker-2"])
    assert cluster.status.restarts.counted == 0


def test_a_success_counts_though_a_worker_failed_in_the_same_moment() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-0", code=0).exit("worker-1", code=1).run()
    assert cluster.status.phase == "Succeeded"
    assert cluster.status.restarts.counted == 0


def test_the_others_may_fail_once_the_chief_is_done() -> None:
    cluster = SimulatedCluster(a_job().workers(3)).run().exit("worker-0", code=0).settle()
    cluster.exit("worker-1").run()
    assert cluster.status.phase == "Succeeded"
    assert cluster.status.failure is None


def test_a_deleted_chief_that_leaves_politely_is_no_success() -> None:
    cluster = SimulatedCluster(a_job()).run().delete("worker-0").exit("worker-0", code=0).run()
    assert (cluster.status.phase, cluster.status.attempt) == ("Running", 2)


def test_an_evicted_chief_that_leaves_politely_is_no_success() -> None:
    cluster = SimulatedCluster(a_job()).run()
    cluster.kubelet.evict("mnist-worker-0", code=0)
    assert (cluster.run().status.phase, cluster.status.attempt) == ("Running", 2)


def test_a_chief_that_had_finished_before_it_was_deleted_is_a_success() -> None:
    cluster = SimulatedCluster(a_job().beside(name="logs", image="logs:1")).run()
    cluster.exit("worker-0", code=0).wait(5).delete("worker-0").settle()
    assert cluster.status.phase == "Succeeded"


def test_a_side_car_that_still_runs_does_not_matter() -> None:
    cluster = SimulatedCluster(a_job().beside(name="logs", image="logs:1")).run().exit("worker-0", code=0).settle()
    assert cluster.status.phase == "Succeeded"


def test_a_job_that_is_done_never_runs_again() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-0", code=0).run()
    cluster.kubelet.force_delete("mnist-worker-0")
    cluster.api.edit("replicaSpecs.worker.replicas", 4)
    cluster.run()
    assert (cluster.status.phase, cluster.pods) == ("Succeeded", [])
    failed = SimulatedCluster(a_job().max_restarts(0)).run().exit("worker-1").run()
    failed.api.edit("restartPolicy.maxRestarts", 5)
    assert failed.run().status.phase == "Failed"
