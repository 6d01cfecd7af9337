"""How long restarts wait, how many there may be, and what refills the budget."""

import pytest

from tests.support.simulated_cluster.builders import a_job
from tests.support.simulated_cluster.simulation import World
from tftraining_api.model.status import Restarts


def crash(world: World) -> float:
    """Crash worker 1 at once, wait for the gang to train again; the seconds that the restart waited."""
    world.exit("worker-1").settle()
    world.kubelet.remove_deleted()
    before = world.now
    world.run_timers()
    return (world.now - before).total_seconds()


def test_the_first_restart_is_immediate_and_the_next_ones_wait_longer_and_longer() -> None:
    world = World(a_job().max_restarts(100)).run()
    assert [crash(world) for _ in range(10)] == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_nothing_is_created_before_the_wait_is_over() -> None:
    world = World(a_job()).run()
    crash(world)
    world.exit("worker-0").settle()
    world.kubelet.remove_deleted()
    assert world.settle().pods == []
    assert world.status.message is not None and "restarting the gang in 1 s as attempt 3" in world.status.message
    assert world.wait(0.9).settle().pods == []
    assert world.wait(0.1).settle().pods == ["worker-0", "worker-1"]


def test_the_wait_survives_a_restart_of_the_operator() -> None:
    world = World(a_job()).run()
    crash(world)
    world.exit("worker-0").settle()
    world.kubelet.remove_deleted()
    world.forget()
    world.settle()
    assert world.pods == []
    assert world.timer is not None and world.timer > world.now


def test_a_minute_of_training_refills_the_budget_and_ends_the_waits() -> None:
    world = World(a_job().max_restarts(2)).run()
    assert [crash(world), crash(world)] == [0, 1]
    world.wait(60)
    assert crash(world) == 0
    assert world.status.restarts == Restarts(counted=3, recreated=3, budget_used=1, without_progress=1)


def test_less_than_a_minute_of_training_refills_nothing() -> None:
    world = World(a_job().max_restarts(2)).run()
    crash(world)
    crash(world)
    world.wait(59)
    crash(world)
    assert world.status.phase == "Failed"


def test_the_minute_counts_to_the_crash_not_to_its_discovery() -> None:
    world = World(a_job()).run()
    crash(world)
    world.exit("worker-1").wait(600).settle()
    assert world.status.restarts.budget_used == 2


def test_never_means_that_progress_refills_nothing_but_ends_the_waits() -> None:
    world = World(a_job().max_restarts(2).set("restartPolicy.budgetReset", "Never")).run()
    for _ in range(2):
        world.wait(3600)
        assert crash(world) == 0
    world.wait(3600).exit("worker-1").run()
    assert world.status.phase == "Failed"


@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_an_exhausted_budget_fails_the_job(allowed: int) -> None:
    world = World(a_job().max_restarts(allowed)).run()
    for _ in range(allowed):
        crash(world)
    world.exit("worker-1", code=3).run_timers()
    assert (world.status.phase, world.status.reason) == ("Failed", "MaxRestartsExceeded")
    assert world.status.restarts.counted == allowed
    assert world.status.message == (
        f"worker-1 failed: exit code 3; no restarts left: spec.restartPolicy.maxRestarts is {allowed}"
    )
    assert world.status.failure is not None and world.status.failure.exit_code == 3
    assert world.status.completion_time is not None


def test_the_failed_pod_is_kept_and_the_others_go() -> None:
    world = World(a_job().max_restarts(0)).run().exit("worker-1").run()
    assert world.pods == ["worker-1"]
    assert world.api.services == {}


def test_a_budget_that_is_raised_while_the_job_runs_counts() -> None:
    world = World(a_job().max_restarts(0)).run()
    world.api.edit("restartPolicy.maxRestarts", 1)
    crash(world)
    assert world.status.phase == "Running"


def test_a_budget_that_is_lowered_below_what_is_used_fails_only_at_the_next_failure() -> None:
    world = World(a_job()).run()
    for _ in range(3):
        crash(world)
    world.api.edit("restartPolicy.maxRestarts", 1)
    assert world.run().status.phase == "Running"
    crash(world)
    assert world.status.phase == "Failed"


def test_disruptions_wait_too_but_cost_nothing() -> None:
    world = World(a_job().max_restarts(0)).run()
    for _ in range(4):
        world.delete("worker-1").run_timers()
    assert world.status.restarts == Restarts(disruptions=4, recreated=4, without_progress=4)
    assert (world.status.phase, world.status.attempt) == ("Running", 5)
