"""The node under the leading operator is switched off: the other operator leads in time, and jobs start."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import release
from testbed.cluster import Cluster
from testbed.kube import Kube
from testbed.nodes import Nodes
from tests.support.cluster.training import Training, example

# The lease expires 14 s after its last renewal; the rest is for a machine that has other work.
TAKE_OVER_SECONDS, LOOK_SECONDS = 18, 0.25
REPLACED_SECONDS, TRAIN_SECONDS = 120, 300


@pytest.fixture
def nodes(cluster: Cluster, operator: str) -> Iterator[Nodes]:
    """The machines of the test cluster, with the operators on the workers."""
    if cluster.nodes is None:
        pytest.skip("nodes are switched off only in the test cluster")
    release.install(cluster.kube, cluster.images[0])
    yield cluster.nodes
    for node in set(cluster.nodes.all(state="")) - set(cluster.nodes.all()):
        cluster.nodes.start(node, cluster.kube)
        cluster.kube.kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=90s")
    release.install(cluster.kube, cluster.images[0], *release.OFF_THE_WORKERS)


def leader(kube: Kube, namespace: str) -> str:
    """The pod that holds the Lease; empty if none does."""
    (lease,) = kube.get("leases", "--namespace", namespace)["items"]
    return str(lease["spec"].get("holderIdentity") or "").rpartition("_")[0]


def placement(kube: Kube, namespace: str) -> dict[str, str]:
    """The nodes of the operators that are ready, by pod."""
    found = {}
    for pod in kube.get("pods", "--namespace", namespace, "--selector", release.PODS)["items"]:
        conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", [])}
        if conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]:
            found[pod["metadata"]["name"]] = pod["spec"]["nodeName"]
    return found


@pytest.mark.slow_fault
def test_the_node_of_the_leader_is_switched_off(
    cluster: Cluster, operator: str, nodes: Nodes, namespace: str, directory: Path
) -> None:
    kube = cluster.kube
    first = leader(kube, operator)
    before = placement(kube, operator)
    assert first in before, f"{first} leads, of {before}"
    assert len(set(before.values())) == 2, "the chart keeps the operators on nodes apart"
    nodes.stop(before[first])
    stopped = time.monotonic()
    while (second := leader(kube, operator)) in ("", first):
        assert time.monotonic() - stopped < TAKE_OVER_SECONDS, f"{second or 'nobody'} leads"
        time.sleep(LOOK_SECONDS)
    assert second in before
    manifest = example(cluster.images[1])
    manifest["metadata"]["namespace"] = namespace
    kube.apply(manifest)
    Training(kube, namespace, "digits").wait_for_phase("Succeeded", TRAIN_SECONDS)
    deadline = time.monotonic() + REPLACED_SECONDS
    while len(running := placement(kube, operator).keys() - {first}) < 2:
        assert time.monotonic() < deadline, f"only {running} are ready"
        time.sleep(LOOK_SECONDS)
    assert leader(kube, operator) == second
