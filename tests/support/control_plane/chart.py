"""The Helm chart as manifests, rendered by the real Helm without a cluster.

It must never repeat what the chart says: tests compare against tables of their own.
"""

import json
from pathlib import Path
from typing import Any

import yaml

from testbed import binaries
from testbed.shell import run
from tests.support.repository import REPOSITORY

CHART = REPOSITORY / "charts" / "tftraining-operator"
Manifest = dict[str, Any]


def render(
    values: dict[str, Any] | None = None,
    namespace: str = "tftraining-system",
    release: str = "operator",
    helm: str = "helm",
    tests: bool = False,
    chart: Path = CHART,
) -> list[Manifest]:
    """Return what `helm install` would apply with these values, or with `tests` also what `helm test` would; LabError
    carries Helm's message."""
    program = binaries.ensure(helm) / helm
    flags = ["--namespace", namespace, "--values", "-", "--kube-version", binaries.KUBERNETES_VERSION]
    flags += [] if tests else ["--skip-tests"]
    text = run([program, "template", release, chart, *flags], stdin=json.dumps(values or {}))
    # The parser in C is ten times as fast, where PyYAML was built with it.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [document for document in yaml.load_all(text, loader) if document]


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    """Return the manifests of one kind, in their order."""
    return [manifest for manifest in manifests if manifest["kind"] == kind]
