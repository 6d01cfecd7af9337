"""Row: budgets. maxRestarts is counted in the status, survives the operator, and is refilled by progress only; restarts
wait only where there was none.
"""

import pytest

from tests.support.simulated_cluster.builders import JobBuilder
from tests.support.simulated_cluster.simulation import World


def running(job: JobBuilder) -> World:
    world = World(job).run()
    world.launchers.advance(1, 10)
    return world.run()


def trained(world: World, epochs: int) -> None:
    """The training comes so much further: epochs where a launcher tells of them, otherwise a minute and more each."""
    if world.launched:
        epoch = (world.launchers.progress or {"epoch": 1})["epoch"] + epochs
        world.launchers.advance(epoch, 70 * epoch)
        world.listen()
        world.settle()
    else:
        world.wait(61 * epochs)


def crash(world: World) -> float:
    """The program of worker-1 is killed; how long it takes until all train again, or until the job has failed."""
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
def test_so_many_failures_are_allowed_and_no_more(job: JobBuilder, allowed: int) -> None:
    world = running(job.max_restarts(allowed))
    for number in range(allowed):
        crash(world)
        assert (world.status.phase, world.status.restarts.counted) == ("Running", number + 1)
    crash(world)
    assert (world.status.phase, world.status.reason) == ("Failed", "MaxRestartsExceeded")
    restarts = world.status.restarts
    assert (restarts.counted, restarts.budget_used) == (allowed, allowed), "the last failure is no restart"


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


def test_never_means_never(job: JobBuilder) -> None:
    world = running(job.max_restarts(1).set("restartPolicy.budgetReset", "Never"))
    crash(world)
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
