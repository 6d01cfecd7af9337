"""How long restarts wait, how many there may be, and what refills the budget."""

import pytest

from tests.support.simulated_cluster.builders import a_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tftraining_api.model.status import Restarts


def crash(cluster: SimulatedCluster) -> float:
    """Crash worker 1 at once, wait for the gang to train again; the seconds that the restart waited."""
    cluster.exit("worker-1").settle()
    cluster.kubelet.remove_deleted()
    before = cluster.now
    cluster.run_timers()
    return (cluster.now - before).total_seconds()


def test_the_first_restart_is_immediate_and_the_next_ones_wait_longer_and_longer() -> None:
    cluster = SimulatedCluster(a_job().max_restarts(100)).run()
    assert [crash(cluster) for _ in range(10)] == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_nothing_is_created_before_the_wait_is_over() -> None:
    cluster = SimulatedCluster(a_job()).run()
    crash(cluster)
    cluster.exit("worker-0").settle()
    cluster.kubelet.remove_deleted()
    assert cluster.settle().pods == []
    assert cluster.status.message is not None and "restarting the gang in 1 s as attempt 3" in cluster.status.message
    assert cluster.wait(0.9).settle().pods == []
    assert cluster.wait(0.1).settle().pods == ["worker-0", "worker-1"]


def test_the_wait_survives_a_restart_of_the_operator() -> None:
    cluster = SimulatedCluster(a_job()).run()
    crash(cluster)
    cluster.exit("worker-0").settle()
    cluster.kubelet.remove_deleted()
    cluster.forget()
    cluster.settle()
    assert cluster.pods == []
    assert cluster.timer is not None and cluster.timer > cluster.now


def test_a_minute_of_training_refills_the_budget_and_ends_the_waits() -> None:
    cluster = SimulatedCluster(a_job().max_restarts(2)).run()
    assert [crash(cluster), crash(cluster)] == [0, 1]
    cluster.wait(60)
    assert crash(cluster) == 0
    assert cluster.status.restarts == Restarts(counted=3, recreated=3, budget_used=1, without_progress=1)


def test_less_than_a_minute_of_training_refills_nothing() -> None:
    cluster = SimulatedCluster(a_job().max_restarts(2)).run()
    crash(cluster)
    crash(cluster)
    cluster.wait(59)
    crash(cluster)
    assert cluster.status.phase == "Failed"


def test_the_minute_counts_to_the_crash_not_to_its_discovery() -> None:
    cluster = SimulatedCluster(a_job()).run()
    crash(cluster)
    cluster.exit("worker-1").wait(600).settle()
    assert cluster.status.restarts.budget_used == 2


def test_never_means_that_progress_refills_nothing_but_ends_the_waits() -> None:
    cluster = SimulatedCluster(a_job().max_restarts(2).set("restartPolicy.budgetReset", "Never")).run()
    for _ in range(2):
        cluster.wait(3600)
        assert crash(cluster) == 0
    cluster.wait(3600).exit("worker-1").run()
    assert cluster.status.phase == "Failed"


@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_an_exhausted_budget_fails_the_job(allowed: int) -> None:
    cluster = SimulatedCluster(a_job().max_restarts(allowed)).run()
    for _ in range(allowed):
        crash(cluster)
    cluster.exit("worker-1", code=3).run_timers()
    assert (cluster.status.phase, cluster.status.reason) == ("Failed", "MaxRestartsExceeded")
    assert cluster.status.restarts.counted == allowed
    assert cluster.status.message == (
        f"worker-1 failed: exit code 3; no restarts left: spec.restartPolicy.maxRestarts is {allowed}"
    )
    assert cluster.status.failure is not None and cluster.status.failure.exit_code == 3
    assert cluster.status.completion_time is not None


def test_the_failed_pod_is_kept_and_the_others_go() -> None:
    cluster = SimulatedCluster(a_job().max_restarts(0)).run().exit("worker-1").run()
    assert cluster.pods == ["worker-1"]
    assert cluster.api.services == {}


def test_a_budget_that_is_raised_while_the_job_runs_counts() -> None:
    cluster = SimulatedCluster(a_job().max_restarts(0)).run()
    cluster.api.edit("restartPolicy.maxRestarts", 1)
    crash(cluster)
    assert cluster.status.phase == "Running"


def test_a_budget_that_is_lowered_below_what_is_used_fails_only_at_the_next_failure() -> None:
    cluster = SimulatedCluster(a_job()).run()
    for _ in range(3):
        crash(cluster)
    cluster.api.edit("restartPolicy.maxRestarts", 1)
    assert cluster.run().status.phase == "Running"
    crash(cluster)
    assert cluster.status.phase == "Failed"


def test_disruptions_wait_too_but_cost_nothing() -> None:
    cluster = SimulatedCluster(a_job().max_restarts(0)).run()
    for _ in range(4):
        cluster.delete("worker-1").run_timers()
    assert cluster.status.restarts == Restarts(disruptions=4, recreated=4, without_progress=4)
    assert (cluster.status.phase, cluster.status.attempt) == ("Running", 5)
