"""The control plane that the other tests stand on: expired watches, garbage collection, nothing left behind, and no
warning overlooked."""

from pathlib import Path

import pytest
import yaml

from testbed.kube import Kube
from testbed.shell import LabError
from tests.support.cluster.api_server import connected
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.audit import AuditedControlPlane
from tests.support.deprecated_apis import ASKED_ON_PURPOSE, deprecations


def create_pod(plane: ControlPlane, namespace: str, name: str, owner: str = "") -> None:
    """Create a pod, owned by the config map `owner` if one is named."""
    metadata: dict[str, object] = {"name": name}
    if owner:
        uid = plane.kubectl("get", "configmap", owner, "--namespace", namespace, "--output=jsonpath={.metadata.uid}")
        metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid}]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
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


def test_what_a_deleted_object_owns_is_deleted(
    control_plane: ControlPlane, namespace: str, garbage_collection: None
) -> None:
    control_plane.kubectl("create", "configmap", "owner", "--namespace", namespace)
    create_pod(control_plane, namespace, "child", owner="owner")
    create_pod(control_plane, namespace, "orphan")

    control_plane.kubectl("delete", "configmap", "owner", "--namespace", namespace)

    control_plane.kubectl("wait", "--for=delete", "pod/child", "--namespace", namespace, "--timeout=60s")
    assert control_plane.kubectl("get", "pods", "--namespace", namespace, "--output=name") == "pod/orphan\n"


@pytest.mark.slow_fault  # `make test` runs three side by side
def test_two_control_planes_side_by_side_leave_nothing_behind(control_plane: ControlPlane) -> None:
    with ControlPlane() as other:
        other.kubectl("create", "namespace", "elsewhere")
        directory = other.directory
        assert str(directory) in running_commands()
        assert "elsewhere" not in control_plane.kubectl("get", "namespaces")
    assert not directory.exists()
    assert str(directory) not in running_commands()


def running_commands() -> str:
    """Return the command lines of all processes."""
    lines = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            lines.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
    return "\n".join(lines)


def test_a_server_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.control_plane.apiserver.free_port", lambda: 0)  # no server takes port 0
    with pytest.raises(LabError, match="ended with exit code"), ControlPlane():
        pass


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
