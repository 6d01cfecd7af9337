"""The cluster itself: what every other test of this tier takes for granted."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.cluster import Cluster
from testbed.shell import LabError
from tests.support.cluster.training import EXAMPLE
from tests.support.deprecated_apis import ASKED_ON_PURPOSE, deprecated_apis

READY = "--for=condition=Ready"
ENDED = "--for=jsonpath={.status.phase}=Succeeded"
LIMIT = "--timeout=60s"


def pod(name: str, image: str, code: str, node: str, **spec: Any) -> dict[str, Any]:
    """Return a pod that runs Python code on a node, under the restricted Pod Security Standard."""
    strict = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {
        "name": "tensorflow",
        "image": image,
        "command": ["python", "-u", "-c", code],
        "securityContext": strict,
        "volumeMounts": [{"name": volume["name"], "mountPath": "/training"} for volume in spec.get("volumes", [])],
    }
    user = {"runAsNonRoot": True, "runAsUser": 1234, "fsGroup": 1234, "seccompProfile": {"type": "RuntimeDefault"}}
    common = {"restartPolicy": "Never", "securityContext": user, "terminationGracePeriodSeconds": 0}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "lab"}},
        "spec": {"nodeSelector": {"kubernetes.io/hostname": node}, "containers": [container], **common, **spec},
    }


def apply(cluster: Cluster, namespace: str, *objects: dict[str, Any]) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    cluster.kube.kubectl("apply", "--namespace", namespace, "-f", "-", stdin=text)


def wait(cluster: Cluster, namespace: str, name: str, condition: str) -> str:
    """Wait until a pod meets a condition and return its log; the log is in the error when it does not."""
    try:
        cluster.kube.kubectl("wait", condition, f"pod/{name}", "--namespace", namespace, LIMIT)
    except LabError as error:
        log = cluster.kube.kubectl("logs", name, "--namespace", namespace)
        raise AssertionError(f"{error}; its log: {log}") from error
    return cluster.kube.kubectl("logs", name, "--namespace", namespace)


@pytest.fixture
def workers(cluster: Cluster) -> list[str]:
    names = [
        node["metadata"]["name"]
        for node in cluster.kube.get("nodes", "-l", "!node-role.kubernetes.io/control-plane")["items"]
    ]
    assert len(names) >= 2, f"this tier needs two nodes that take pods, the cluster has {names}"
    return names


def test_all_nodes_are_ready(cluster: Cluster) -> None:
    nodes = cluster.kube.get("nodes")["items"]
    ready = [c["status"] for node in nodes for c in node["status"]["conditions"] if c["type"] == "Ready"]
    assert ready == ["True"] * 3


def test_a_warning_is_an_error_and_the_deprecated_api_is_remembered(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(LabError, match="is deprecated"):
        cluster.kube.kubectl("get", "componentstatuses")
    assert ASKED_ON_PURPOSE in deprecated_apis(cluster.kube.kubectl("get", "--raw", "/metrics"))


def test_a_pod_finds_and_reaches_a_pod_of_another_node_by_name(
    cluster: Cluster, namespace: str, workers: list[str]
) -> None:
    headless = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": "lab"}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "gang"}, "spec": headless}
    serve = "import http.server as s; s.test(s.SimpleHTTPRequestHandler, port=2222)"
    ask = (
        "import time, urllib.request as u\n"
        f"for _ in range(200):\n"
        "    try:\n"
        f"        print(u.urlopen('http://one.gang.{namespace}.svc:2222/', timeout=2).status); break\n"
        "    except OSError as error:\n"
        "        print(error); time.sleep(0.2)\n"
        "else:\n"
        "    raise SystemExit(1)\n"
    )
    one = pod("one", cluster.images[0], serve, workers[0], hostname="one", subdomain="gang")
    two = pod("two", cluster.images[0], ask, workers[1], hostname="two", subdomain="gang")
    apply(cluster, namespace, service, one, two)
    assert wait(cluster, namespace, "two", ENDED).splitlines()[-1] == "200"


def test_pods_of_any_user_share_a_local_volume_across_nodes(
    cluster: Cluster, namespace: str, workers: list[str], directory: Path
) -> None:
    volumes = [{"name": "training", "persistentVolumeClaim": {"claimName": "training"}}]
    write = "import pathlib; pathlib.Path('/training/one').write_text('from one')"
    read = "import pathlib; print(pathlib.Path('/training/one').read_text())"
    apply(cluster, namespace, pod("writer", cluster.images[0], write, workers[0], volumes=volumes))
    wait(cluster, namespace, "writer", ENDED)
    apply(cluster, namespace, pod("reader", cluster.images[0], read, workers[1], volumes=volumes))
    assert wait(cluster, namespace, "reader", ENDED).strip() == "from one"
    assert (directory / "one").stat().st_uid == 1234


def test_a_container_is_killed_from_outside(cluster: Cluster, namespace: str, workers: list[str]) -> None:
    if cluster.nodes is None:
        pytest.skip("containers are killed only in the lab's own cluster")
    apply(cluster, namespace, pod("victim", cluster.images[0], "import time; time.sleep(600)", workers[0]))
    wait(cluster, namespace, "victim", READY)
    cluster.kill(namespace, "victim")
    cluster.kube.kubectl("wait", "--for=jsonpath={.status.phase}=Failed", "pod/victim", "-n", namespace, LIMIT)
    [state] = cluster.kube.get("pod", "victim", "-n", namespace)["status"]["containerStatuses"]
    assert state["state"]["terminated"]["exitCode"] == 137


def test_tensorflow_runs_in_the_trainer_image(cluster: Cluster, namespace: str, workers: list[str]) -> None:
    code = "import tensorflow as tf; print(int(tf.reduce_sum(tf.ones([2, 3]))))"
    apply(cluster, namespace, pod("trainer", cluster.images[1], code, workers[0]))
    assert wait(cluster, namespace, "trainer", ENDED).splitlines()[-1] == "6"


def test_the_examples_find_their_image_on_each_worker(cluster: Cluster, namespace: str, workers: list[str]) -> None:
    if cluster.nodes is None:
        pytest.skip("only the lab's own nodes know the images by the names in the examples")
    [container] = yaml.safe_load(EXAMPLE.read_text())["spec"]["template"]["spec"]["containers"]
    code = "import tftraining; print(tftraining.__file__)"
    pods = [pod(f"example-{node}", container["image"], code, node) for node in workers]
    apply(cluster, namespace, *pods)
    for each in pods:
        assert wait(cluster, namespace, each["metadata"]["name"], ENDED).startswith("/opt/tftraining/")


@pytest.mark.slow_fault
def test_a_paused_node_turns_not_ready_and_comes_back(cluster: Cluster, workers: list[str]) -> None:
    if cluster.nodes is None:
        pytest.skip("nodes are paused only in the lab's own cluster")
    node, start = workers[1], time.monotonic()
    cluster.nodes.pause(node)
    try:
        cluster.kube.kubectl("wait", "--for=condition=Ready=Unknown", f"node/{node}", "--timeout=90s")
        assert time.monotonic() - start > 5, "a node is given up only after its grace period"
    finally:
        cluster.nodes.unpause(node)
    cluster.kube.kubectl("wait", READY, f"node/{node}", LIMIT)


@pytest.mark.slow_fault
def test_a_node_that_was_switched_off_comes_back_with_its_pod_network(
    cluster: Cluster, namespace: str, workers: list[str]
) -> None:
    if cluster.nodes is None:
        pytest.skip("nodes are switched off only in the lab's own cluster")
    node = workers[1]
    cluster.nodes.stop(node)
    try:
        cluster.kube.kubectl("wait", "--for=condition=Ready=Unknown", f"node/{node}", "--timeout=90s")
    finally:
        cluster.nodes.start(node, cluster.kube)
    cluster.kube.kubectl("wait", READY, f"node/{node}", LIMIT)
    resolve = "import socket; print(socket.gethostbyname('kubernetes.default.svc'))"
    apply(cluster, namespace, pod("after", cluster.images[0], resolve, node))
    assert wait(cluster, namespace, "after", ENDED).count(".") == 3
