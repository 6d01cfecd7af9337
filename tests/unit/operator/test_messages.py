"""What the status says while a gang does not train yet: in plain words, naming the pod, and without flicker."""

import pytest

from tests.unit.operator.builders import a_job
from tests.unit.operator.simulation import World

PULL = 'rpc error: code = NotFound desc = failed to resolve "trainer:1": not found'


def starting(workers: int = 2) -> World:
    return World(a_job().workers(workers)).settle()


def test_a_failed_image_pull_reads_the_same_through_every_state_of_the_kubelet() -> None:
    world = starting()
    world.kubelet.start("mnist-worker-0")
    world.kubelet.hold("mnist-worker-1", "ErrImagePull", PULL)
    world.settle()
    assert (world.status.phase, world.status.reason) == ("Starting", "PodsNotReady")
    assert world.status.message == f"worker-1: image pull failed: {PULL}"
    world.kubelet.hold(
        "mnist-worker-1", "ImagePullBackOff", f'Back-off pulling image "trainer:1": ErrImagePull: {PULL}'
    )
    assert not world.step()


def test_of_many_that_are_held_up_one_is_named_and_the_others_are_counted() -> None:
    world = World(a_job().workers(5)).settle()
    for index in (1, 3, 4):
        world.kubelet.hold(f"mnist-worker-{index}", "ErrImagePull", "no")
        world.settle()
    assert world.status.message == "worker-1: image pull failed: no (and 2 more)"
    assert [note.message for note in world.notes if note.type == "Warning"] == ["worker-1: image pull failed: no"]


def test_a_pod_that_cannot_be_scheduled() -> None:
    world = starting()
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes available"}
    world.kubelet.condition("mnist-worker-1", condition)
    world.settle()
    assert world.status.message == "worker-1: cannot be scheduled: 0/3 nodes available"
    assert (world.notes[-1].type, world.notes[-1].reason) == ("Warning", "PodsNotReady")


def test_a_volume_that_does_not_come_is_told_only_after_20_seconds() -> None:
    world = starting(1)
    world.kubelet.hold("mnist-worker-0", "ContainerCreating")
    world.kubelet.condition("mnist-worker-0", {"type": "PodReadyToStartContainers", "status": "False"})
    world.settle()
    assert world.status.reason == "PodsStarting"
    assert world.timer is not None and (world.timer - world.now).total_seconds() == 20
    assert world.wait(19).settle().status.reason == "PodsStarting"
    world.wait(1).settle()
    assert world.status.message == (
        "worker-0: its volumes or its network are not ready (kubectl describe pod shows what is missing)"
    )
    assert world.timer is not None and (world.timer - world.now).total_seconds() == 580, "the start deadline"


@pytest.mark.parametrize(
    ("reason", "message", "said"),
    [
        ("CreateContainerConfigError", 'secret "s" not found', 'CreateContainerConfigError: secret "s" not found'),
        ("InvalidImageName", "bad", "image pull failed: bad"),
        ("ImagePullBackOff", "", "image pull failed"),
    ],
)
def test_other_reasons_of_the_kubelet(reason: str, message: str, said: str) -> None:
    world = starting(1)
    world.kubelet.hold("mnist-worker-0", reason, message)
    assert world.settle().status.message == f"worker-0: {said}"


def test_an_init_container_that_waits() -> None:
    world = starting(1)
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "no"}}
    status = world.api.pods["mnist-worker-0"]["status"]
    status["initContainerStatuses"] = [{"name": "fetch", "state": waiting}]
    assert world.settle().status.message == "worker-0: init container fetch: image pull failed: no"


def test_an_init_container_that_fails_is_named() -> None:
    world = starting(1)
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": "Traceback\nNo module named tftraining\n"}}
    world.api.pods["mnist-worker-0"]["status"] = {
        "phase": "Failed",
        "initContainerStatuses": [{"name": "tftraining-launcher", "state": ended}],
    }
    world.settle()
    assert world.status.message is not None and world.status.message.startswith(
        "worker-0 failed: InitContainerFailed: init container tftraining-launcher: exit code 1: No module named"
    )


def test_many_waiting_pods_are_counted_not_listed() -> None:
    assert starting(9).status.message == "waiting for worker-0, worker-1, worker-2 and 6 more to start"


def test_pods_that_do_not_stop_are_named_with_their_node() -> None:
    world = World(a_job()).run().exit("worker-1").run().exit("worker-1").settle()
    del world.api.job["status"]
    world.api.pods["mnist-worker-0"]["metadata"]["labels"]["tftraining.dev/attempt"] = "1"
    world.api.create_pod(_pod_of_attempt_2(world))
    world.settle()
    assert world.status.message == "waiting for worker-0 of attempt 1 on node-a to stop"


def _pod_of_attempt_2(world: World) -> dict[str, object]:
    metadata = dict(world.api.pods["mnist-worker-0"]["metadata"], name="mnist-worker-1")
    labels = metadata["labels"] | {"tftraining.dev/index": "1", "tftraining.dev/attempt": "2"}
    kept = {key: metadata[key] for key in ("name", "ownerReferences", "annotations")}
    return {"metadata": kept | {"labels": labels}, "spec": {"containers": [{"name": "tensorflow"}]}}


def test_trouble_during_a_restart_is_shown_and_taken_back_when_it_has_passed() -> None:
    world = World(a_job()).run().exit("worker-1").settle()
    world.kubelet.remove_deleted()
    why = world.settle().status.message
    assert why is not None and why.startswith("worker-1 failed")
    world.kubelet.hold("mnist-worker-1", "ErrImagePull", "no")
    assert world.settle().status.message == "worker-1: image pull failed: no"
    world.kubelet.hold("mnist-worker-1", "ContainerCreating")
    assert world.settle().status.message == "waiting for worker-0, worker-1 to start"
    assert world.status.phase == "Restarting"
