"""successPolicy AllWorkers: the job has succeeded when every chief and worker has."""

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster


def all_workers() -> JobBuilder:
    return a_job().set("successPolicy", "AllWorkers")


def test_the_chief_alone_does_not_decide() -> None:
    cluster = SimulatedCluster(all_workers().workers(3)).run().exit("worker-0", code=0).run()
    assert (cluster.status.phase, cluster.status.ready) == ("Running", "3/3")
    cluster.exit("worker-2", code=0).run().exit("worker-1", code=0).run()
    assert (cluster.status.phase, cluster.status.reason) == ("Succeeded", "AllWorkersSucceeded")
    assert cluster.status.message == "every chief and worker has succeeded"


def test_a_chief_and_workers() -> None:
    cluster = SimulatedCluster(all_workers().chief()).run().exit("worker-0", "worker-1", code=0).run()
    assert cluster.status.phase == "Running"
    assert cluster.exit("chief-0", code=0).run().status.phase == "Succeeded"


def test_those_that_have_finished_never_run_again_when_they_are_deleted() -> None:
    cluster = SimulatedCluster(all_workers()).run().exit("worker-0", code=0).run().delete("worker-0").run()
    assert (cluster.status.phase, cluster.pods, cluster.status.attempt) == ("Running", ["worker-1"], 1)
    assert cluster.exit("worker-1", code=0).run().status.phase == "Succeeded"


def test_a_failure_after_the_chief_is_done_restarts_the_gang() -> None:
    cluster = SimulatedCluster(all_workers()).run().exit("worker-0", code=0).run().exit("worker-1").run()
    assert (cluster.status.phase, cluster.status.attempt, cluster.status.restarts.counted) == ("Running", 2, 1)
    assert cluster.pods == ["worker-0", "worker-1"]


def test_all_of_it_while_the_operator_was_down() -> None:
    cluster = SimulatedCluster(all_workers()).run().exit("worker-0", "worker-1", code=0).wait(3600)
    cluster.forget()
    assert cluster.run().status.phase == "Succeeded"


def test_one_that_is_deleted_and_leaves_politely_has_not_finished() -> None:
    cluster = (
        SimulatedCluster(all_workers()).run().exit("worker-0", code=0).run().delete("worker-1").exit("worker-1", code=0)
    )
    cluster.run()
    assert (cluster.status.phase, cluster.status.attempt) == ("Running", 2)


def test_who_has_finished_is_not_said_to_train() -> None:
    cluster = SimulatedCluster(all_workers().workers(3)).run().exit("worker-1", code=0).run()
    assert cluster.status.message == "2 replicas training; worker-1 has finished"
    cluster.exit("worker-0", code=0).run().delete("worker-1").run()
    assert cluster.status.message == "1 replica training; worker-0, worker-1 have finished"


# --- with launchers, which count for themselves and end together


@pytest.fixture
def launched() -> SimulatedCluster:
    return SimulatedCluster(a_launched_job().storage().set("successPolicy", "AllWorkers")).run()


def test_with_launchers_the_chief_alone_does_not_decide_either(launched: SimulatedCluster) -> None:
    launched.launchers.finish("worker-0")
    assert (launched.run().status.phase, launched.status.ready) == ("Running", "2/2")
    assert launched.status.message == "1 replica training; worker-0 has finished"
    assert not launched.launchers.verdict_in
    launched.launchers.finish("worker-1")
    assert (launched.run().status.phase, launched.status.reason) == ("Succeeded", "AllWorkersSucceeded")
    assert launched.status.message == "every chief and worker has succeeded"


def test_with_launchers_a_failure_after_the_chief_is_done_restarts_in_place(launched: SimulatedCluster) -> None:
    launched.launchers.finish("worker-0")
    launched.run().launchers.crash("worker-1")
    status = launched.run().status
    assert (status.phase, status.attempt) == ("Running", 1)
    assert (status.restarts.counted, status.restarts.in_place, status.restarts.recreated) == (1, 1, 0)
    launched.launchers.finish("worker-1")
    assert launched.run().status.phase == "Running", "the chief's program runs again too"
    launched.launchers.finish("worker-0")
    assert launched.run().status.phase == "Succeeded"


def test_with_launchers_the_pod_of_one_that_has_finished_is_made_anew_and_its_program_is_not(
    launched: SimulatedCluster,
) -> None:
    launched.launchers.finish("worker-1")
    launched.run().delete("worker-1")
    assert (launched.run_timers().status.phase, launched.status.ready) == ("Running", "2/2")
    assert (launched.launchers.round, launched.status.restarts.counted) == (1, 0)
    launched.launchers.finish("worker-0")
    assert launched.run().status.reason == "AllWorkersSucceeded"


def test_with_launchers_all_of_it_while_the_operator_was_down(launched: SimulatedCluster) -> None:
    launched.launchers.finish("worker-0", "worker-1")
    launched.kubelet.force_delete("mnist-worker-0", "mnist-worker-1")
    launched.wait(3600).forget()
    assert launched.run().status.phase == "Succeeded"
    assert launched.status.reason == "AllWorkersSucceeded"
