"""The operator on API servers of IPv6-only and dual-stack clusters, in a network whose only IPv4 is the loopback.

Real are the API server with its families of addresses, the operator, the client and their connections by IPv6. There is
no kubelet and no pod network: tests/processes/launch/test_ipv6.py has the gang on IPv6.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from testbed import binaries
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.chief_launcher import chief_launcher
from tests.support.control_plane.installation import install_crd, operator_kubeconfig
from tests.support.control_plane.jobs import TrainingJob, wait_until
from tests.support.control_plane.nodes import Node
from tests.support.control_plane.operator_process import OperatorProcess
from tests.support.own_network import own_network

pytestmark = [
    pytest.mark.slow_fault,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces"),
]
SERVER = "fd00::1"
IPV4, IPV6 = "10.0.0.0/16", "fd00:10::/108"
PODS = {"job-worker-0": ("fd00::10", "10.1.0.10"), "job-worker-1": ("fd00::11", "10.1.0.11")}


class Cluster(NamedTuple):
    """A control plane, and the families of its addresses in their order."""

    plane: ControlPlane
    families: tuple[str, ...]


class OnlyIPv6(ControlPlane):
    address, services = SERVER, IPV6
    flags = (f"--advertise-address={SERVER}",)


class FirstIPv6(OnlyIPv6):
    services = f"{IPV6},{IPV4}"


class FirstIPv4(ControlPlane):
    """The pods' first address and that of the API server are of IPv4, which is the loopback here."""

    services = f"{IPV4},{IPV6}"
    flags = ("--advertise-address=10.1.0.1",)


@pytest.fixture(params=[OnlyIPv6, FirstIPv6, FirstIPv4], ids=lambda each: each.__name__)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Give a control plane of that kind, with the operator in it."""
    binaries.ensure("etcd", "kube-apiserver", "kubectl")
    families = tuple("IPv6" if ":" in each else "IPv4" for each in request.param.services.split(","))
    with own_network([SERVER, *(own for own, _ in PODS.values())]), request.param() as plane:
        install_crd(plane)
        Node(plane, "node-1").create()
        with OperatorProcess(operator_kubeconfig(plane), plane.directory) as operator:
            yield Cluster(plane, families)
            assert "Traceback" not in operator.log_text()


def place(job: TrainingJob, cluster: Cluster) -> str:
    """The pods get addresses of the families of the cluster; returns that at which the chief's launcher listens."""
    chief = ""
    for name, (ipv6, ipv4) in PODS.items():
        known = {"IPv6": ipv6, "IPv4": "127.0.0.1" if cluster.families[0] == "IPv4" else ipv4}
        addresses = [{"ip": known[family]} for family in cluster.families]
        job.patch_pod(name, {"status": {"podIP": addresses[0]["ip"], "podIPs": addresses}}, "/status")
        chief = chief or addresses[0]["ip"]
    return chief


def tftj(cluster: Cluster, *words: str) -> str:
    """What `tftj` prints for the administrator of the cluster."""
    environment = {**os.environ, "KUBECONFIG": str(cluster.plane.kubeconfig)}
    command = [sys.executable, "-m", "tftraining_client", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_job_from_its_start_to_its_end(cluster: Cluster) -> None:
    cluster.plane.create_namespace("ipv6")
    job = TrainingJob(cluster.plane, "ipv6")
    job.create({"spec.restartPolicy.mode": "InPlace"})
    pods = job.wait_for_pods(attempt=1)
    service: dict[str, Any] = job.objects("services")["job"]["spec"]
    assert service["clusterIPs"] == ["None"] and service["ipFamilyPolicy"] == "SingleStack"
    assert service["ipFamilies"] == [cluster.families[0]], "as the first address of a pod, which TensorFlow listens on"
    with chief_launcher(place(job, cluster)) as launcher:
        told = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        launcher.say(progress={"step": 30, "epoch": 3, "epochs": 10, "metrics": {"loss": 0.5}, "updatedTime": told})
        for name in pods:
            job.run_pod(name)
        wait_until(lambda: (job.status().get("progress") or {}).get("epoch") == 3, "the progress that the chief tells")
    assert "epoch 3/10" in tftj(cluster, "list", "--namespace", "ipv6")
    for name in pods:
        job.succeed_pod(name)
    job.wait_for("Succeeded")
