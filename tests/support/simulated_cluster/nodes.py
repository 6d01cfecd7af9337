"""The machines of the simulated cluster, and what the control plane makes of them when they fall silent.

A machine that is dead runs nothing and does nothing. One that is cut off runs on what it runs, and hears of nothing.
Tests say when the node controller notices: it takes up to a minute.
"""

from tests.support.simulated_cluster.apiserver import ApiServer, stamp
from tftraining_api.model.spec import Manifest


class Machines:
    """All machines by their nodes' names. There is always `node-a`."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self.dead: set[str] = set()
        self.cut_off: set[str] = set()
        self._next = 0
        self.add("node-a")

    def add(self, *names: str) -> None:
        """Machines join the cluster."""
        for name in names:
            self._api.nodes[name] = {"metadata": {"name": name, "creationTimestamp": stamp(self._api.now)}, "spec": {}}
            self._tell(name, "True")

    def place(self) -> str | None:
        """The node for the next pod: healthy ones take turns."""
        ready = [name for name, node in self._api.nodes.items() if self.hears(name) and _is_ready(node)]
        self._next += 1
        return ready[self._next % len(ready)] if ready else None

    def hears(self, name: str) -> bool:
        """Whether the kubelet there does what it is told."""
        return name not in self.dead and name not in self.cut_off

    def die(self, name: str, noticed: bool = True) -> None:
        """The machine loses its power; what is known of its pods stays as it was."""
        self.dead.add(name)
        if noticed:
            self.notice(name)

    def cut(self, name: str, noticed: bool = True) -> None:
        """The machine's kubelet cannot reach the API server any more."""
        self.cut_off.add(name)
        if noticed:
            self.notice(name)

    def notice(self, name: str) -> None:
        """The node controller has not heard of the node for too long: it and its pods are not ready."""
        self._tell(name, "Unknown")
        for pod in self._api.pods.values():
            if pod["spec"].get("nodeName") == name and pod["status"]["phase"] == "Running":
                containers = pod["status"]["containerStatuses"]
                ready = "True" if all(each["ready"] for each in containers) else "False"
                pod["status"]["conditions"] = [
                    *(each for each in pod["status"].get("conditions", ()) if "Ready" not in each["type"]),
                    {"type": "Ready", "status": "False", "lastTransitionTime": stamp(self._api.now)},
                    {"type": "ContainersReady", "status": ready, "lastTransitionTime": stamp(self._api.now)},
                ]

    def come_back(self, name: str) -> None:
        """A machine that was cut off is heard of again, and told what to do."""
        self.cut_off.discard(name)
        self._tell(name, "True")
        for pod in self._api.pods.values():
            if pod["spec"].get("nodeName") == name:
                pod["status"]["conditions"] = [
                    each for each in pod["status"].get("conditions", ()) if "Ready" not in each["type"]
                ]

    def taint(self, name: str, effect: str = "NoExecute", seen: bool = True) -> None:
        """A person says that the machine is shut down for good; with NoExecute the taint manager, if it has `seen` it,
        evicts the pods."""
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

    def remove(self, name: str) -> None:
        """The node's object is deleted."""
        del self._api.nodes[name]

    def _tell(self, name: str, status: str) -> None:
        ready = {"type": "Ready", "status": status, "lastTransitionTime": stamp(self._api.now)}
        self._api.nodes[name]["status"] = {"conditions": [ready]}


def _is_ready(node: dict[str, object]) -> bool:
    return "'True'" in str(node["status"])
