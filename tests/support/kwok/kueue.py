"""Kueue itself beside a simulation: its manager as a process, with its own definitions and webhooks, and queues to use.

The definitions come out of the Go module that the manager is built from. Left out of its installation are the
Deployment, its roles (it runs as administrator) and the extension API server that lists pending workloads.
It must never decide anything in Kueue's place.
"""

import base64
from pathlib import Path
from typing import Any

import yaml

from testbed import binaries
from tests.support.certificates import Certificates, make_certificates
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.http_pages import read_page
from tests.support.ports import free_ports

Manifest = dict[str, Any]
NAMESPACE, SERVICE, SECRET = "kueue-system", "kueue-webhook-service", "kueue-webhook-server-cert"
AUTHORITY = "kueue-ca"
VERSION = "v1beta1" if binaries.KUEUE_VERSION == "0.14" else "v1beta2"
API = f"/apis/kueue.x-k8s.io/{VERSION}"
READY_SECONDS = 120.0  # it looks for its certificates after 1, 3, 7, 15 … s
FLAVOR = "default-flavor"
QUEUE, PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
GROUP = "kueue.x-k8s.io/pod-group-name"


def install(plane: ControlPlane) -> None:
    """Start Kueue with the integration of plain pods; from now on every new pod passes its webhooks."""
    definitions = binaries.module_files("kueue") / "config" / "components"
    folder = plane.directory / "kueue"
    folder.mkdir()
    certificates = make_certificates(f"{SERVICE}.{NAMESPACE}.svc", AUTHORITY)
    port, health = free_ports(2)
    converted = _definitions(definitions / "crd", port, certificates.authority)
    plane.kubectl("apply", "--server-side", "--filename=-", stdin=yaml.safe_dump_all(converted))
    plane.create_namespace(NAMESPACE)
    plane.kubectl("apply", "--filename=-", stdin=yaml.safe_dump(_secret(certificates)))
    webhooks = _webhooks(definitions / "webhook" / "manifests.yaml", port, certificates.authority)
    plane.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(webhooks))
    kueue = plane.start("kueue", f"--config={_configuration(folder, port, health, certificates)}")
    kueue.wait_until(lambda: read_page(f"http://127.0.0.1:{health}/readyz")[0] == 200, READY_SECONDS)
    create(plane, "ResourceFlavor", FLAVOR, spec={})


def create(plane: ControlPlane, kind: str, name: str, namespace: str = "", **fields: object) -> None:
    """Create an object of Kueue's."""
    plural = {"Topology": "topologies"}.get(kind, f"{kind.lower()}{'es' if kind.endswith('Class') else 's'}")
    path = f"{API}/namespaces/{namespace}/{plural}" if namespace else f"{API}/{plural}"
    body = {"apiVersion": API.removeprefix("/apis/"), "kind": kind, "metadata": {"name": name}, **fields}
    plane.request("POST", path, body)


def _configuration(folder: Path, port: int, health: int, certificates: Certificates) -> Path:
    """Write what is changed of Kueue's own configuration, and the webhooks' certificate as a kubelet would mount it."""
    for name in ("tls.crt", "tls.key"):
        (folder / name).write_bytes(certificates.files[name])
    path = folder / "configuration.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": f"config.kueue.x-k8s.io/{VERSION}",
                "kind": "Configuration",
                "namespace": NAMESPACE,
                "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
                "metrics": {"bindAddress": "0"},
                "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(folder)},
                "leaderElection": {"leaderElect": False},
                "internalCertManagement": {
                    "enable": True,
                    "webhookServiceName": SERVICE,
                    "webhookSecretName": SECRET,
                },
                "integrations": {"frameworks": ["pod"]},
                "featureGates": {"VisibilityOnDemand": False},
            }
        )
    )
    return path


def _secret(certificates: Certificates) -> Manifest:
    """The secret in which Kueue looks for its certificates before it makes any."""
    data = {name: base64.b64encode(content).decode() for name, content in certificates.files.items()}
    meta = {"name": SECRET, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data}


def _definitions(folder: Path, port: int, authority: bytes) -> list[Manifest]:
    """Kueue's definitions; Kueue converts the objects of those for which its own kustomization says so."""
    patches = yaml.safe_load((folder / "kustomization.yaml").read_text()).get("patches") or ()
    converted = {Path(each["path"]).stem.removeprefix("webhook_in_") for each in patches}
    found = [yaml.safe_load(path.read_text()) for path in sorted((folder / "bases").glob("*.yaml"))]
    for each in found:
        if each["spec"]["names"]["plural"] in converted:
            client = _address(port, "/convert", authority)
            webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
            each["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    return found


def _address(port: int, path: str, authority: bytes) -> dict[str, str]:
    """How the API server reaches a webhook of Kueue."""
    return {"url": f"https://127.0.0.1:{port}{path}", "caBundle": base64.b64encode(authority).decode()}


def _webhooks(manifests: Path, port: int, authority: bytes) -> list[Manifest]:
    """Kueue's webhook configurations, at an address of this machine rather than a Service."""
    documents: list[Manifest] = list(yaml.safe_load_all(manifests.read_text()))
    for document in documents:
        document["metadata"]["name"] = f"kueue-{document['metadata']['name']}"
        for webhook in document["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = _address(port, path, authority)
    return documents


class Queue:
    """The LocalQueue `research` of a namespace, and the ClusterQueue behind it: room for so many pods of a flavor."""

    def __init__(self, plane: ControlPlane, namespace: str, pods: int, flavor: str = FLAVOR) -> None:
        self._plane = plane
        self._local = f"{API}/namespaces/{namespace}"
        resource = {"name": "pods", "nominalQuota": pods}
        group = {"coveredResources": ["pods"], "flavors": [{"name": flavor, "resources": [resource]}]}
        spec = {
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [group],
        }
        self._cluster = f"{API}/clusterqueues/{namespace}"
        create(plane, "ClusterQueue", namespace, spec=spec)
        create(plane, "LocalQueue", "research", namespace, spec={"clusterQueue": namespace})

    def workloads(self) -> dict[str, Manifest]:
        """The Workloads of the namespace, by name."""
        items = self._plane.request("GET", f"{self._local}/workloads")["items"]
        return {each["metadata"]["name"]: each for each in items}

    def admitted_at(self, workload: str) -> str:
        """When the Workload was admitted."""
        conditions = self.workloads()[workload]["status"]["conditions"]
        (admitted,) = (each for each in conditions if (each["type"], each["status"]) == ("Admitted", "True"))
        return str(admitted["lastTransitionTime"])

    def reserved(self) -> int:
        """How many pods have their quota."""
        usage = self._plane.request("GET", self._cluster).get("status", {}).get("flavorsReservation") or ()
        return sum(int(each["total"]) for flavor in usage for each in flavor["resources"])
