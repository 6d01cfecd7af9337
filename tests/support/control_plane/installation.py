"""The product installed on a control plane without nodes: the custom resource, and the operator's identity.

The operator then runs as a process of the test with exactly the permissions that the chart gives it. It must never get
the administrator's.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from testbed.shell import LabError
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.chart import CHART, of_kind, render
from tests.support.repository import REPOSITORY

SERVED_SECONDS = 120.0
CRD = REPOSITORY / "crds" / "tftrainingjobs.yaml"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tftrainingjobs.tftraining.dev"
OPERATOR_NAMESPACE = "tftraining-system"
# Of the release `operator`.
OPERATOR_ACCOUNT = f"system:serviceaccount:{OPERATOR_NAMESPACE}:operator-tftraining-operator"
RBAC_KINDS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


def install_crd(plane: ControlPlane, file: Path = CRD) -> None:
    """Apply the CustomResourceDefinition, or another one, and wait until it is served.

    Its condition Established is not enough: for a moment after it the API server still answers 404 or 429.
    """
    plane.kubectl("apply", "--filename", file)
    deadline = time.monotonic() + SERVED_SECONDS
    while True:
        try:
            plane.kubectl("get", "--raw", "/apis/tftraining.dev/v1/tftrainingjobs")
            return
        except LabError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def put_definition(plane: ControlPlane, spec: dict[str, Any]) -> None:
    """Replace the spec of the definition. The API server writes its status at any moment: a PUT would conflict."""
    plane.request("PATCH", DEFINITION, {"spec": spec}, "application/merge-patch+json")


def operator_kubeconfig(
    plane: ControlPlane, watch: Sequence[str] = (), release: str = "operator", chart: Path = CHART
) -> Path:
    """Install the chart's roles, for all namespaces or (existing) ones in `watch`; return the account's kubeconfig."""
    manifests = render({"watchNamespaces": list(watch)}, OPERATOR_NAMESPACE, release, chart=chart)
    if OPERATOR_NAMESPACE not in plane.kubectl("get", "namespaces", "--output=name"):
        plane.create_namespace(OPERATOR_NAMESPACE)
    chosen = [manifest for kind in RBAC_KINDS for manifest in of_kind(manifests, kind)]
    plane.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(chosen))
    account = of_kind(manifests, "ServiceAccount")[0]["metadata"]["name"]
    token = plane.kubectl("create", "token", account, "--namespace", OPERATOR_NAMESPACE, "--duration=10h").strip()
    return plane.write_kubeconfig(plane.directory / f"{account}.kubeconfig", token, OPERATOR_NAMESPACE)
