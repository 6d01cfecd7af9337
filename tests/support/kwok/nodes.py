"""A node whose kubelet is kwok: it can be told to fall silent, and to come back."""

from typing import Any

from testbed.shell import LabError
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.jobs import wait_until

MERGE = "application/merge-patch+json"
KWOK = "kwok"
ZONE = "topology.kubernetes.io/zone"
Manifest = dict[str, Any]


class Node:
    """A node of that name in a zone of its own test, so that the controller's limits for a zone are its own too."""

    def __init__(self, plane: ControlPlane, name: str, zone: str) -> None:
        self._plane = plane
        self.name = name
        self.zone = zone
        self._path = f"/api/v1/nodes/{name}"

    def create(self, **more: str) -> None:
        """Its kubelet registers it, with more labels: room for twenty pods and four CPUs."""
        room = {"cpu": "4", "memory": "8Gi", "pods": "20"}
        labels = {KWOK: "yes", ZONE: self.zone, "kubernetes.io/hostname": self.name} | more
        self._plane.request(
            "POST",
            "/api/v1/nodes",
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": self.name, "labels": labels},
                "status": {"capacity": room, "allocatable": room},
            },
        )

    def silence(self) -> None:
        """Its kubelet is not heard any more: no lease is renewed, no pod is run, none is let go."""
        self._label(None)

    def speak(self) -> None:
        """Its kubelet is back."""
        self._label("yes")

    def taint(self, key: str, effect: str = "NoExecute") -> None:
        """Put one more taint on it, as `kubectl taint` does."""
        taints = self.raw()["spec"].get("taints") or []
        self._patch({"spec": {"taints": [*taints, {"key": key, "value": "test", "effect": effect}]}})

    def untaint(self) -> None:
        """Take all taints off it."""
        self._patch({"spec": {"taints": None}})

    def delete(self) -> None:
        """Its object goes, if it is there."""
        try:
            self._plane.request("DELETE", self._path)
        except LabError as error:
            if ": 404 " not in str(error):
                raise

    def raw(self) -> Manifest:
        """The object."""
        return self._plane.request("GET", self._path)

    def ready(self) -> str:
        """What its condition Ready says: True, False, Unknown, or nothing yet."""
        conditions = self.raw().get("status", {}).get("conditions") or ()
        return next((each["status"] for each in conditions if each["type"] == "Ready"), "")

    def taints(self) -> set[str]:
        """The keys of its taints."""
        return {each["key"] for each in self.raw()["spec"].get("taints") or ()}

    def wait_until_usable(self) -> None:
        """Wait until it is ready and the node controller lets pods onto it."""
        wait_until(lambda: self.ready() == "True" and not self.taints(), f"node {self.name} is usable")

    def _label(self, value: str | None) -> None:
        self._patch({"metadata": {"labels": {KWOK: value}}})

    def _patch(self, change: Manifest) -> None:
        self._plane.request("PATCH", self._path, change, MERGE)
