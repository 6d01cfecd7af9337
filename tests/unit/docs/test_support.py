"""docs/support.md names the versions that the tests use."""

import re
import tomllib

import pytest

from testbed.binaries import DEFAULT_MINOR, KUBERNETES_VERSIONS, SOURCES
from tests.support.repository import REPOSITORY

PAGE = (REPOSITORY / "docs" / "support.md").read_text(encoding="utf-8")
LOCKED = (REPOSITORY / "requirements" / "trainer-cpu.txt").read_text(encoding="utf-8")


def cell_of(part: str) -> str:
    """The cell `tested` of a row."""
    (cell,) = re.findall(rf"^\| {part} \| ([^|]*) \|", PAGE, re.MULTILINE)
    return str(cell)


def locked(package: str) -> str:
    (version,) = re.findall(rf"^{package}==(\S+)", LOCKED, re.MULTILINE)
    return str(version)


def module(folder: str, path: str) -> str:
    """The version of a Go module that the testbed builds."""
    text = (SOURCES / folder / "go.mod").read_text(encoding="utf-8")
    (version,) = re.findall(rf"^\s*(?:require )?{re.escape(path)} v(\S+)", text, re.MULTILINE)
    return str(version)


def test_kubernetes() -> None:
    assert cell_of("Kubernetes") == ", ".join(KUBERNETES_VERSIONS.values())
    for minor, version in KUBERNETES_VERSIONS.items():
        folder = "kubernetes" if minor == DEFAULT_MINOR else f"kubernetes-{minor}"
        assert module(folder, "k8s.io/kubernetes") == version
    chart = (REPOSITORY / "charts" / "tftraining-operator" / "Chart.yaml").read_text(encoding="utf-8")
    (floor,) = re.findall(r'^kubeVersion: ">=(\d+\.\d+)\.0-0"', chart, re.MULTILINE)
    assert f"The chart needs {floor} or later" in PAGE


@pytest.mark.parametrize(
    ("part", "package"), [("TensorFlow", "tensorflow-cpu"), ("tf_keras", "tf-keras"), ("Keras", "keras")]
)
def test_python_packages(part: str, package: str) -> None:
    assert re.match(rf"{re.escape(locked(package))}(,|$)", cell_of(part))


def test_python() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = re.findall(r"Python :: (3\.\d+)$", "\n".join(project["classifiers"]), re.MULTILINE)
    assert re.findall(r"\b3\.\d+\b", cell_of("Python of the operator, the client and the trainer")) == versions


def promtool_version() -> str:
    """Prometheus 3.16.0 is the module's version 0.316.0."""
    _, minor, patch = module("promtool", "github.com/prometheus/prometheus").split(".")
    return f"{minor[0]}.{int(minor[1:])}.{patch}"


def test_go_modules() -> None:
    assert cell_of("Helm").startswith(f"{module('helm', 'helm.sh/helm/v3')}, {module('helm4', 'helm.sh/helm/v4')}")
    queues = f"Kueue {module('kueue', 'sigs.k8s.io/kueue')}, scheduler-plugins "
    queues += module("scheduler-plugins", "sigs.k8s.io/scheduler-plugins")
    queues += f", the scheduler of Kubernetes {KUBERNETES_VERSIONS['1.37']}"
    assert cell_of("queues and schedulers") == queues
    assert f"promtool {promtool_version()} " in cell_of("metrics")
    recipes = (REPOSITORY / "docs" / "integrations.md").read_text(encoding="utf-8")
    assert f"| Argo Workflows {module('argo-lint', 'github.com/argoproj/argo-workflows/v3')} |" in recipes
    assert f"| Katib {module('katib', 'github.com/kubeflow/katib')} |" in recipes


def test_the_definitions_of_others() -> None:
    told, theirs = cell_of("manifests of this documentation"), "github.com/kubeflow"
    assert f"Argo Workflows {module('definitions', 'github.com/argoproj/argo-workflows/v4')}" in told
    assert f"Katib {module('definitions', f'{theirs}/katib')}" in told
    assert f"TFJob (training-operator {module('definitions', f'{theirs}/training-operator')})" in told
    versions = {module("definitions", f"github.com/fluxcd/{name}-controller") for name in ("source", "kustomize")}
    assert all(f"kustomize-controller {version})" in told for version in versions)
