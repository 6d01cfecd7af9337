"""The product installed on a control plane without nodes: the custom resource, and the operator's identity.

The operator then runs as a process of the test with exactly the permissions that the chart gives it. It must never get
the administrator's.
"""

from collections.abc import Sequence
from pathlib import Path

import yaml
from tests.control_plane.apiserver import ControlPlane
from tests.control_plane.chart import REPOSITORY, of_kind, render

CRD = REPOSITORY / "crds" / "tftrainingjobs.yaml"
OPERATOR_NAMESPACE = "tftraining-system"
RBAC_KINDS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


def install_crd(plane: ControlPlane) -> None:
    """Apply the CustomResourceDefinition and wait until it is served."""
    plane.kubectl("apply", "--filename", CRD)
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/tftrainingjobs.tftraining.dev")


def operator_kubeconfig(plane: ControlPlane, watch: Sequence[str] = (), release: str = "operator") -> Path:
    """Install the chart's roles, for all namespaces or (existing) ones in `watch`; return the account's kubeconfig."""
    manifests = render({"watchNamespaces": list(watch)}, OPERATOR_NAMESPACE, release)
    if OPERATOR_NAMESPACE not in plane.kubectl("get", "namespaces", "--output=name"):
        plane.create_namespace(OPERATOR_NAMESPACE)
    chosen = [manifest for kind in RBAC_KINDS for manifest in of_kind(manifests, kind)]
    plane.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(chosen))
    account = of_kind(manifests, "ServiceAccount")[0]["metadata"]["name"]
    token = plane.kubectl("create", "token", account, "--namespace", OPERATOR_NAMESPACE, "--duration=10h").strip()
    return plane.write_kubeconfig(plane.directory / f"{account}.kubeconfig", token, OPERATOR_NAMESPACE)
