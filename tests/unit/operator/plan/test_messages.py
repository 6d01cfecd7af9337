"""What the status says while a gang does not train yet: in plain words, naming the pod, and without flicker."""

import pytest
from msgspec.structs import replace

from tests.support.simulated_cluster.builders import a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tftraining_operator.model.observed import Pod, parse_pod
from tftraining_operator.plan.messages import LATE, PATIENCE, why_not_started

IMAGE = "container tensorflow: image pull failed (trainer:1)"
GRACE = 1  # seconds, of the pods here
PULL = 'rpc error: code = NotFound desc = failed to resolve "trainer:1": not found'


def starting(workers: int = 2) -> SimulatedCluster:
    return SimulatedCluster(a_job().workers(workers)).settle()


def test_a_failed_image_pull_reads_the_same_through_every_state_of_the_kubelet() -> None:
    cluster = starting()
    cluster.kubelet.start("mnist-worker-0")
    cluster.kubelet.set_waiting("mnist-worker-1", "ErrImagePull", PULL)
    cluster.settle()
    assert (cluster.status.phase, cluster.status.reason) == ("Starting", "PodsNotReady")
    assert cluster.status.message == f"worker-1: {IMAGE}: {PULL}"
    cluster.kubelet.set_waiting(
        "mnist-worker-1", "ImagePullBackOff", f'Back-off pulling image "trainer:1": ErrImagePull: {PULL}'
    )
    assert not cluster.step()


def test_of_many_that_are_held_up_one_is_named_and_the_others_are_counted() -> None:
    cluster = SimulatedCluster(a_job().workers(5)).settle()
    for index in (1, 3, 4):
        cluster.kubelet.set_waiting(f"mnist-worker-{index}", "ErrImagePull", "no")
        cluster.settle()
    assert cluster.status.message == f"worker-1: {IMAGE}: no (and 2 more)"
    assert [note.message for note in cluster.events if note.type == "Warning"] == [f"worker-1: {IMAGE}: no"]


def test_an_image_is_worth_one_warning_whichever_pod_lacks_it_and_however_the_tries_fail() -> None:
    cluster = SimulatedCluster(a_job().workers(3)).settle()
    cluster.kubelet.set_waiting(
        "mnist-worker-2", "ErrImagePull", "lookup registry on 10.0.0.10:53: read udp 10.1.0.7:40001"
    )
    cluster.settle()
    cluster.kubelet.set_waiting(
        "mnist-worker-1", "ErrImagePull", "lookup registry on 10.0.0.10:53: read udp 10.1.0.7:40002"
    )
    cluster.settle()
    cluster.kubelet.set_waiting("mnist-worker-1", "ImagePullBackOff", 'Back-off pulling image "trainer:1"')
    cluster.settle()
    assert cluster.status.message == f'worker-1: {IMAGE}: Back-off pulling image "trainer:1" (and 1 more)'
    warnings = [note.message for note in cluster.events if note.type == "Warning"]
    assert len(warnings) == 1 and warnings[0].startswith(f"worker-2: {IMAGE}: lookup registry")
    cluster.api.pods["mnist-worker-1"]["status"]["containerStatuses"][0]["image"] = "trainer:2"
    cluster.settle()
    assert len([note for note in cluster.events if note.type == "Warning"]) == 2, "another image is another cause"


def test_why_a_pod_does_not_start_is_written_at_once_and_only_the_numbers_later() -> None:
    cluster = SimulatedCluster(a_job().workers(3))
    cluster.step(soon=True)
    assert cluster.status.phase == "Pending", "a new job gets its children first"
    cluster.kubelet.set_waiting("mnist-worker-1", "ErrImagePull", "no")
    cluster.step(soon=True)
    assert (cluster.status.phase, cluster.status.message) == ("Starting", f"worker-1: {IMAGE}: no")
    cluster.kubelet.set_waiting("mnist-worker-2", "ErrImagePull", "no")
    cluster.step(soon=True)
    assert cluster.status.message == f"worker-1: {IMAGE}: no"


