"""What a cluster does to pods on its bad days: the training resumes elsewhere, and none of it is the program's fault.

The operator is kept off the workers, so that a test may take either of them away.
"""

import json
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from testbed.cluster import Cluster
from testbed.nodes import Nodes
from testbed.shell import LabError
from tests.support.cluster.training import SICK, Manifest, Training, condition, example

EPOCHS = 8
START_SECONDS = 180
TRAIN_SECONDS = 300
NODE_LOST_SECONDS = 5
VICTIM = "worker-1"
LOST = {"runPolicy": {"nodeLostSeconds": NODE_LOST_SECONDS}}


@pytest.fixture
def nodes(cluster: Cluster) -> Nodes:
    """The machines of the lab's own cluster; another one's are not ours to disturb."""
    if cluster.nodes is None:
        pytest.skip("nodes are disturbed only in the lab's own cluster")
    return cluster.nodes


@pytest.fixture
def training(
    cluster: Cluster, operator: object, namespace: str, directory: Path, request: pytest.FixtureRequest
) -> Training:
    """A training of two workers in its second or third epoch; its parameter changes fields of the spec."""
    changes = dict(getattr(request, "param", {}))
    manifest = example(cluster.images[1], f"--epochs={changes.pop('epochs', EPOCHS)}", **changes)
    manifest["metadata"]["namespace"] = namespace
    cluster.kube.apply(manifest)
    training = Training(cluster.kube, namespace, "digits")
    training.wait_for_line("worker-0", r"^epoch 2/", START_SECONDS)
    return training


def _assert_resumed(training: Training, directory: Path, **restarts: int) -> Manifest:
    """The job has succeeded after being hit, went on with the epoch it was in, and was charged nothing."""
    status = training.wait_for_phase("Succeeded", START_SECONDS + TRAIN_SECONDS)
    assert status["restarts"].get("counted", 0) == 0, status
    assert {name: status["restarts"].get(name, 0) for name in restarts} == restarts, status
    assert status["lastRestart"]["resumedFromEpoch"] > 0, status
    result = json.loads((directory / "digits" / "result.json").read_text())
    assert result["accuracy"] > 0.85, result
    return status


@pytest.mark.slow_fault
def test_evicted(training: Training, directory: Path) -> None:
    before = training.uids()
    training.evict(VICTIM)
    _assert_resumed(training, directory, disruptions=1, recreated=1)
    after = training.uids()
    assert [after[name] == uid for name, uid in sorted(before.items())] == [True, False]


@pytest.mark.slow_fault
def test_drained(training: Training, nodes: Nodes, directory: Path) -> None:
    node = training.node(VICTIM)
    flags = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", f"--pod-selector={training.selector}")
    training.kube.kubectl("drain", node, *flags, "--timeout=60s")
    try:
        _assert_resumed(training, directory, disruptions=1)
        assert training.node(VICTIM) != node
    finally:
        training.kube.kubectl("uncordon", node)


@pytest.mark.slow_fault
@pytest.mark.parametrize("training", [{"epochs": 40}], indirect=True, ids=["long"])
def test_a_kubelet_that_is_away_for_a_while_stops_nothing(training: Training, nodes: Nodes) -> None:
    before, node = training.uids(), training.node(VICTIM)
    nodes.execute(node, "systemctl", "stop", "kubelet")
    try:
        training.kube.kubectl("wait", "--for=condition=Ready=Unknown", f"node/{node}", "--timeout=90s")
    finally:
        nodes.execute(node, "systemctl", "start", "kubelet")
    training.kube.kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=90s")
    status = training.wait_for_phase("Succeeded", TRAIN_SECONDS)
    assert (status["restarts"], training.uids()) == ({"counted": 0}, before), status


@pytest.mark.slow_fault
def test_a_container_runtime_that_is_restarted_stops_nothing(training: Training, nodes: Nodes) -> None:
    before = training.uids()
    nodes.execute(training.node(VICTIM), "systemctl", "restart", "containerd")
    status = training.wait_for_phase("Succeeded", TRAIN_SECONDS)
    assert (status["restarts"], training.uids()) == ({"counted": 0}, before), status


@pytest.mark.slow_fault
@pytest.mark.parametrize("training", [LOST], indirect=True, ids=["lost"])
def test_a_node_that_falls_silent_and_comes_back_is_fenced(training: Training, nodes: Nodes, directory: Path) -> None:
    node, lost = training.node(VICTIM), training.uids()[training.pod(VICTIM)]
    nodes.pause(node)
    try:
        training.wait_for("rid of the silent pod", lambda _: training.uids().get(training.pod(VICTIM)) != lost, 120)
        training.wait_for("training again", lambda now: now.get("phase") == "Running", START_SECONDS)
    finally:
        nodes.unpause(node)
    _assert_resumed(training, directory, disruptions=1, recreated=1)
    training.kube.kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=90s")


@pytest.mark.slow_fault
@pytest.mark.parametrize("replica", ["worker-0", "worker-1"])
@pytest.mark.parametrize("training", [LOST], indirect=True, ids=["lost"])
def test_a_node_that_is_switched_off(training: Training, nodes: Nodes, directory: Path, replica: str) -> None:
    node = training.node(replica)
    nodes.stop(node)
    try:
        _assert_resumed(training, directory, disruptions=1)
        assert training.node(replica) != node
    finally:
        nodes.start(node, training.kube)
        training.kube.kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=90s")


