"""maxRestarts, budgetReset and the back-off. The status counts the charged restarts across operators, pods, attempts
and suspensions; only progress refills the budget; restarts are delayed only without progress.
"""

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tftraining_api.model.status import MemberFailures, Restarts


def running(job: JobBuilder) -> SimulatedCluster:
    cluster = SimulatedCluster(job).run()
    cluster.launchers.advance(1, 10)
    return cluster.run()


def trained(cluster: SimulatedCluster, epochs: int) -> None:
    """The training progresses by so many epochs; without launchers by a minute and more for each."""
    if cluster.launched:
        epoch = (cluster.launchers.progress or {"epoch": 1})["epoch"] + epochs
        cluster.launchers.advance(epoch, 70 * epoch)
        cluster.poll_launchers()
        cluster.settle()
    else:
        cluster.wait(61 * epochs)


def crash(cluster: SimulatedCluster) -> float:
    """Kill the program of worker-1; return the seconds until all train again, or until the job has failed."""
    before = cluster.now
    if cluster.launched:
        cluster.launchers.crash("worker-1")
        cluster.run_timers()
        return 0.0
    cluster.exit("worker-1", code=137).run_timers()
    return (cluster.now - before).total_seconds()


def lose_whole_pod(cluster: SimulatedCluster) -> None:
    """A charge that no launcher can count."""
    cluster.exit("worker-1", code=137, reason="OOMKilled").run_timers()


@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_max_restarts_failures_are_allowed_and_no_more(job: JobBuilder, allowed: int) -> None:
    cluster = running(job.max_restarts(allowed))
    for number in range(allowed):
        crash(cluster)
        assert (cluster.status.phase, cluster.status.restarts.counted) == ("Running", number + 1)
    crash(cluster)
    assert (cluster.status.phase, cluster.status.reason) == ("Failed", "MaxRestartsExceeded")
    restarts = cluster.status.restarts
    assert (restarts.counted, restarts.budget_used) == (allowed, allowed), "the last failure is no restart"
    if not cluster.launched:  # launchers write the message themselves
        used_up = f"no restarts left: spec.restartPolicy.maxRestarts is {allowed}"
        assert cluster.status.message == f"worker-1 failed: exit code 137 (SIGKILL); {used_up}"
    assert cluster.status.failure is not None and cluster.status.failure.pod == "mnist-worker-1"
    assert cluster.status.completion_time is not None


def test_it_is_counted_across_restarts_of_the_operator(job: JobBuilder) -> None:
    cluster = running(job.max_restarts(3))
    for _ in range(3):
        crash(cluster)
        cluster.forget()
    assert (cluster.status.phase, cluster.status.restarts.counted) == ("Running", 3)
    crash(cluster)
    assert cluster.status.reason == "MaxRestartsExceeded"


def test_it_is_counted_across_pods_and_attempts(job: JobBuilder) -> None:
    cluster = running(job.max_restarts(2))
    crash(cluster)
    cluster.api.edit("replicaSpecs.worker.replicas", 3)
    lose_whole_pod(cluster.run())
    assert (cluster.status.phase, cluster.status.restarts.counted) == ("Running", 2)
    crash(cluster)
    assert cluster.status.reason == "MaxRestartsExceeded"


def test_it_is_counted_across_a_suspension(job: JobBuilder) -> None:
    cluster = running(job.max_restarts(1))
    crash(cluster)
    cluster.api.edit("runPolicy.suspend", True)
    cluster.run().exit("cleanup", code=0, message='{"removed": 0}').run()
    cluster.api.edit("runPolicy.suspend", False)
    assert cluster.run_timers().status.phase == "Running"
    crash(cluster)
    assert cluster.status.reason == "MaxRestartsExceeded"


def test_progress_refills_it(job: JobBuilder) -> None:
    cluster = running(job.max_restarts(1))
    for _ in range(4):
        crash(cluster)
        trained(cluster, 2)
    assert (cluster.status.phase, cluster.status.restarts.counted) == ("Running", 4)
    crash(cluster)
    crash(cluster)
    assert cluster.status.reason == "MaxRestartsExceeded"


def test_with_budget_reset_never_progress_ends_the_delays_and_refills_nothing(job: JobBuilder) -> None:
    cluster = running(job.max_restarts(2).set("restartPolicy.budgetReset", "Never"))
    for _ in range(2):
        trained(cluster, 5)
        assert crash(cluster) == 0
    trained(cluster, 5)
    crash(cluster)
    assert cluster.status.reason == "MaxRestartsExceeded"


