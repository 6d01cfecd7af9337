"""docs/integrations.md: its templates reach the pods, and its ports are those of the code."""

from typing import Any

import pytest
import yaml

from tests.support.control_plane.manifests import minimal
from tests.support.page_commands import blocks
from tests.support.repository import REPOSITORY
from tests.support.simulated_cluster.documented_jobs import running
from tests.unit.client.test_validation import merged
from tftraining_api.model.names import RENDEZVOUS_PORT, STATUS_PORT
from tftraining_client.validation import validate

PAGE = REPOSITORY / "docs" / "integrations.md"
TEMPLATES = [
    yaml.safe_load(block.text) for block in blocks(PAGE, "Service meshes and IPv6") if block.language == "yaml"
]
ISTIO = "traffic.sidecar.istio.io"


def defaults() -> dict[str, Any]:
    """A job with the role's default port."""
    job: dict[str, Any] = validate(merged(minimal(), {"spec": {"replicaSpecs": {"worker": {"replicas": 2}}}}))
    return job


@pytest.mark.parametrize("template", TEMPLATES, ids=["outside the mesh", "in the mesh"])
def test_the_template_reaches_every_pod(template: dict[str, Any]) -> None:
    pods = running(merged(defaults(), template)).api.pods.values()
    assert len(pods) == 2
    for kind, written in template["spec"]["template"]["metadata"].items():
        assert all(written.items() <= pod["metadata"][kind].items() for pod in pods)


def test_the_ports_are_those_of_the_code() -> None:
    port = defaults()["spec"]["replicaSpecs"]["worker"]["port"]
    annotations = TEMPLATES[1]["spec"]["template"]["metadata"]["annotations"]
    assert annotations[f"{ISTIO}/excludeOutboundPorts"] == f"{port},{RENDEZVOUS_PORT}"
    assert annotations[f"{ISTIO}/includeInboundPorts"] == ""
    text = PAGE.read_text(encoding="utf-8")
    for cell in (f"| {port}, or", f"| {RENDEZVOUS_PORT} |", f"| {STATUS_PORT} |"):
        assert cell in text
