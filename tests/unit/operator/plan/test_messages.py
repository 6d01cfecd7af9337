"""What the status says while a gang does not train yet: in plain words, naming the pod, and without flicker."""

import pytest
from msgspec.structs import replace

from tests.support.simulated_cluster.builders import a_job, a_launched_job
from tests.support.simulated_cluster.simulation import World
from tftraining_operator.model.observed import Pod, parse_pod
from tftraining_operator.plan.readiness import PATIENCE, why_not_started

IMAGE = "container tensorflow: image pull failed (trainer:1)"
PULL = 'rpc error: code = NotFound desc = failed to resolve "trainer:1": not found'


def starting(workers: int = 2) -> World:
    return World(a_job().workers(workers)).settle()


def test_a_failed_image_pull_reads_the_same_through_every_state_of_the_kubelet() -> None:
    world = starting()
    world.kubelet.start("mnist-worker-0")
    world.kubelet.hold("mnist-worker-1", "ErrImagePull", PULL)
    world.settle()
    assert (world.status.phase, world.status.reason) == ("Starting", "PodsNotReady")
    assert world.status.message == f"worker-1: {IMAGE}: {PULL}"
    world.kubelet.hold(
        "mnist-worker-1", "ImagePullBackOff", f'Back-off pulling image "trainer:1": ErrImagePull: {PULL}'
    )
    assert not world.step()


def test_of_many_that_are_held_up_one_is_named_and_the_others_are_counted() -> None:
    world = World(a_job().workers(5)).settle()
    for index in (1, 3, 4):
        world.kubelet.hold(f"mnist-worker-{index}", "ErrImagePull", "no")
        world.settle()
    assert world.status.message == f"worker-1: {IMAGE}: no (and 2 more)"
    assert [note.message for note in world.events if note.type == "Warning"] == [f"worker-1: {IMAGE}: no"]


def test_an_image_is_worth_one_warning_whichever_pod_lacks_it_and_however_the_tries_fail() -> None:
    world = World(a_job().workers(3)).settle()
    world.kubelet.hold("mnist-worker-2", "ErrImagePull", "lookup registry on 10.0.0.10:53: read udp 10.1.0.7:40001")
    world.settle()
    world.kubelet.hold("mnist-worker-1", "ErrImagePull", "lookup registry on 10.0.0.10:53: read udp 10.1.0.7:40002")
    world.settle()
    world.kubelet.hold("mnist-worker-1", "ImagePullBackOff", 'Back-off pulling image "trainer:1"')
    world.settle()
    assert world.status.message == f'worker-1: {IMAGE}: Back-off pulling image "trainer:1" (and 1 more)'
    warnings = [note.message for note in world.events if note.type == "Warning"]
    assert len(warnings) == 1 and warnings[0].startswith(f"worker-2: {IMAGE}: lookup registry")
    world.api.pods["mnist-worker-1"]["status"]["containerStatuses"][0]["image"] = "trainer:2"
    world.settle()
    assert len([note for note in world.events if note.type == "Warning"]) == 2, "another image is another cause"


def test_why_a_pod_does_not_start_is_written_at_once_and_only_the_numbers_later() -> None:
    world = World(a_job().workers(3))
    world.step(soon=True)
    assert world.status.phase == "Pending", "a new job gets its children first"
    world.kubelet.hold("mnist-worker-1", "ErrImagePull", "no")
    world.step(soon=True)
    assert (world.status.phase, world.status.message) == ("Starting", f"worker-1: {IMAGE}: no")
    world.kubelet.hold("mnist-worker-2", "ErrImagePull", "no")
    world.step(soon=True)
    assert world.status.message == f"worker-1: {IMAGE}: no"


def test_a_pod_that_cannot_be_scheduled() -> None:
    world = starting()
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes available"}
    world.kubelet.condition("mnist-worker-1", condition)
    world.settle()
    assert world.status.message == "worker-1: cannot be scheduled: 0/3 nodes available"
    assert (world.events[-1].type, world.events[-1].reason) == ("Warning", "PodsNotReady")