def test_restarts_wait_only_where_there_was_no_progress(job: JobBuilder) -> None:
    cluster = running(job)
    for _ in range(3):
        lose_whole_pod(cluster)
    before = cluster.now
    lose_whole_pod(cluster)
    assert (cluster.now - before).total_seconds() == 4
    trained(cluster, 2)
    before = cluster.now
    lose_whole_pod(cluster)
    assert (cluster.now - before).total_seconds() == 0


def test_one_incident_is_one_charge_however_many_fail(job: JobBuilder) -> None:
    cluster = running(job.workers(4).max_restarts(1))
    cluster.exit("worker-2", code=137).wait(1).exit("worker-0", "worker-1", "worker-3", code=1).run_timers()
    assert (cluster.status.phase, cluster.status.restarts.counted) == ("Running", 1)


def test_a_disruption_in_between_costs_nothing_and_refills_nothing(job: JobBuilder) -> None:
    cluster = running(job.max_restarts(1))
    crash(cluster)
    cluster.delete("worker-0").run_timers()
    assert (cluster.status.phase, cluster.status.restarts.budget_used) == ("Running", 1)
    crash(cluster)
    assert cluster.status.reason == "MaxRestartsExceeded"


def test_the_status_of_an_older_operator_has_used_nothing_yet(job: JobBuilder) -> None:
    cluster = running(job)
    cluster.api.job["status"]["restarts"] = {"counted": 4}
    cluster.run()
    assert (cluster.status.phase, cluster.status.restarts.budget_used) == ("Running", 0)


# --- with launchers


def lose_the_chief(cluster: SimulatedCluster, step: int) -> None:
    """A backup in memory is made at that step, in an epoch without end; then the chief's pod fails as a whole."""
    cluster.launchers.in_memory = {"step": step, "time": "2026-01-31T12:00:00Z", "members": 2, "on": True}
    cluster.poll_launchers()
    cluster.settle()
    cluster.wait(20).exit("worker-0", code=137).run_timers()


@pytest.mark.parametrize(("steps", "phase"), [((100, 200, 300, 400), "Running"), ((100, 100), "Failed")])
def test_a_newer_backup_in_memory_is_progress_where_the_chiefs_account_is_lost(
    steps: tuple[int, ...], phase: str
) -> None:
    cluster = running(a_launched_job().max_restarts(1))
    for step in steps:
        lose_the_chief(cluster, step)
    assert (cluster.status.phase, cluster.status.restarts.budget_used) == (phase, 1)


def test_a_backup_that_is_lost_with_the_pod_is_no_progress() -> None:
    cluster = running(a_launched_job().workers(1).max_restarts(1))
    for step in (100, 200):
        lose_the_chief(cluster, step)
    assert cluster.status.reason == "MaxRestartsExceeded"


# --- without launchers


def test_the_first_restart_is_immediate_and_the_delays_of_the_next_ones_double() -> None:
    cluster = SimulatedCluster(a_job().max_restarts(100)).run()
    assert [crash(cluster) for _ in range(10)] == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_nothing_is_created_before_the_delay_is_over() -> None:
    cluster = SimulatedCluster(a_job()).run()
    crash(cluster)
    cluster.exit("worker-0").settle()
    cluster.kubelet.remove_deleted()
    cluster.forget()
    assert cluster.settle().pods == []
    assert cluster.status.message is not None and "restarting the gang in 1 s as attempt 3" in cluster.status.message
    assert cluster.wait(0.9).settle().pods == []
    assert cluster.wait(0.1).settle().pods == ["worker-0", "worker-1"]


@pytest.mark.parametrize(("seconds", "phase"), [(59, "Failed"), (60, "Running")])
def test_a_minute_of_training_refills_the_budget_and_ends_the_delays(seconds: float, phase: str) -> None:
    cluster = SimulatedCluster(a_job().max_restarts(2)).run()
    assert [crash(cluster), crash(cluster)] == [0, 1]
    cluster.wait(seconds)
    assert crash(cluster) == 0
    assert cluster.status.phase == phase
    if phase == "Running":
        row = MemberFailures(member="worker-1", count=1)
        expected = Restarts(counted=3, recreated=3, budget_used=1, without_progress=1, same_member=row)
        assert cluster.status.restarts == expected


def test_the_minute_counts_to_the_crash_not_to_its_discovery() -> None:
    cluster = SimulatedCluster(a_job()).run()
    crash(cluster)
    cluster.exit("worker-1").wait(600).settle()
    assert cluster.status.restarts.budget_used == 2