def test_a_pod_that_cannot_be_scheduled() -> None:
    cluster = starting()
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes available"}
    cluster.kubelet.condition("mnist-worker-1", condition)
    cluster.settle()
    assert cluster.status.message == "worker-1: cannot be scheduled: 0/3 nodes available"
    assert (cluster.events[-1].type, cluster.events[-1].reason) == ("Warning", "PodsNotReady")


def unschedulable(cluster: SimulatedCluster, words: str, *pods: str) -> None:
    """What the scheduler says of the pods."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    for each in pods:
        cluster.kubelet.condition(f"mnist-{each}", condition)


NODES = (
    "0/{} nodes are available: {} Insufficient cpu, {} node(s) had untolerated taint(s). preemption: 0/{} nodes are "
)


def test_another_number_of_nodes_is_neither_news_nor_a_write() -> None:
    """Nodes come and go in a large cluster, and each time the scheduler says how many there are."""
    cluster = starting()
    unschedulable(cluster, NODES.format(103, 100, 3, 103), "worker-0", "worker-1")
    cluster.settle()
    message, writes = cluster.status.message, len(cluster.api.writes)
    assert message is not None and message.startswith("worker-0: cannot be scheduled: 0/103 nodes are available: 100")
    for number in range(60):
        unschedulable(cluster, NODES.format(104 + number, 3, 101 + number, 104 + number), "worker-0", "worker-1")
        cluster.wait(5).settle()
    assert (cluster.status.message, len(cluster.api.writes)) == (message, writes)
    unschedulable(
        cluster, "0/7 nodes are available: 3 node(s) had untolerated taint(s), 7 Insufficient cpu", "worker-0"
    )
    cluster.settle()
    unschedulable(cluster, "0/7 nodes are available: 7 node(s) didn't match pod affinity rules", "worker-0", "worker-1")
    cluster.settle()
    assert cluster.status.message == (
        "worker-0: cannot be scheduled: 0/7 nodes are available: 7 node(s) didn't match pod affinity rules (and 1 more)"
    )


def test_what_the_scheduler_lacks_is_worth_one_warning_whichever_pod_it_is_for() -> None:
    cluster = starting(3)
    for number, pod in enumerate(("worker-2", "worker-1", "worker-0")):
        unschedulable(cluster, f"0/{number} nodes are available: {number} Insufficient cpu.", pod)
        cluster.settle()
    assert [note.message for note in cluster.events if note.type == "Warning"] == [
        "worker-2: cannot be scheduled: 0/0 nodes are available: 0 Insufficient cpu."
    ]
    assert str(cluster.status.message).startswith("worker-0: ") and str(cluster.status.message).endswith("(and 2 more)")


def test_a_gang_that_trains_with_fewer_does_not_follow_the_number_of_nodes_either() -> None:
    cluster = SimulatedCluster(a_launched_job().workers(3).set("minReplicas", 2)).run()
    cluster.launchers.backup = (1, 70)
    cluster.delete("worker-2", grace=0)
    cluster.settle()
    unschedulable(cluster, "0/3 nodes are available: 3 Insufficient cpu.", "worker-2")
    cluster.launchers.tick()
    cluster.launcher_report = cluster.launchers.last_report()
    cluster.settle()
    message = cluster.status.message
    unschedulable(cluster, "0/4 nodes are available: 4 Insufficient cpu.", "worker-2")
    cluster.settle()
    assert cluster.status.message == message


BINDING = [
    "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: 0/3 nodes are available",
    'persistentvolumeclaim "training" not found',
    "not found",
    'running PreBind plugin "VolumeBinding": binding volumes: timed out',
    "0/3 nodes are available: 3 node(s) didn't find available persistent volumes to bind.",
]


@pytest.mark.parametrize("words", BINDING)
def test_a_claim_that_is_being_bound_is_told_only_after_20_seconds(words: str) -> None:
    cluster = starting()
    unschedulable(cluster, words, "worker-0", "worker-1")
    cluster.settle()
    assert (cluster.status.reason, cluster.timer) == ("PodsStarting", cluster.now.replace(microsecond=0) + PATIENCE)
    assert cluster.wait(20).settle().status.message == f"worker-0: cannot be scheduled: {words} (and 1 more)"
    assert cluster.status.reason == "PodsNotReady"
    assert len([note for note in cluster.events if note.type == "Warning"]) == 1


def test_a_claim_that_is_bound_in_time_is_no_warning() -> None:
    cluster = starting()
    unschedulable(cluster, BINDING[0], "worker-0", "worker-1")
    cluster.settle()
    cluster.kubelet.start("mnist-worker-0", "mnist-worker-1")
    cluster.wait(5).run()
    assert cluster.status.phase == "Running"
    assert [note.type for note in cluster.events] == ["Normal", "Normal"]


def test_a_volume_that_does_not_come_is_told_only_after_20_seconds() -> None:
    cluster = starting(1)
    cluster.kubelet.set_waiting("mnist-worker-0", "ContainerCreating")
    cluster.kubelet.condition("mnist-worker-0", {"type": "PodReadyToStartContainers", "status": "False"})
    cluster.settle()
    assert cluster.status.reason == "PodsStarting"
    assert cluster.timer is not None and (cluster.timer - cluster.now).total_seconds() == 20
    assert cluster.wait(19).settle().status.reason == "PodsStarting"
    cluster.wait(1).settle()
    assert cluster.status.message == ("worker-0: volumes or network not ready (see kubectl describe pod)")
    assert cluster.timer is not None and (cluster.timer - cluster.now).total_seconds() == 580, "the start deadline"


def test_what_the_kubelet_has_said_of_a_volume_is_told_in_its_words() -> None:
    held = replace(parse_pod_of(starting(1)), preparing=True, unprepared='secret "s" not found')
    assert why_not_started(held, held.created + PATIENCE) == 'volumes or network not ready: secret "s" not found'
    assert why_not_started(held, held.created) == ""


def parse_pod_of(cluster: SimulatedCluster) -> Pod:
    pod = parse_pod(cluster.api.pods["mnist-worker-0"])
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
    cluster = starting(1)
    cluster.kubelet.set_waiting("mnist-worker-0", reason, message)
    assert cluster.settle().status.message == f"worker-0: container tensorflow: {said}"


def test_an_init_container_that_waits() -> None:
    cluster = starting(1)
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "no"}}
    status = cluster.api.pods["mnist-worker-0"]["status"]
    status["initContainerStatuses"] = [{"name": "fetch", "image": "curl:1", "state": waiting}]
    assert cluster.settle().status.message == "worker-0: init container fetch: image pull failed (curl:1): no"


def a_side_car(reason: str, message: str) -> dict[str, object]:
    return {"name": "logs", "image": "logs:1", "state": {"waiting": {"reason": reason, "message": message}}}


def test_a_side_car_that_cannot_start_is_named_after_the_training_container() -> None:
    cluster = starting(1)
    cluster.kubelet.set_waiting("mnist-worker-0", "ContainerCreating")
    containers = cluster.api.pods["mnist-worker-0"]["status"]["containerStatuses"]
    containers.insert(0, a_side_car("ImagePullBackOff", "no"))
    assert cluster.settle().status.message == "worker-0: container logs: image pull failed (logs:1): no"
    containers[1]["state"] = {"waiting": {"reason": "ErrImagePull", "message": "not that one either"}}
    assert cluster.settle().status.message == f"worker-0: {IMAGE}: not that one either"


@pytest.mark.parametrize("place", ["containerStatuses", "initContainerStatuses"])
def test_a_side_car_that_cannot_start_says_nothing_of_a_gang_that_trains(place: str) -> None:
    """Nor that its node is not ready, nor that its image is without Python."""
    cluster = SimulatedCluster(a_launched_job().workers(1)).run()
    trains = cluster.status
    assert trains.phase == "Running"
    broken = a_side_car("RunContainerError", 'exec: "python3": executable file not found in $PATH')
    cluster.api.pods["mnist-worker-0"]["status"].setdefault(place, []).append(broken)
    assert (cluster.run().status.phase, cluster.status.reason) == ("Running", trains.reason)


def test_an_init_container_that_fails_is_named() -> None:
    cluster = starting(1)
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": "Traceback\nNo module named tftraining\n"}}
    cluster.api.pods["mnist-worker-0"]["status"] = {
        "phase": "Failed",
        "initContainerStatuses": [{"name": "tftraining-launcher", "state": ended}],
    }
    cluster.settle()
    assert cluster.status.message is not None and cluster.status.message.startswith(
        "worker-0 failed: InitContainerFailed: init container tftraining-launcher: exit code 1: No module named"
    )


def test_many_waiting_pods_are_counted_not_listed() -> None:
    assert starting(9).status.message == "waiting for worker-0, worker-1, worker-2 and 6 more to start"


def test_pods_that_do_not_stop_are_named_with_their_node() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-1").run().exit("worker-1").settle()
    del cluster.api.job["status"]
    cluster.api.pods["mnist-worker-0"]["metadata"]["labels"]["tftraining.dev/attempt"] = "1"
    cluster.api.create_pod(_pod_of_attempt_2(cluster))
    cluster.settle()
    assert cluster.status.message == "waiting for worker-0 of attempt 1 on node-a to stop"


def test_a_restart_that_a_pod_of_the_attempt_before_holds_up_says_so_in_time() -> None:
    cluster = SimulatedCluster(a_job()).run()
    cluster.api.pods["mnist-worker-0"]["metadata"]["finalizers"] = ["example.com/accounting"]
    cluster.exit("worker-1").settle()
    cluster.kubelet.remove_deleted()
    why = cluster.settle().status
    assert (why.phase, why.reason) == ("Restarting", "Error") and "worker-1 failed" in (why.message or "")
    cluster.wait(29 + GRACE).settle()
    assert cluster.status == why
    cluster.wait(1).settle()
    assert (cluster.status.phase, cluster.status.reason) == ("Restarting", "Stopping")
    assert cluster.status.message == f"waiting for worker-0 of attempt 1 on node-a to stop; {LATE}"
    assert [note.reason for note in cluster.events if note.type == "Warning"] == ["Error", "Stopping"]
    del cluster.api.pods["mnist-worker-0"]
    cluster.run()
    assert (cluster.status.phase, cluster.status.attempt) == ("Running", 2)


def _pod_of_attempt_2(cluster: SimulatedCluster) -> dict[str, object]:
    metadata = dict(cluster.api.pods["mnist-worker-0"]["metadata"], name="mnist-worker-1")
    labels = metadata["labels"] | {"tftraining.dev/index": "1", "tftraining.dev/attempt": "2"}
    kept = {key: metadata[key] for key in ("name", "namespace", "ownerReferences", "annotations")}
    return {"metadata": kept | {"labels": labels}, "spec": {"containers": [{"name": "tensorflow"}]}}


def test_trouble_during_a_restart_is_shown_and_taken_back_when_it_has_passed() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-1").settle()
    cluster.kubelet.remove_deleted()
    why = cluster.settle().status.message
    assert why is not None and why.startswith("worker-1 failed")
    cluster.kubelet.set_waiting("mnist-worker-1", "ErrImagePull", "no")
    assert cluster.settle().status.message == f"worker-1: {IMAGE}: no"
    cluster.kubelet.set_waiting("mnist-worker-1", "ContainerCreating")
    assert cluster.settle().status.message == "waiting for worker-0, worker-1 to start"
    assert cluster.status.phase == "Restarting"


def test_who_has_finished_is_found_without_comparing_everybody_with_everybody() -> None:
    class Name(str):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Name.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    cluster = SimulatedCluster(a_launched_job().workers(200)).run()
    assert cluster.launcher_report is not None
    names = tuple(Name(f"worker-{index}") for index in range(1, 200))
    report = replace(cluster.launcher_report.report, finished=names)
    cluster.launcher_report = replace(cluster.launcher_report, report=report)
    assert (
        cluster.plan().status.message == "1 replica training; worker-1, worker-2, worker-3 and 196 more have finished"
    )
    assert Name.compared < 10 * len(names)
