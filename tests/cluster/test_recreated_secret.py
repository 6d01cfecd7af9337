"""A Secret of a job that somebody deletes, and that the operator makes again with another key: what a kubelet gives."""

import base64

import pytest

from testbed.cluster import Cluster
from tests.support.cluster.training import Manifest
from tests.support.simulated_cluster.builders import a_launched_job
from tftraining_api.manifests.launcher import KEY, secret

# It takes its whole grace period, as a container does whose node was lost for a while.
PROGRAM = ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"]
SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def job_secret(namespace: str, key: bytes) -> Manifest:
    """As the operator sends it, but that no job owns it."""
    job, _ = a_launched_job().parsed()
    manifest = secret(job) | {"data": {KEY: base64.b64encode(key).decode()}}
    del manifest["metadata"]["ownerReferences"]
    manifest["metadata"]["namespace"] = namespace
    return manifest


def start(cluster: Cluster, namespace: str, name: str, node: str, secret_name: str) -> None:
    """A pod on this node with the key, once it runs."""
    mounts = [{"name": "key", "mountPath": "/key"}]
    image = cluster.images[1]
    container = {"name": "a", "image": image, "command": PROGRAM, "volumeMounts": mounts, "securityContext": SECURITY}
    spec: Manifest = {
        "nodeName": node,
        "containers": [container],
        "volumes": [{"name": "key", "secret": {"secretName": secret_name}}],
    }
    metadata = {"name": name, "namespace": namespace}
    cluster.kube.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    cluster.kube.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--namespace", namespace, "--timeout=120s")


@pytest.mark.slow_fault
def test_a_new_pod_has_the_key_of_the_new_secret_while_one_of_the_old_secret_ends(
    cluster: Cluster, namespace: str
) -> None:
    kube, here = cluster.kube, ("--namespace", namespace)
    first = job_secret(namespace, b"first")
    name, node = first["metadata"]["name"], kube.get("nodes")["items"][-1]["metadata"]["name"]
    kube.apply(first)
    start(cluster, namespace, "old", node, name)
    kube.kubectl("delete", "secret", name, *here)
    kube.kubectl("delete", "pod", "old", *here, "--force", "--grace-period=0")
    kube.apply(job_secret(namespace, b"second"))
    start(cluster, namespace, "new", node, name)
    assert kube.kubectl("exec", "new", *here, "--", "cat", f"/key/{KEY}") == "second"
    kube.kubectl("delete", "pod", "new", *here, "--force", "--grace-period=0")
