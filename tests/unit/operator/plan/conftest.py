"""The frame of the behaviour matrix: one file a row of what must hold on the bad days, each sentence a test.

Rows that hold with and without launchers are checked under both: `world` is a gang of two that trains, in either mode.
The simulated cluster (tests/support/simulated_cluster) holds every plan to the planner's invariants.
"""

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import World


@pytest.fixture(params=["InPlace", "Recreate"])
def job(request: pytest.FixtureRequest) -> JobBuilder:
    """A job of two workers with shared storage, with launchers and without."""
    made = a_launched_job() if request.param == "InPlace" else a_job()
    return made.storage()


@pytest.fixture
def world(job: JobBuilder) -> World:
    """The same, which trains, and may not fail a single time; what it has told so far is forgotten."""
    world = World(job.max_restarts(0)).run()
    assert world.status.phase == "Running"
    world.events.clear()
    world.trajectory.clear()
    return world


def until_it_cleans(world: World) -> World:
    """The end of a job, until its temporary directories are being removed, or there is nothing left to do."""
    for _ in range(20):
        world.run()
        if "cleanup" in world.pods or world.timer is None:
            return world
        world.wait(1)
    return world


def ended(world: World) -> World:
    """The end of a job, its cleanup included."""
    until_it_cleans(world)
    if "cleanup" in world.pods:
        world.exit("cleanup", code=0, message='{"removed": 2}').run_timers()
    return world


def succeeded(world: World) -> World:
    """The chief's program exits with 0."""
    if world.launched:
        world.launchers.finish()
        return world
    return world.exit("worker-0", code=0)


def failed(world: World) -> World:
    """The pod of worker 1 fails."""
    return world.exit("worker-1", code=3, message="the last line")
