"""Node conditions that the administrator lists, on a real API server: pods leave, once, in turn and free of charge."""

import time
from datetime import datetime
from typing import Any

from tests.support.control_plane.jobs import NewJob, TrainingJob, wait_until
from tests.support.control_plane.nodes import Node
from tests.support.control_plane.operator_process import OperatorProcess
from tftraining_api.manifests.affinity import PREFERRED

IN_PLACE = {"spec__restartPolicy__mode": "InPlace", "spec__launcher": {"terminationGraceSeconds": 7}}
INTERVAL = 2  # of the operator (tests/support/control_plane/operator_process.py)


def training_on(job: TrainingJob, *nodes: Node | None) -> dict[str, str]:
    """Let the job train, its workers on these nodes, None for node-1; the UIDs of its pods."""
    job.wait_for_pods(attempt=1)
    for number, node in enumerate(nodes):
        job.bind_pod(f"job-worker-{number}", node.name if node else "node-1")
    return {name: pod["metadata"]["uid"] for name, pod in job.run().items()}


def metadata(job: TrainingJob, name: str) -> dict[str, Any]:
    return dict(job.pods()[name]["metadata"])


def leaves(job: TrainingJob, name: str) -> dict[str, Any]:
    """Wait until the operator has told that pod to go, and let it go; its metadata before."""
    wait_until(lambda: "deletionTimestamp" in metadata(job, name), f"{name} is told to go: {job.status()}")
    told = metadata(job, name)
    job.remove_pod(name)
    return told


def comes_back(job: TrainingJob, name: str, old: str, node: str) -> dict[str, Any]:
    """Wait for the pod's successor, and let it train on that node; the successor."""
    wait_until(lambda: job.pods().get(name, {}).get("metadata", {}).get("uid") not in (None, old), "a new pod")
    job.bind_pod(name, node)
    job.run_pod(name)
    job.wait_for("Running", ready="2/2")
    return job.pods()[name]


def test_both_members_leave_one_after_the_other_and_once(
    new_job: NewJob, node: Node, operator: OperatorProcess
) -> None:
    job = new_job(**IN_PLACE, spec__restartPolicy__maxRestarts=0)
    old = training_on(job, node, node)
    node.tell_sick()
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node.name]}]
    for name in ("job-worker-0", "job-worker-1"):
        told = leaves(job, name)
        # The launcher's grace period, its copy and the kubelet's part of it: more than that of any other deletion.
        assert told["uid"] == old[name] and told["deletionGracePeriodSeconds"] > 7
        assert not any("deletionTimestamp" in pod["metadata"] for pod in job.pods().values())
        assert job.status()["reason"] == "NodeCondition"
        others = {each: pod["metadata"]["uid"] for each, pod in job.pods().items() if each != name}
        new = comes_back(job, name, old[name], node.name)
        assert others.items() <= {each: pod["metadata"]["uid"] for each, pod in job.pods().items()}.items()
        affinity = new["spec"]["affinity"]["nodeAffinity"][PREFERRED]
        assert affinity == [{"weight": 100, "preference": {"matchFields": fields}}]
    status = wait_until(lambda: told if "usedBy" in (told := job.status())["avoidedNodes"][0] else None, "it is told")
    assert status is not None and status["restarts"].items() >= {"counted": 0, "disruptions": 2, "recreated": 2}.items()
    assert "budgetUsed" not in status["restarts"]
    assert status["lastRestart"].items() >= {"pod": "job-worker-1", "reason": "NodeCondition"}.items()
    (avoided,) = status["avoidedNodes"]
    assert (avoided["name"], avoided["replica"]) == (node.name, "worker-1")
    assert avoided["why"].startswith(f"worker-1 left its node ({node.name} has GpuEccError since 20")
    assert [event[0] for event in job.events() if event[1] == "NodeCondition"] == ["Normal", "Normal"]

    # Both are on the node again, whose condition still holds: another operator does nothing more.
    uids = {name: pod["metadata"]["uid"] for name, pod in job.pods().items()}
    operator.kill()
    time.sleep(INTERVAL)  # it would be the turn of the next one
    operator.start()
    job.patch({"spec": {"restartPolicy": {"maxRestarts": 1}}})
    wait_until(lambda: job.status()["observedGeneration"] == job.raw()["metadata"]["generation"], "a pass")
    assert {name: pod["metadata"]["uid"] for name, pod in job.pods().items()} == uids
    assert not any("deletionTimestamp" in pod["metadata"] for pod in job.pods().values())


def test_one_pod_of_the_cluster_in_each_interval(new_job: NewJob, node: Node) -> None:
    jobs = [new_job(**IN_PLACE), TrainingJob(node.plane, new_job("other", **IN_PLACE).namespace, "other")]
    for job in jobs:
        job.wait_for_pods(attempt=1)
        job.bind_pod(f"{job.name}-worker-1", node.name)
        job.run()
    node.tell_sick()
    for job in jobs:
        job.wait_for("Restarting", reason="NodeCondition")
    times = [datetime.fromisoformat(job.status()["avoidedNodes"][0]["until"]) for job in jobs]
    assert abs((times[1] - times[0]).total_seconds()) >= INTERVAL
