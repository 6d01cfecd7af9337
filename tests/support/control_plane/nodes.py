"""A node of the control plane, which has no machine: tests say what its kubelet and the node controller would."""

from datetime import UTC, datetime
from typing import Any

from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.operator_process import SICK

MERGE = "application/merge-patch+json"


class Node:
    """A node of that name, whether it is there or not."""

    def __init__(self, plane: ControlPlane, name: str) -> None:
        self.plane = plane
        self.name = name
        self._path = f"/api/v1/nodes/{name}"

    def create(self, **labels: str) -> None:
        """Its kubelet registers it, and is ready."""
        manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name, "labels": labels}}
        self.plane.request("POST", "/api/v1/nodes", manifest)
        self.tell("True")

    def tell(self, ready: str) -> None:
        """Its condition Ready becomes True, False or Unknown, now."""
        since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": "Ready", "status": ready, "reason": "Test", "message": "", "lastTransitionTime": since}
        self.patch({"status": {"conditions": [{**condition, "lastHeartbeatTime": since}]}}, "/status")

    def tell_sick(self, status: str = "True") -> None:
        """A detector sets its condition GpuEccError, now."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        sick = {"type": SICK, "status": status, "reason": "Test", "message": "2 errors", "lastTransitionTime": now}
        told = self.plane.request("GET", self._path)["status"]["conditions"]
        others = [each for each in told if each["type"] != SICK]
        self.patch({"status": {"conditions": [*others, {**sick, "lastHeartbeatTime": now}]}}, "/status")

    def beat(self, number: int) -> None:
        """A heartbeat: nothing has changed but its time."""
        self.patch({"metadata": {"annotations": {"beat": str(number)}}})

    def taint(self) -> None:
        """A person says that it is shut down for good. (There is no taint manager here: tests/kwok has NoExecute.)"""
        taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoSchedule"}
        self.patch({"spec": {"taints": [taint]}})

    def delete(self) -> None:
        """Its object goes."""
        self.plane.request("DELETE", self._path)

    def patch(self, change: dict[str, Any], subresource: str = "") -> None:
        """Merge a change into it."""
        self.plane.request("PATCH", self._path + subresource, change, MERGE)