@pytest.mark.slow_fault
def test_a_node_that_is_off_and_whose_object_is_deleted(training: Training, nodes: Nodes, directory: Path) -> None:
    """Without its object nothing is waited for: no time of silence, no kubelet."""
    node = training.node(VICTIM)
    nodes.stop(node)
    try:
        training.kube.kubectl("delete", "node", node)
        _assert_resumed(training, directory, disruptions=1)
        assert training.node(VICTIM) != node
    finally:
        nodes.start(node, training.kube)
        training.kube.kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=90s")


@pytest.mark.slow_fault
def test_a_node_with_a_listed_condition_is_left_after_a_copy(training: Training, nodes: Nodes, directory: Path) -> None:
    node, kubectl = training.node(VICTIM), training.kube.kubectl

    def tell(status: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        sick = {"type": SICK, "status": status, "lastTransitionTime": now, "lastHeartbeatTime": now}
        patch = json.dumps({"status": {"conditions": [{**sick, "reason": "Test", "message": "2 errors"}]}})
        kubectl("patch", "node", node, "--subresource=status", "--type=strategic", "--patch", patch)

    tell("True")
    try:
        status = _assert_resumed(training, directory, disruptions=1, recreated=1)
        assert (status["lastRestart"]["reason"], status["lastRestart"].get("lostSteps", 0)) == ("NodeCondition", 0)
        assert [each["name"] for each in status["avoidedNodes"]] == [node]
        assert training.node(VICTIM) != node
    finally:
        tell("False")


@pytest.mark.slow_fault
@pytest.mark.parametrize("training", [{"epochs": 40}], indirect=True, ids=["long"])
def test_a_node_that_kills_each_program_is_left(training: Training, nodes: Nodes, directory: Path) -> None:
    """Bad hardware as the launcher sees it: each program of the member is killed as long as its pod is on that node."""
    node, killed = training.node(VICTIM), set[int]()

    def lives_elsewhere(status: Manifest) -> bool:
        with suppress(LabError):  # while the member has no container, or no program
            if training.node(VICTIM) != node:
                return bool(status.get("phase") == "Running")
            if (pid := training.launcher(VICTIM).get("pid")) and pid not in killed:
                training.kill_program(VICTIM)
                killed.add(pid)
        return False

    training.wait_for("training on the other node", lives_elsewhere, START_SECONDS)
    status = training.wait_for_phase("Succeeded", TRAIN_SECONDS)
    assert status["restarts"]["counted"] <= 4, status
    assert [(each["name"], each["replica"]) for each in status["avoidedNodes"]] == [(node, VICTIM)], status
    assert training.node(VICTIM) != node and json.loads((directory / "digits" / "result.json").read_text())


@pytest.mark.slow_fault
def test_suspended_and_resumed(training: Training, directory: Path) -> None:
    training.change({"runPolicy": {"suspend": True}})
    training.wait_for_phase("Suspended", 60)
    training.wait_for("without pods", lambda _: not training.uids(), 60)
    training.change({"runPolicy": {"suspend": False}})
    status = training.wait_for_phase("Succeeded", START_SECONDS + TRAIN_SECONDS)
    assert status["restarts"].get("counted", 0) == 0, status
    resumed = training.wait_for_line("worker-0", r"^resumed from epoch \d+", 60)
    assert 0 < int(resumed.split()[-1]) < EPOCHS


def _scale(training: Training, size: int) -> None:
    """Return when so many workers have trained an epoch."""
    words = ("scale", "tftrainingjob", training.name, f"--replicas={size}", "--namespace", training.namespace)
    training.kube.kubectl(*words)
    before = training.status()["progress"]["epoch"]

    def trains(now: Manifest) -> bool:
        return bool(now["ready"] == f"{size}/{size}" and now["progress"].get("epoch", 0) > before)

    training.wait_for(f"training with {size}", trains, START_SECONDS)


@pytest.mark.slow_fault
@pytest.mark.parametrize("training", [{"epochs": 60}], indirect=True, ids=["long"])
def test_scaled_up_and_down(training: Training, directory: Path) -> None:
    for size in (3, 1):
        _scale(training, size)
    status = training.wait_for_phase("Succeeded", TRAIN_SECONDS)
    assert status["restarts"].get("counted", 0) == 0, status
    assert status["replicas"]["worker"]["highest"] == 2, status
    training.wait_for("cleaned up", lambda now: condition(now, "Cleaned") == "True", 120)
    assert not list(directory.rglob("workertemp_*"))


@pytest.mark.slow_fault
@pytest.mark.parametrize("training", [{"epochs": 40}], indirect=True, ids=["long"])
def test_the_leading_operator_is_killed(training: Training, operator: str, directory: Path) -> None:
    """The standby takes over while its peer starts again, and notices the worker that is lost meanwhile."""
    former = _leader(training, operator)
    training.kube.kubectl("delete", "pod", former, "--namespace", operator, "--force", "--grace-period=0")
    training.delete(VICTIM)
    training.wait_for("another leader", lambda _: _leader(training, operator) not in ("", former), 60)
    _assert_resumed(training, directory, disruptions=1, recreated=1)


def _leader(training: Training, namespace: str) -> str:
    """The pod of the operator that holds the lease; empty if none does."""
    (lease,) = training.kube.get("leases", "--namespace", namespace)["items"]
    return str(lease["spec"].get("holderIdentity", "")).rpartition("_")[0]
