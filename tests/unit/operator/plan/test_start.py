"""From an empty namespace to a gang that trains."""

from tests.support.simulated_cluster.builders import JobBuilder, a_job
from tests.support.simulated_cluster.simulation import SimulatedCluster


def test_the_service_is_made_before_any_pod_and_the_status_before_both() -> None:
    cluster = SimulatedCluster(a_job())
    cluster.step()
    assert cluster.api.writes == [
        "status",
        "create service/mnist",
        "create pod/mnist-worker-0",
        "create pod/mnist-worker-1",
    ]


def test_the_trajectory_of_an_undisturbed_start() -> None:
    cluster = SimulatedCluster(a_job()).settle()
    cluster.kubelet.start("mnist-worker-0")
    cluster.settle()
    cluster.kubelet.start("mnist-worker-1")
    cluster.settle()
    assert cluster.trajectory == [
        "Starting 0/2 CreatingPods",
        "Starting 0/2 PodsStarting",
        "Starting 1/2 PodsStarting",
        "Running 2/2 Training",
    ]
    assert [(note.type, note.reason) for note in cluster.events] == [("Normal", "Started"), ("Normal", "Training")]


def test_what_the_status_of_a_running_job_says() -> None:
    status = SimulatedCluster(a_job()).run().status
    assert (status.phase, status.ready, status.message) == ("Running", "2/2", "2 replicas training")
    assert status.attempt == 1
    assert status.start_time is not None and status.completion_time is None
    assert status.selector == "tftraining.dev/job-name=mnist,tftraining.dev/role=worker"
    workers = status.replicas["worker"]
    assert (workers.desired, workers.active, workers.ready, workers.highest) == (2, 2, 2, 1)
    assert status.is_true("Ready")


def test_a_chief_and_workers_start_together() -> None:
    cluster = SimulatedCluster(a_job().chief().workers(2)).run()
    assert cluster.pods == ["chief-0", "worker-0", "worker-1"]
    assert cluster.status.ready == "3/3"
    assert set(cluster.status.replicas) == {"chief", "worker"}


def test_a_chief_alone_is_a_gang() -> None:
    cluster = SimulatedCluster(a_job().without("worker").chief()).run()
    assert (cluster.pods, cluster.status.message) == (["chief-0"], "1 replica training")


def test_a_pod_that_runs_but_is_not_ready_does_not_train_yet() -> None:
    cluster = SimulatedCluster(a_job()).settle()
    cluster.kubelet.start("mnist-worker-0")
    cluster.kubelet.start("mnist-worker-1", ready=False)
    assert cluster.settle().status.phase == "Starting"
    assert cluster.status.message == "waiting for worker-1 to start"


def test_a_pod_that_loses_its_readiness_leaves_the_job_running_but_not_ready() -> None:
    cluster = SimulatedCluster(a_job()).run()
    cluster.kubelet.start("mnist-worker-1", ready=False)
    cluster.settle()
    assert (cluster.status.phase, cluster.status.ready) == ("Running", "1/2")
    assert not cluster.status.is_true("Ready")
    assert cluster.status.restarts.recreated == 0


def test_a_service_that_somebody_deletes_comes_back() -> None:
    cluster = SimulatedCluster(a_job()).run()
    cluster.api.delete_service("mnist")
    cluster.settle()
    assert "mnist" in cluster.api.services
    assert cluster.status.restarts.recreated == 0


def test_a_job_that_is_being_deleted_gets_no_new_child_and_no_write(job: JobBuilder, cluster: SimulatedCluster) -> None:
    for each in (SimulatedCluster(job), cluster):
        each.api.job["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
        each.kubelet.force_delete(*list(each.api.pods))
        assert not each.step() and each.pods == []


def test_a_job_of_another_manager_is_left_alone() -> None:
    assert not SimulatedCluster(a_job().set("runPolicy.managedBy", "example.com/queue")).step()
    assert SimulatedCluster(a_job().set("runPolicy.managedBy", "tftraining.dev/operator")).step()
