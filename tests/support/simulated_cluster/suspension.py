"""A person suspends a job, and resumes it."""

from tests.support.simulated_cluster.simulation import SimulatedCluster


def suspend(cluster: SimulatedCluster) -> SimulatedCluster:
    cluster.api.edit("runPolicy.suspend", True)
    return cluster


def resume(cluster: SimulatedCluster) -> SimulatedCluster:
    cluster.api.edit("runPolicy.suspend", False)
    return cluster
