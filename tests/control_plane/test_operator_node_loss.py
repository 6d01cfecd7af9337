"""Lost nodes on a real API server, with the rights that the chart gives: no kubelet is there that lets a pod go."""

import time
from pathlib import Path

from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.installation import operator_kubeconfig
from tests.support.control_plane.jobs import NewJob, TrainingJob, wait_until
from tests.support.control_plane.nodes import Node
from tests.support.control_plane.operator_process import OperatorProcess


def training(job: TrainingJob, node: Node) -> str:
    """Let both train, worker-1 on that node; the UID of its pod."""
    job.wait_for_pods(attempt=1)
    job.bind_pod("job-worker-0")
    job.bind_pod("job-worker-1", node.name)
    return str(job.run()["job-worker-1"]["metadata"]["uid"])


def replaced(job: TrainingJob, old: str, reason: str = "NodeLost") -> None:
    """Wait until worker-1 is another pod, and nobody was charged."""

    def another() -> bool:
        pod = job.pods().get("job-worker-1")
        return pod is not None and pod["metadata"]["uid"] != old

    wait_until(another, f"another pod of worker-1: {job.status()}")
    status = job.status()
    assert status["restarts"] == {"counted": 0, "disruptions": 1, "recreated": 1, "withoutProgress": 1} or (
        status["restarts"]["counted"],
        status["restarts"]["disruptions"],
    ) == (0, 1)
    assert status["lastRestart"]["reason"] == reason
    wait_until(lambda: reason in [event[1] for event in job.events()], "the event")


def test_no_worker_is_ready_beside_a_ready_control_plane(new_job: NewJob, node: Node) -> None:
    """The API server is cut off from the workers: their pods may train on, for ten times as long as of a lost node."""
    worker, control = Node(node.plane, "node-1"), Node(node.plane, f"{node.name}-control")
    control.create(**{"node-role.kubernetes.io/control-plane": ""})
    job = new_job(spec__restartPolicy={"mode": "InPlace"}, spec__runPolicy={"nodeLostSeconds": 1})
    try:
        old = training(job, node)
        began = time.monotonic()
        for each in (worker, node):
            each.tell("Unknown")
        status = job.wait_for("Running", reason="NodeNotReady", ready="0/2")
        assert ", like most of its zone; replacing the pod at " in status["message"]
        wait_until(lambda: job.status()["restarts"].get("disruptions"), "never for ever")
        assert time.monotonic() - began > 9
        wait_until(
            lambda: job.pods().get("job-worker-1", {}).get("metadata", {}).get("uid") not in (old, None), "a new pod"
        )
    finally:
        worker.tell("True")
        control.delete()


def test_a_node_that_is_out_of_service_is_given_up_at_once(new_job: NewJob, node: Node) -> None:
    job = new_job(spec__restartPolicy={"mode": "InPlace"}, spec__runPolicy={"nodeLostSeconds": 3600})
    old = training(job, node)
    node.tell("Unknown")
    node.taint()
    replaced(job, old)


def test_a_pod_that_a_drain_had_told_to_go_when_its_node_died(new_job: NewJob, node: Node) -> None:
    job = new_job(spec__restartPolicy={"mode": "InPlace"}, spec__runPolicy={"nodeLostSeconds": 2})
    old = training(job, node)
    job.delete_pod("job-worker-1")
    job.wait_for("Restarting", reason="PodDeleted")
    assert job.pods()["job-worker-1"]["metadata"]["uid"] == old
    node.tell("Unknown")
    wait_until(
        lambda: job.pods().get("job-worker-1", {}).get("metadata", {}).get("uid") not in (old, None), "a new pod"
    )
    assert job.status()["restarts"]["disruptions"] == 1


def test_heartbeats_wake_nobody(new_job: NewJob, node: Node, operator: OperatorProcess) -> None:
    job = new_job(spec__restartPolicy={"mode": "Recreate"})
    training(job, node)
    wait_until(lambda: job.status()["ready"] == "2/2", "all ready")
    node.tell("True")
    before = operator.metric("tftraining_reconcile_seconds_count")
    for number in range(20):
        node.beat(number)
    version = job.raw()["metadata"]["resourceVersion"]
    assert operator.metric("tftraining_reconcile_seconds_count") - before <= 2
    assert job.raw()["metadata"]["resourceVersion"] == version


def test_without_the_right_to_read_nodes_the_pods_tell(
    control_plane: ControlPlane, namespace: str, node: Node, tmp_path: Path, operator: OperatorProcess
) -> None:
    operator.kill()  # the one that all tests share may read nodes, and would be the first to know
    control_plane.create_namespace(f"{namespace}-own")
    kubeconfig = operator_kubeconfig(control_plane, watch=[f"{namespace}-own"], release=f"own-{namespace}")
    job = TrainingJob(control_plane, f"{namespace}-own")
    with OperatorProcess(kubeconfig, tmp_path, TFTRAINING_NAMESPACES=f"{namespace}-own") as own:
        job.create({"spec.restartPolicy.mode": "InPlace", "spec.runPolicy": {"nodeLostSeconds": 3600}})
        old = training(job, node)
        node.delete()
        since = job.raw()["metadata"]["creationTimestamp"]
        conditions = [
            {"type": "Ready", "status": "False", "lastTransitionTime": since},
            {"type": "ContainersReady", "status": "True", "lastTransitionTime": since},
        ]
        job.patch_pod("job-worker-1", {"status": {"conditions": conditions}}, "/status")
        job.wait_for("Running", reason="NodeNotReady")
        assert "replacing the pod at" in job.status()["message"]
        job.patch({"spec": {"runPolicy": {"nodeLostSeconds": 1}}})
        path = f"/api/v1/namespaces/{namespace}-own/pods/job-worker-1"
        control_plane.request("DELETE", path, {"gracePeriodSeconds": 1})  # as Kubernetes evicts it
        replaced(job, old, "PodDeleted")
        assert "Traceback" not in own.log_text()
        told = [line for line in own.log_text().splitlines() if "nodes" in line]
        assert len(told) == 1 and "may not read nodes, so no pod leaves a node with the conditions: GpuEcc" in told[0]
    job.delete()