def unschedulable(world: World, words: str, *pods: str) -> None:
    """What the scheduler says of the pods."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    for each in pods:
        world.kubelet.condition(f"mnist-{each}", condition)


NODES = (
    "0/{} nodes are available: {} Insufficient cpu, {} node(s) had untolerated taint(s). preemption: 0/{} nodes are "
)


def test_another_number_of_nodes_is_neither_news_nor_a_write() -> None:
    """Nodes come and go in a large cluster, and each time the scheduler says how many there are."""
    world = starting()
    unschedulable(world, NODES.format(103, 100, 3, 103), "worker-0", "worker-1")
    world.settle()
    message, writes = world.status.message, len(world.api.writes)
    assert message is not None and message.startswith("worker-0: cannot be scheduled: 0/103 nodes are available: 100")
    for number in range(60):
        unschedulable(world, NODES.format(104 + number, 3, 101 + number, 104 + number), "worker-0", "worker-1")
        world.wait(5).settle()
    assert (world.status.message, len(world.api.writes)) == (message, writes)
    unschedulable(world, "0/7 nodes are available: 3 node(s) had untolerated taint(s), 7 Insufficient cpu", "worker-0")
    world.settle()
    unschedulable(world, "0/7 nodes are available: 7 node(s) didn't match pod affinity rules", "worker-0", "worker-1")
    world.settle()
    assert world.status.message == (
        "worker-0: cannot be scheduled: 0/7 nodes are available: 7 node(s) didn't match pod affinity rules (and 1 more)"
    )


def test_what_the_scheduler_lacks_is_worth_one_warning_whichever_pod_it_is_for() -> None:
    world = starting(3)
    for number, pod in enumerate(("worker-2", "worker-1", "worker-0")):
        unschedulable(world, f"0/{number} nodes are available: {number} Insufficient cpu.", pod)
        world.settle()
    assert [note.message for note in world.events if note.type == "Warning"] == [
        "worker-2: cannot be scheduled: 0/0 nodes are available: 0 Insufficient cpu."
    ]
    assert str(world.status.message).startswith("worker-0: ") and str(world.status.message).endswith("(and 2 more)")


def test_a_gang_that_trains_with_fewer_does_not_follow_the_number_of_nodes_either() -> None:
    world = World(a_launched_job().workers(3).set("minReplicas", 2)).run()
    world.launchers.backup = (1, 70)
    world.delete("worker-2", grace=0)
    world.settle()
    unschedulable(world, "0/3 nodes are available: 3 Insufficient cpu.", "worker-2")
    world.launchers.tick()
    world.heard = world.launchers.heard()
    world.settle()
    message = world.status.message
    unschedulable(world, "0/4 nodes are available: 4 Insufficient cpu.", "worker-2")
    world.settle()
    assert world.status.message == message


BINDING = [
    "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: 0/3 nodes are available",
    'persistentvolumeclaim "training" not found',
    "not found",
    'running PreBind plugin "VolumeBinding": binding volumes: timed out',
    "0/3 nodes are available: 3 node(s) didn't find available persistent volumes to bind.",
]


@pytest.mark.parametrize("words", BINDING)
def test_a_claim_that_is_being_bound_is_told_only_after_20_seconds(words: str) -> None:
    world = starting()
    unschedulable(world, words, "worker-0", "worker-1")
    world.settle()
    assert (world.status.reason, world.timer) == ("PodsStarting", world.now.replace(microsecond=0) + PATIENCE)
    assert world.wait(20).settle().status.message == f"worker-0: cannot be scheduled: {words} (and 1 more)"
    assert world.status.reason == "PodsNotReady"
    assert len([note for note in world.events if note.type == "Warning"]) == 1


def test_a_claim_that_is_bound_in_time_is_no_warning() -> None:
    world = starting()
    unschedulable(world, BINDING[0], "worker-0", "worker-1")
    world.settle()
    world.kubelet.start("mnist-worker-0", "mnist-worker-1")
    world.wait(5).run()
    assert world.status.phase == "Running"
    assert [note.type for note in world.events] == ["Normal", "Normal"]


def test_a_volume_that_does_not_come_is_told_only_after_20_seconds() -> None:
    world = starting(1)
    world.kubelet.hold("mnist-worker-0", "ContainerCreating")
    world.kubelet.condition("mnist-worker-0", {"type": "PodReadyToStartContainers", "status": "False"})
    world.settle()
    assert world.status.reason == "PodsStarting"
    assert world.timer is not None and (world.timer - world.now).total_seconds() == 20
    assert world.wait(19).settle().status.reason == "PodsStarting"
    world.wait(1).settle()
    assert world.status.message == ("worker-0: volumes or network not ready (see kubectl describe pod)")
    assert world.timer is not None and (world.timer - world.now).total_seconds() == 580, "the start deadline"


def test_what_the_kubelet_has_said_of_a_volume_is_told_in_its_words() -> None:
    held = replace(parse_pod_of(starting(1)), preparing=True, unprepared='secret "s" not found')
    assert why_not_started(held, held.created + PATIENCE) == 'volumes or network not ready: secret "s" not found'
    assert why_not_started(held, held.created) == ""


def parse_pod_of(world: World) -> Pod:
    pod = parse_pod(world.api.pods["mnist-worker-0"])
    assert pod is not None
    return pod


@pytest.mark.parametrize(
    ("reason", "message", "said"),
    [
        ("CreateContainerConfigError", 'secret "s" not found', 'CreateContainerConfigError: secret "s" not found'),
        ("CreateContainerError", "name is reserved", "CreateContainerError: name is reserved"),
        ("RunContainerError", "exec: no such file", "RunContainerError: exec: no such file"),
        ("InvalidImageName", "bad", "image pull failed (trainer:1): bad"),
        ("ErrImageNeverPull", "not present", "image pull failed (trainer:1): not present"),
        ("RegistryUnavailable", "down", "image pull failed (trainer:1): down"),
        ("ImagePullBackOff", "", "image pull failed (trainer:1)"),
    ],
)
def test_other_reasons_of_the_kubelet(reason: str, message: str, said: str) -> None:
    world = starting(1)
    world.kubelet.hold("mnist-worker-0", reason, message)
    assert world.settle().status.message == f"worker-0: container tensorflow: {said}"


def test_an_init_container_that_waits() -> None:
    world = starting(1)
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "no"}}
    status = world.api.pods["mnist-worker-0"]["status"]
    status["initContainerStatuses"] = [{"name": "fetch", "image": "curl:1", "state": waiting}]
    assert world.settle().status.message == "worker-0: init container fetch: image pull failed (curl:1): no"


def a_side_car(reason: str, message: str) -> dict[str, object]:
    return {"name": "logs", "image": "logs:1", "state": {"waiting": {"reason": reason, "message": message}}}


def test_a_side_car_that_cannot_start_is_named_after_the_training_container() -> None:
    world = starting(1)
    world.kubelet.hold("mnist-worker-0", "ContainerCreating")
    containers = world.api.pods["mnist-worker-0"]["status"]["containerStatuses"]
    containers.insert(0, a_side_car("ImagePullBackOff", "no"))
    assert world.settle().status.message == "worker-0: container logs: image pull failed (logs:1): no"
    containers[1]["state"] = {"waiting": {"reason": "ErrImagePull", "message": "not that one either"}}
    assert world.settle().status.message == f"worker-0: {IMAGE}: not that one either"


@pytest.mark.parametrize("place", ["containerStatuses", "initContainerStatuses"])
def test_a_side_car_that_cannot_start_says_nothing_of_a_gang_that_trains(place: str) -> None:
    """Nor that its node is not ready, nor that its image is without Python."""
    world = World(a_launched_job().workers(1)).run()
    trains = world.status
    assert trains.phase == "Running"
    broken = a_side_car("RunContainerError", 'exec: "python3": executable file not found in $PATH')
    world.api.pods["mnist-worker-0"]["status"].setdefault(place, []).append(broken)
    assert (world.run().status.phase, world.status.reason) == ("Running", trains.reason)


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
    assert world.settle().status.message == f"worker-1: {IMAGE}: no"
    world.kubelet.hold("mnist-worker-1", "ContainerCreating")
    assert world.settle().status.message == "waiting for worker-0, worker-1 to start"
    assert world.status.phase == "Restarting"


def test_who_has_finished_is_found_without_comparing_everybody_with_everybody() -> None:
    class Name(str):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Name.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    world = World(a_launched_job().workers(200)).run()
    assert world.heard is not None
    names = tuple(Name(f"worker-{index}") for index in range(1, 200))
    report = replace(world.heard.report, finished=names)
    world.heard = replace(world.heard, report=report)
    assert world.plan().status.message == "1 replica training; worker-1, worker-2, worker-3 and 196 more have finished"
    assert Name.compared < 10 * len(names)
