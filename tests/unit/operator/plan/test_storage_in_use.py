"""What a job does whose directory another job writes (who that is: ../cluster/test_storage_admission.py)."""

import pytest

from tests.support.simulated_cluster.builders import a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tests.support.simulated_cluster.suspension import resume, suspend
from tests.unit.operator.plan.conftest import until_it_cleans
from tftraining_operator.model.observed import StorageUse

BUSY = StorageUse(held="run of the claim training is in use by the job other")
TOLD = StorageUse(shared="run of the claim training: the job other writes the same directory")


@pytest.mark.parametrize("suspended_before", [False, True], ids=["new", "resumed"])
def test_a_job_waits_for_its_directory_without_using_its_start_deadline(suspended_before: bool) -> None:
    cluster = SimulatedCluster(a_launched_job().storage().set("runPolicy.startDeadlineSeconds", 60))
    if suspended_before:
        suspend(cluster.run()).run()
    cluster.storage = BUSY
    resume(cluster).run().wait(3600).run()
    assert (cluster.status.phase, cluster.status.reason, cluster.pods) == ("Starting", "StorageInUse", [])
    assert cluster.status.message == BUSY.held
    assert [each.message for each in cluster.events if each.reason == "StorageInUse"] == [BUSY.held]
    cluster.storage = StorageUse()
    assert cluster.settle().status.phase == "Starting" and len(cluster.pods) == 2
    assert cluster.run().status.phase == "Running"


def test_no_cleanup_runs_in_a_directory_that_another_job_uses() -> None:
    cluster = SimulatedCluster(a_job().storage()).run().exit("worker-0", code=0)
    cluster.storage = BUSY
    cluster.run()
    cleaned = cluster.status.condition("Cleaned")
    assert cleaned is not None and (cleaned.reason, cleaned.message) == ("Waiting", BUSY.held)
    assert cluster.pods == ["worker-0"]
    cluster.storage = StorageUse()
    assert "cleanup" in until_it_cleans(cluster).pods


def test_a_job_that_writes_already_is_told_once_and_goes_on() -> None:
    cluster = SimulatedCluster(a_job().storage()).run()
    cluster.storage = TOLD
    cluster.run().wait(60).run()
    condition = cluster.status.condition("StorageShared")
    assert condition is not None and (condition.status, condition.reason) == ("True", "StorageInUse")
    assert [each.reason for each in cluster.events].count("StorageShared") == 1
    assert (cluster.status.phase, cluster.status.attempt) == ("Running", 1)
    cluster.storage = StorageUse()
    condition = cluster.run().status.condition("StorageShared")
    assert condition is not None and (condition.status, condition.reason) == ("False", "StorageAlone")
