"""What an operator finds that comes to a job after it was down, or after somebody has wiped the status.

test_operator_killed.py kills it after each write.
"""

from tests.support.simulated_cluster.builders import a_job
from tests.support.simulated_cluster.simulation import SimulatedCluster


def test_an_operator_that_was_down_while_a_job_crashed_charges_once() -> None:
    cluster = SimulatedCluster(a_job().workers(3)).run()
    cluster.exit("worker-2").wait(2).exit("worker-0", "worker-1").wait(3600)
    cluster.forget()
    cluster.run()
    assert (cluster.status.phase, cluster.status.restarts.counted) == ("Running", 1)
    assert cluster.status.failure is not None and cluster.status.failure.pod == "mnist-worker-2"


def test_a_wiped_status_adopts_the_attempt_of_the_pods() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-1").run()
    del cluster.api.job["status"]
    cluster.run()
    assert (cluster.status.phase, cluster.status.attempt, cluster.status.ready) == ("Running", 2, "2/2")
    assert cluster.pods == ["worker-0", "worker-1"]
    assert cluster.attempts() == {"2"}


def test_a_status_wiped_in_the_middle_of_a_restart_still_says_what_it_waits_for() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-1").settle()
    cluster.kubelet.remove_deleted()
    cluster.settle()
    del cluster.api.job["status"]
    cluster.settle()
    assert cluster.status.phase == "Restarting"
    assert cluster.status.reason and cluster.status.message
