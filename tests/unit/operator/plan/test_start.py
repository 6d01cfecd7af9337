"""From an empty namespace to a gang that trains."""

from tests.support.simulated_cluster.builders import JobBuilder, a_job
from tests.support.simulated_cluster.simulation import World


def test_the_service_is_made_before_any_pod_and_the_status_before_both() -> None:
    world = World(a_job())
    world.step()
    assert world.api.writes == [
        "status",
        "create service/mnist",
        "create pod/mnist-worker-0",
        "create pod/mnist-worker-1",
    ]


def test_the_trajectory_of_an_undisturbed_start() -> None:
    world = World(a_job()).settle()
    world.kubelet.start("mnist-worker-0")
    world.settle()
    world.kubelet.start("mnist-worker-1")
    world.settle()
    assert world.trajectory == [
        "Starting 0/2 CreatingPods",
        "Starting 0/2 PodsStarting",
        "Starting 1/2 PodsStarting",
        "Running 2/2 Training",
    ]
    assert [(note.type, note.reason) for note in world.events] == [("Normal", "Started"), ("Normal", "Training")]


def test_what_the_status_of_a_running_job_says() -> None:
    status = World(a_job()).run().status
    assert (status.phase, status.ready, status.message) == ("Running", "2/2", "2 replicas train")
    assert status.attempt == 1
    assert status.start_time is not None and status.completion_time is None
    assert status.selector == "tftraining.dev/job-name=mnist,tftraining.dev/role=worker"
    workers = status.replicas["worker"]
    assert (workers.desired, workers.active, workers.ready, workers.highest) == (2, 2, 2, 1)
    assert status.is_true("Ready")


def test_a_chief_and_workers_start_together() -> None:
    world = World(a_job().chief().workers(2)).run()
    assert world.pods == ["chief-0", "worker-0", "worker-1"]
    assert world.status.ready == "3/3"
    assert set(world.status.replicas) == {"chief", "worker"}


def test_a_chief_alone_is_a_gang() -> None:
    world = World(a_job().without("worker").chief()).run()
    assert (world.pods, world.status.message) == (["chief-0"], "the replica trains")


def test_a_pod_that_runs_but_is_not_ready_does_not_train_yet() -> None:
    world = World(a_job()).settle()
    world.kubelet.start("mnist-worker-0")
    world.kubelet.start("mnist-worker-1", ready=False)
    assert world.settle().status.phase == "Starting"
    assert world.status.message == "waiting for worker-1 to start"


def test_a_pod_that_loses_its_readiness_leaves_the_job_running_but_not_ready() -> None:
    world = World(a_job()).run()
    world.kubelet.start("mnist-worker-1", ready=False)
    world.settle()
    assert (world.status.phase, world.status.ready) == ("Running", "1/2")
    assert not world.status.is_true("Ready")
    assert world.status.restarts.recreated == 0


def test_a_service_that_somebody_deletes_comes_back() -> None:
    world = World(a_job()).run()
    world.api.delete_service("mnist")
    world.settle()
    assert "mnist" in world.api.services
    assert world.status.restarts.recreated == 0


def test_a_job_that_is_being_deleted_gets_no_new_child_and_no_write(job: JobBuilder, world: World) -> None:
    for each in (World(job), world):
        each.api.job["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
        each.kubelet.lose(*list(each.api.pods))
        assert not each.step() and each.pods == []


def test_a_job_of_another_manager_is_left_alone() -> None:
    assert not World(a_job().set("runPolicy.managedBy", "example.com/queue")).step()
    assert World(a_job().set("runPolicy.managedBy", "tftraining.dev/operator")).step()
