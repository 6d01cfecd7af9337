"""A person suspends a job, and resumes it."""

from tests.support.simulated_cluster.simulation import World


def suspend(world: World) -> World:
    world.api.edit("runPolicy.suspend", True)
    return world


def resume(world: World) -> World:
    world.api.edit("runPolicy.suspend", False)
    return world
