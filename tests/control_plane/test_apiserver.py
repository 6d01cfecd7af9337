"""The control plane that the other tests stand on: expired watches, and no warning overlooked."""

import pytest
import yaml

from testbed.kube import Kube
from testbed.shell import LabError
from tests.support.cluster.api_server import connected
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.audit import AuditedControlPlane
from tests.support.deprecated_apis import ASKED_ON_PURPOSE, deprecations


def create_pod(plane: ControlPlane, namespace: str, name: str) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "a", "image": "b"}]},
    }
    plane.kubectl("create", "--namespace", namespace, "--filename=-", stdin=yaml.safe_dump(pod))


def watch_pods(plane: ControlPlane, namespace: str, version: str) -> str:
    """Watch pods from this resource version for a second and return the raw events."""
    query = f"watch=1&resourceVersion={version}&timeoutSeconds=1"
    return plane.kubectl("get", "--raw", f"/api/v1/namespaces/{namespace}/pods?{query}")


def test_a_watch_goes_on_after_a_restart_and_is_gone_after_a_compaction(
    control_plane: ControlPlane, namespace: str
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    before = yaml.safe_load(control_plane.kubectl("get", "--raw", pods))["metadata"]["resourceVersion"]
    create_pod(control_plane, namespace, "first")
    assert '"ADDED"' in watch_pods(control_plane, namespace, before)

    control_plane.compact_etcd()

    expired = watch_pods(control_plane, namespace, before)
    assert '"code":410' in expired
    assert control_plane.kubectl("get", "pods", "--namespace", namespace, "--output=name") == "pod/first\n"


COMPONENTS = "/api/v1/componentstatuses"  # Kubernetes is going to remove them


def test_a_warning_is_an_error_and_the_deprecated_api_is_remembered(control_plane: AuditedControlPlane) -> None:
    with pytest.raises(LabError, match="is deprecated"):
        control_plane.request("GET", COMPONENTS)
    with pytest.raises(LabError, match="is deprecated"):
        control_plane.kubectl("get", "componentstatuses")
    assert control_plane.deprecated_by_anybody() == {ASKED_ON_PURPOSE}
    control_plane.restart_apiserver()
    assert control_plane.deprecated_by_anybody() == {ASKED_ON_PURPOSE}


async def test_the_connection_of_operator_and_client_logs_a_warning_once(
    control_plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    """The fixture `operator` looks for such lines in the operator's log."""
    async with connected(Kube(control_plane.kubeconfig)) as api:
        for _ in range(2):
            await api.request("GET", COMPONENTS)
    assert deprecations(caplog.messages) == ["the API server warns: v1 ComponentStatus is deprecated in v1.19+"]
