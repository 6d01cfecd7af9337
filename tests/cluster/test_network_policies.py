"""The NetworkPolicy of a job where policies are enforced: strangers reach no port of its pods, and it trains, restarts
and is watched as before."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.cluster import Cluster
from testbed.network_policies import enforced
from tests.cluster.test_lab import apply, pod, wait
from tests.support.cluster.training import Training, example

START_SECONDS, TRAIN_SECONDS, ENFORCED_SECONDS = 180, 300, 60
READY = "--for=condition=Ready"
IDLE = "import time; time.sleep(3600)"
# The ports of all addresses but the loopback's on which the container listens, as JSON.
LISTENING = """
import json
ports = set()
for name in ("tcp", "tcp6"):
    for line in open("/proc/net/" + name).read().splitlines()[1:]:
        address, state = line.split()[1], line.split()[3]
        host, _, port = address.rpartition(":")
        if state == "0A" and host not in ("0100007F", "00000000000000000000000001000000"):
            ports.add(int(port, 16))
print(json.dumps(sorted(ports)))
"""
PROBE = """
import json, socket, sys
open_ports = []
for port in json.loads(sys.argv[2]):
    try:
        socket.create_connection((sys.argv[1], port), 2).close()
        open_ports.append(port)
    except OSError:
        pass
print(json.dumps(open_ports))
"""


@pytest.fixture
def stranger(cluster: Cluster, namespace: str) -> Iterator[tuple[str, str]]:
    """A pod of another namespace that has the job's label, and one of the same namespace that has none."""
    other = f"{namespace}-other"
    cluster.kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}})
    assert cluster.nodes is not None
    node = cluster.nodes.workers()[0]
    for where in (namespace, other):
        manifest = pod("stranger", cluster.images[0], IDLE, node)
        if where == other:
            manifest["metadata"]["labels"]["tftraining.dev/job-name"] = "digits"
        apply(cluster, where, manifest)
        wait(cluster, where, "stranger", READY)
    yield namespace, other
    cluster.kube.kubectl("delete", "namespace", other, "--wait=false")


def inside(cluster: Cluster, namespace: str, name: str, code: str, *arguments: str) -> list[int]:
    """The JSON that a program prints in a pod."""
    words = ("exec", "--namespace", namespace, name, "--container=tensorflow", "--", "python", "-c", code, *arguments)
    found: list[int] = json.loads(cluster.kube.kubectl(*words))
    return found


@pytest.mark.slow_fault
def test_only_the_job_and_the_operator_reach_its_pods(
    cluster: Cluster, operator: str, namespace: str, directory: Path, stranger: tuple[str, str]
) -> None:
    if cluster.nodes is None:
        pytest.skip("policies are enforced only on the lab's own nodes")
    manifest = example(cluster.images[1], "--epochs=60")
    manifest["metadata"]["namespace"] = namespace
    cluster.kube.apply(manifest)
    training = Training(cluster.kube, namespace, "digits")
    training.wait_for_line("worker-0", r"^epoch 2/", START_SECONDS)

    def reached(where: str, name: str) -> list[int]:
        """The ports of worker-1 that this pod reaches."""
        address = cluster.kube.get("pod", training.pod("worker-1"), "--namespace", namespace)["status"]["podIP"]
        return inside(cluster, where, name, PROBE, address, json.dumps(ports))

    ports = inside(cluster, namespace, training.pod("worker-1"), LISTENING)
    assert 2222 in ports and 8472 in ports, ports
    for where in stranger:
        assert reached(where, "stranger") == ports, "nothing is enforced yet"
    with enforced(cluster.nodes):
        training.wait_for("closed to strangers", lambda _: not reached(namespace, "stranger"), ENFORCED_SECONDS)
        assert not reached(stranger[1], "stranger"), "the label of another namespace opens nothing"
        assert reached(namespace, training.pod("worker-0")) == ports, "the members reach each other"
        training.kill_program("worker-1")
        training.wait_for("restarted", lambda now: now["restarts"].get("inPlace") == 1, 30)
        training.wait_for("training", lambda now: now["phase"] == "Running", START_SECONDS)
        before = training.uids()
        training.delete("worker-1")
        training.wait_for("a new pod", lambda _: len(training.uids()) == 2 and training.uids() != before, 60)
        # Progress comes from the chief's launcher, so the operator reaches it; the restart in place shows the members'.
        status = training.wait_for_phase("Succeeded", START_SECONDS + TRAIN_SECONDS)
    assert status["restarts"]["counted"] == 1 and status["restarts"]["disruptions"] == 1, status
    assert status["progress"]["display"] == "epoch 60/60", status
