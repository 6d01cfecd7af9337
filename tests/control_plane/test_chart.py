"""The chart against a real API server: every manifest is valid, and the operator's account may do what it says."""

import json
import os
from pathlib import Path

import pytest
import yaml

from testbed import binaries
from testbed.shell import LabError, run
from tests.control_plane.test_operator_outages import only_line, start
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.chart import CHART, of_kind, render
from tests.support.control_plane.installation import OPERATOR_NAMESPACE, operator_kubeconfig
from tests.support.repository import REPOSITORY

# What the operator may do, in every namespace that it watches; the chart's unit tests hold the whole table.
ALLOWED = [
    "create pods",
    "patch pods",  # one annotation: the orders of running launchers
    "watch tftrainingjobs.tftraining.dev",
    "create secrets",
    "create events.events.k8s.io",
]
FORBIDDEN = [
    "get secrets",
    "list secrets",
    "watch secrets",
    "update secrets",
    "delete secrets",
    "get pods --subresource=proxy",
    "get pods --subresource=log",
    "create tftrainingjobs.tftraining.dev",
    "update tftrainingjobs.tftraining.dev",
    "update nodes",
    "update pods",
]


def test_every_manifest_is_valid_and_the_pod_meets_the_restricted_standard(control_plane: ControlPlane) -> None:
    control_plane.create_namespace("secured")
    control_plane.kubectl("label", "namespace", "secured", "pod-security.kubernetes.io/enforce=restricted")
    manifests = render({"watchNamespaces": ["secured"], "crds": {"install": False}}, namespace="secured")
    dry_run = ("apply", "--validate=strict", "--dry-run=server", "--filename=-")
    control_plane.kubectl(*dry_run, stdin=yaml.safe_dump_all(manifests))

    account = of_kind(manifests, "ServiceAccount")
    control_plane.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(account))
    template = of_kind(manifests, "Deployment")[0]["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "operator"}, "spec": template["spec"]}
    control_plane.kubectl(*dry_run, "--namespace=secured", stdin=json.dumps(pod))


def can_i(plane: ControlPlane, kubeconfig: Path, what: str, namespace: str) -> bool:
    """Whether the user of this kubeconfig may do this in the namespace."""
    try:
        plane.kubectl(f"--kubeconfig={kubeconfig}", "auth", "can-i", *what.split(), "--namespace", namespace)
    except LabError:
        return False
    return True


def test_the_operator_has_the_permissions_of_the_chart(control_plane: ControlPlane, namespace: str) -> None:
    kubeconfig = operator_kubeconfig(control_plane)
    assert kubeconfig.stat().st_mode & 0o077 == 0
    assert [what for what in ALLOWED if not can_i(control_plane, kubeconfig, what, namespace)] == []
    assert [what for what in FORBIDDEN if can_i(control_plane, kubeconfig, what, namespace)] == []


def test_a_namespaced_operator_has_no_permission_elsewhere(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.create_namespace("red")
    kubeconfig = operator_kubeconfig(control_plane, watch=["red"], release="namespaced")
    assert [what for what in ALLOWED if not can_i(control_plane, kubeconfig, what, "red")] == []
    assert [what for what in ALLOWED if can_i(control_plane, kubeconfig, what, namespace)] == []
    assert [what for what in ALLOWED if can_i(control_plane, kubeconfig, what, OPERATOR_NAMESPACE)] == []


def test_the_operator_may_mount_any_secret_of_a_watched_namespace(control_plane: ControlPlane, namespace: str) -> None:
    # docs/security.md says so: Kubernetes has no permission for pods without it.
    control_plane.kubectl("create", "secret", "generic", "other", "--namespace", namespace, "--from-literal=key=value")
    volumes = [{"name": "other", "secret": {"secretName": "other"}}]
    spec = {"containers": [{"name": "c", "image": "i"}], "volumes": volumes, "automountServiceAccountToken": False}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "reader", "namespace": namespace}, "spec": spec}
    flags = (f"--kubeconfig={operator_kubeconfig(control_plane)}", "create", "--dry-run=server", "--filename=-")
    assert "pod/reader created" in control_plane.kubectl(*flags, stdin=json.dumps(pod))


MONITORS = ("podmonitors", "servicemonitors", "prometheusrules")


@pytest.mark.slow_fault
def test_the_definitions_of_the_prometheus_operator_accept_monitors_and_rules() -> None:
    folder = binaries.module_files("prometheus-operator") / "example" / "prometheus-operator-crd"
    enabled = {name: {"enabled": True} for name in ("podMonitor", "serviceMonitor", "prometheusRule", "dashboard")}
    both = render({"metrics": enabled}) + render({"metrics": {"podMonitor": {"enabled": True}}})
    manifests = [
        each for each in both if each["kind"] in {"PodMonitor", "ServiceMonitor", "PrometheusRule", "ConfigMap"}
    ]
    with ControlPlane() as plane:
        plane.create_namespace(OPERATOR_NAMESPACE)
        for name in MONITORS:
            plane.kubectl("create", "--filename", folder / f"monitoring.coreos.com_{name}.yaml")
        names = [f"crd/{name}.monitoring.coreos.com" for name in MONITORS]
        plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", *names)
        for manifest in manifests:
            dry_run = ("apply", "--validate=strict", "--dry-run=server", "--filename=-")
            plane.kubectl(*dry_run, stdin=json.dumps(manifest))
    assert len(manifests) == 6


@pytest.fixture(params=["helm", pytest.param("helm4", marks=pytest.mark.slow_fault)])
def program(request: pytest.FixtureRequest) -> Path:
    """Helm 3, and Helm 4."""
    name: str = request.param
    return binaries.ensure(name) / name


def helm(program: Path, plane: ControlPlane, *arguments: str | Path) -> str:
    """Run Helm as administrator, with no trace in the user's home directory, and return its output."""
    flags = ("--kubeconfig", plane.kubeconfig, "--namespace", OPERATOR_NAMESPACE)
    return run([program, *flags, *arguments], env=os.environ | {"HOME": str(plane.directory)})


def test_the_operator_asks_for_the_definition_and_jobs_outlive_the_release(program: Path) -> None:
    with ControlPlane() as plane:
        line = only_line(start(KUBECONFIG=str(plane.kubeconfig)))
        assert "is not installed: kubectl apply -f crds/tftrainingjobs.yaml" in line

        install = ("upgrade", "--install", "tftraining-operator", CHART, "--create-namespace")
        notes = helm(program, plane, *install)
        assert "runs jobs in all namespaces" in notes
        assert f"kubectl --namespace {OPERATOR_NAMESPACE} rollout status deployment/tftraining-operator" in notes
        plane.kubectl("apply", "--filename", REPOSITORY / "examples" / "minimal.yaml")
        helm(program, plane, *install, "--set", "logLevel=debug")

        helm(program, plane, "uninstall", "tftraining-operator")

        assert plane.kubectl("get", "tftj", "--output=name") == "tftrainingjob.tftraining.dev/minimal\n"
        assert "tftraining" not in plane.kubectl("get", "deployments,clusterroles", "--all-namespaces")
