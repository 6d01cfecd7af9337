"""maxRestarts, budgetReset and the back-off. The status counts the charged restarts across operators, pods, attempts
and suspensions; only progress refills the budget; restarts are delayed only without progress.
"""

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job
from tests.support.simulated_cluster.simulation import World
from tftraining_api.model.status import Restarts


def running(job: JobBuilder) -> World:
    world = World(job).run()
    world.launchers.advance(1, 10)
    return world.run()


def trained(world: World, epochs: int) -> None:
    """The training progresses by so many epochs; without launchers by a minute and more for each."""
    if world.launched:
        epoch = (world.launchers.progress or {"epoch": 1})["epoch"] + epochs
        world.launchers.advance(epoch, 70 * epoch)
        world.listen()
        world.settle()
    else:
        world.wait(61 * epochs)


def crash(world: World) -> float:
    """Kill the program of worker-1; return the seconds until all train again, or until the job has failed."""
    before = world.now
    if world.launched:
        world.launchers.crash("worker-1")
        world.run_timers()
        return 0.0
    world.exit("worker-1", code=137).run_timers()
    return (world.now - before).total_seconds()


def lose_whole_pod(world: World) -> None:
    """A charge that no launcher can count."""
    world.exit("worker-1", code=137, reason="OOMKilled").run_timers()


@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_max_restarts_failures_are_allowed_and_no_more(job: JobBuilder, allowed: int) -> None:
    world = running(job.max_restarts(allowed))
    for number in range(allowed):
        crash(world)
        assert (world.status.phase, world.status.restarts.counted) == ("Running", number + 1)
    crash(world)
    assert (world.status.phase, world.status.reason) == ("Failed", "MaxRestartsExceeded")
    restarts = world.status.restarts
    assert (restarts.counted, restarts.budget_used) == (allowed, allowed), "the last failure is no restart"
    if not world.launched:  # launchers write the message themselves
        used_up = f"all {allowed} restarts (spec.restartPolicy.maxRestarts) are used up"
        assert world.status.message == f"worker-1 failed: exit code 137 (SIGKILL); {used_up}"
    assert world.status.failure is not None and world.status.failure.pod == "mnist-worker-1"
    assert world.status.completion_time is not None


def test_it_is_counted_across_restarts_of_the_operator(job: JobBuilder) -> None:
    world = running(job.max_restarts(3))
    for _ in range(3):
        crash(world)
        world.forget()
    assert (world.status.phase, world.status.restarts.counted) == ("Running", 3)
    crash(world)
    assert world.status.reason == "MaxRestartsExceeded"


def test_it_is_counted_across_pods_and_attempts(job: JobBuilder) -> None:
    world = running(job.max_restarts(2))
    crash(world)
    world.api.edit("replicaSpecs.worker.replicas", 3)
    lose_whole_pod(world.run())
    assert (world.status.phase, world.status.restarts.counted) == ("Running", 2)
    crash(world)
    assert world.status.reason == "MaxRestartsExceeded"


def test_it_is_counted_across_a_suspension(job: JobBuilder) -> None:
    world = running(job.max_restarts(1))
    crash(world)
    world.api.edit("runPolicy.suspend", True)
    world.run().exit("cleanup", code=0, message='{"removed": 0}').run()
    world.api.edit("runPolicy.suspend", False)
    assert world.run_timers().status.phase == "Running"
    crash(world)
    assert world.status.reason == "MaxRestartsExceeded"


def test_progress_refills_it(job: JobBuilder) -> None:
    world = running(job.max_restarts(1))
    for _ in range(4):
        crash(world)
        trained(world, 2)
    assert (world.status.phase, world.status.restarts.counted) == ("Running", 4)
    crash(world)
    crash(world)
    assert world.status.reason == "MaxRestartsExceeded"


def test_with_budget_reset_never_progress_ends_the_delays_and_refills_nothing(job: JobBuilder) -> None:
    world = running(job.max_restarts(2).set("restartPolicy.budgetReset", "Never"))
    for _ in range(2):
        trained(world, 5)
        assert crash(world) == 0
    trained(world, 5)
    crash(world)
    assert world.status.reason == "MaxRestartsExceeded"


def test_restarts_wait_only_where_there_was_no_progress(job: JobBuilder) -> None:
    world = running(job)
    for _ in range(3):
        lose_whole_pod(world)
    before = world.now
    lose_whole_pod(world)
    assert (world.now - before).total_seconds() == 4
    trained(world, 2)
    before = world.now
    lose_whole_pod(world)
    assert (world.now - before).total_seconds() == 0


def test_one_incident_is_one_charge_however_many_fail(job: JobBuilder) -> None:
    world = running(job.workers(4).max_restarts(1))
    world.exit("worker-2", code=137).wait(1).exit("worker-0", "worker-1", "worker-3", code=1).run_timers()
    assert (world.status.phase, world.status.restarts.counted) == ("Running", 1)


def test_a_disruption_in_between_costs_nothing_and_refills_nothing(job: JobBuilder) -> None:
    world = running(job.max_restarts(1))
    crash(world)
    world.delete("worker-0").run_timers()
    assert (world.status.phase, world.status.restarts.budget_used) == ("Running", 1)
    crash(world)
    assert world.status.reason == "MaxRestartsExceeded"


def test_the_status_of_an_older_operator_has_used_nothing_yet(job: JobBuilder) -> None:
    world = running(job)
    world.api.job["status"]["restarts"] = {"counted": 4}
    world.run()
    assert (world.status.phase, world.status.restarts.budget_used) == ("Running", 0)


# --- without launchers


def test_the_first_restart_is_immediate_and_the_delays_of_the_next_ones_double() -> None:
    world = World(a_job().max_restarts(100)).run()
    assert [crash(world) for _ in range(10)] == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_nothing_is_created_before_the_delay_is_over() -> None:
    world = World(a_job()).run()
    crash(world)
    world.exit("worker-0").settle()
    world.kubelet.remove_deleted()
    world.forget()
    assert world.settle().pods == []
    assert world.status.message is not None and "restarting the gang in 1 s as attempt 3" in world.status.message
    assert world.wait(0.9).settle().pods == []
    assert world.wait(0.1).settle().pods == ["worker-0", "worker-1"]


@pytest.mark.parametrize(("seconds", "phase"), [(59, "Failed"), (60, "Running")])
def test_a_minute_of_training_refills_the_budget_and_ends_the_delays(seconds: float, phase: str) -> None:
    world = World(a_job().max_restarts(2)).run()
    assert [crash(world), crash(world)] == [0, 1]
    world.wait(seconds)
    assert crash(world) == 0
    assert world.status.phase == phase
    if phase == "Running":
        assert world.status.restarts == Restarts(counted=3, recreated=3, budget_used=1, without_progress=1)


def test_the_minute_counts_to_the_crash_not_to_its_discovery() -> None:
    world = World(a_job()).run()
    crash(world)
    world.exit("worker-1").wait(600).settle()
    assert world.status.restarts.budget_used == 2
