"""The frame of the behaviour matrix: one file a row of what must hold on the bad days, each sentence a test.

Rows that hold with and without launchers are checked under both modes: `cluster` is a gang of two that trains.
The simulated cluster (tests/support/simulated_cluster) holds every plan to the planner's invariants.
"""

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster


@pytest.fixture(params=["InPlace", "Recreate"])
def job(request: pytest.FixtureRequest) -> JobBuilder:
    """A job of two workers with shared storage, with launchers and without."""
    made = a_launched_job() if request.param == "InPlace" else a_job()
    return made.storage()


@pytest.fixture
def cluster(job: JobBuilder) -> SimulatedCluster:
    """The same, which trains, and may not fail a single time; what it has told so far is forgotten."""
    cluster = SimulatedCluster(job.max_restarts(0)).run()
    assert cluster.status.phase == "Running"
    cluster.events.clear()
    cluster.trajectory.clear()
    return cluster


def until_it_cleans(cluster: SimulatedCluster) -> SimulatedCluster:
    """The end of a job, until its temporary directories are being removed, or there is nothing left to do."""
    for _ in range(20):
        cluster.run()
        if "cleanup" in cluster.pods or cluster.timer is None:
            return cluster
        cluster.wait(1)
    return cluster


def ended(cluster: SimulatedCluster) -> SimulatedCluster:
    """The end of a job, its cleanup included."""
    until_it_cleans(cluster)
    if "cleanup" in cluster.pods:
        cluster.exit("cleanup", code=0, message='{"removed": 2}').run_timers()
    return cluster


def succeeded(cluster: SimulatedCluster) -> SimulatedCluster:
    """The chief's program exits with 0."""
    if cluster.launched:
        cluster.launchers.finish()
        return cluster
    return cluster.exit("worker-0", code=0)


def failed(cluster: SimulatedCluster) -> SimulatedCluster:
    """The pod of worker 1 fails."""
    return cluster.exit("worker-1", code=3, message="the last line")
