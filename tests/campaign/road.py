"""The operators' road to the API server: a proxy on this machine, which can hold back what a watch tells.

The proxy has the API server's own certificate, and the operators' pods a name of that certificate for its address.
kopf's watch of the jobs goes to the API server itself. The Deployment must never be left so: without the proxy no
operator works.
"""

import base64
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import yaml

from testbed.kube import Kube
from testbed.nodes import Nodes
from testbed.pod_network import routes_to_pods
from tests.campaign.clocks import change_operator
from tests.support.cluster.training import Manifest
from tests.support.control_plane.rude_proxy import RudeProxy, rude_proxy

NAME = "kubernetes"  # in the certificate of every API server that kubeadm sets up
PKI = "/etc/kubernetes/pki/apiserver"


class _Server(NamedTuple):
    url: str
    ca: Path


@contextmanager
def road(kube: Kube, nodes: Nodes, control_plane: str, folder: Path) -> Iterator[RudeProxy]:
    """A proxy before the API server, which nobody uses yet."""
    cluster = yaml.safe_load(kube.kubeconfig.read_text())["clusters"][0]["cluster"]
    server = _Server(cluster["server"], folder / "ca.crt")
    server.ca.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    certificate = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for ending in ("crt", "key"):
        (folder / f"server.{ending}").write_text(nodes.execute(control_plane, "cat", f"{PKI}.{ending}"))
    certificate.load_cert_chain(folder / "server.crt", folder / "server.key")
    with ExitStack() as stack:
        stack.enter_context(routes_to_pods(kube))
        yield stack.enter_context(rude_proxy(server, nodes.gateway(), certificate))


def lead(kube: Kube, namespace: str, deployment: str, address: str, port: int) -> None:
    """Lead the operator's processes over a proxy at this address."""
    given = [{"name": name, "value": value} for name, value in _variables(port).items()]
    alias = {"ip": address, "hostnames": [NAME]}
    change_operator(kube, namespace, deployment, _pod(given, alias))


def lead_back(kube: Kube, namespace: str, deployment: str, address: str) -> None:
    """Lead them to the API server itself again."""
    gone = {"$patch": "delete"}
    without = [{"name": name} | gone for name in _variables(0)]
    change_operator(kube, namespace, deployment, _pod(without, {"ip": address} | gone))


def _variables(port: int) -> dict[str, str]:
    return {"KUBERNETES_SERVICE_HOST": NAME, "KUBERNETES_SERVICE_PORT": str(port)}


def _pod(variables: list[dict[str, str]], alias: Manifest) -> Manifest:
    return {"containers": [{"name": "operator", "env": variables}], "hostAliases": [alias]}
