"""The nodes of the simulated cluster, and what the node controller and the taint manager do about them.

A node that is powered off runs nothing. A partitioned node keeps its programs running, but its kubelet cannot reach the
API server. Tests say when the node controller marks a node as not ready: a real one takes up to a minute.
"""

from datetime import timedelta

from tests.support.simulated_cluster.apiserver import ApiServer, stamp
from tftraining_api.model.spec import Manifest


class SimulatedNodes:
    """All nodes by name. There is always `node-a`."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self.powered_off: set[str] = set()
        self.partitioned: set[str] = set()
        self._next = 0
        self.add("node-a")

    def add(self, *names: str) -> None:
        """Nodes join the cluster."""
        for name in names:
            self._api.nodes[name] = {"metadata": {"name": name, "creationTimestamp": stamp(self._api.now)}, "spec": {}}
            self._set_ready(name, "True")

    def pick_node(self) -> str | None:
        """The node for the next pod: healthy ones take turns."""
        ready = [name for name, node in self._api.nodes.items() if self.is_reachable(name) and _is_ready(node)]
        self._next += 1
        return ready[self._next % len(ready)] if ready else None

    def is_reachable(self, name: str) -> bool:
        """Whether the kubelet of the node reaches the API server."""
        return name not in self.powered_off and name not in self.partitioned

    def power_off(self, name: str, noticed: bool = True) -> None:
        """The node loses its power; the status of its pods stays as it was."""
        self.powered_off.add(name)
        if noticed:
            self.mark_not_ready(name)

    def partition(self, name: str, noticed: bool = True) -> None:
        """The kubelet of the node cannot reach the API server any more."""
        self.partitioned.add(name)
        if noticed:
            self.mark_not_ready(name)

    def mark_not_ready(self, name: str) -> None:
        """The node controller has not heard of the node for too long: it and its pods are not ready."""
        self._set_ready(name, "Unknown")
        for pod in self._api.pods.values():
            if pod["spec"].get("nodeName") == name and pod["status"]["phase"] == "Running":
                containers = pod["status"]["containerStatuses"]
                ready = "True" if all(each["ready"] for each in containers) else "False"
                pod["status"]["conditions"] = [
                    *(each for each in pod["status"].get("conditions", ()) if "Ready" not in each["type"]),
                    {"type": "Ready", "status": "False", "lastTransitionTime": stamp(self._api.now)},
                    {"type": "ContainersReady", "status": ready, "lastTransitionTime": stamp(self._api.now)},
                ]

    def reconnect(self, name: str) -> None:
        """A partitioned node is ready again, and its kubelet carries out what the API server holds."""
        self.partitioned.discard(name)
        self._set_ready(name, "True")
        for pod in self._api.pods.values():
            if pod["spec"].get("nodeName") == name:
                pod["status"]["conditions"] = [
                    each for each in pod["status"].get("conditions", ()) if "Ready" not in each["type"]
                ]

    def taint(self, name: str, effect: str = "NoExecute", seen: bool = True) -> None:
        """An administrator says that the node is shut down for good. With NoExecute the taint manager, if it has `seen`
        the taint, evicts the pods."""
        taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": effect}
        self._api.nodes[name]["spec"]["taints"] = [taint]
        for pod in list(self._api.pods.values()) if seen and effect == "NoExecute" else ():
            if pod["spec"].get("nodeName") == name:
                self.announce_eviction(pod)
                self._api.delete_pod(pod["metadata"]["name"], None)

    def announce_eviction(self, pod: Manifest) -> None:
        """The taint manager is about to delete the pod."""
        others = [each for each in pod["status"].get("conditions", ()) if each["type"] != "DisruptionTarget"]
        target = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
        pod["status"]["conditions"] = [*others, target | {"lastTransitionTime": stamp(self._api.now)}]

    def set_condition(self, name: str, status: str = "True", ahead: float = 0) -> None:
        """A detector sets the condition GpuEccError, by a clock that is so many seconds ahead."""
        since = stamp(self._api.now + timedelta(seconds=ahead))
        condition = {"type": "GpuEccError", "status": status, "lastTransitionTime": since, "message": "2 errors"}
        known = self._api.nodes[name]["status"]["conditions"]
        others = [each for each in known if each["type"] != condition["type"]]
        self._api.nodes[name]["status"]["conditions"] = [*others, condition]

    def remove(self, name: str) -> None:
        """The node's object is deleted."""
        del self._api.nodes[name]

    def _set_ready(self, name: str, status: str) -> None:
        ready = {"type": "Ready", "status": status, "lastTransitionTime": stamp(self._api.now)}
        self._api.nodes[name]["status"] = {"conditions": [ready]}


def _is_ready(node: dict[str, object]) -> bool:
    return "'True'" in str(node["status"])
