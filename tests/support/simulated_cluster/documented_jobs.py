"""A job that the documentation shows, in a simulated cluster."""

from tests.support.simulated_cluster.builders import JobBuilder
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tftraining_api.model.spec import Manifest
from tftraining_client.validation import validate


def running(manifest: Manifest) -> SimulatedCluster:
    """The job as the API server stores it, in a training gang."""
    job = JobBuilder().without("worker")
    for field, value in validate(manifest)["spec"].items():
        job.set(field, value)
    cluster = SimulatedCluster(job).run()
    assert cluster.status.phase == "Running"
    return cluster
