"""The cluster itself, where the other tests of this tier would not show what is wrong with it."""

import json
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


def test_a_warning_is_an_error_and_the_deprecated_api_is_remembered(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(LabError, match="is deprecated"):
        cluster.kube.kubectl("get", "componentstatuses")
    assert ASKED_ON_PURPOSE in deprecated_apis(cluster.kube.kubectl("get", "--raw", "/metrics"))


@pytest.mark.slow_fault
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
