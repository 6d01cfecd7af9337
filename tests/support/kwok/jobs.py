"""A job whose pods are placed by the real scheduler and run by kwok: tests only disturb them and look.

It must never write a pod's status: that is kwok's.
"""

from typing import Any, Protocol

from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.jobs import TrainingJob, wait_until
from tests.support.control_plane.manifests import template
from tests.support.kwok.nodes import ZONE, Node

Manifest = dict[str, Any]


class NewJob(Protocol):
    """Applies a job; a change is named by its path in the manifest, with `__` between the names."""

    def __call__(self, name: str = "job", /, **changes: object) -> "SimulatedJob":
        """Apply it and return it."""
        ...


class SimulatedJob(TrainingJob):
    """A job on nodes of its own test, at most one of its pods on each."""

    def __init__(self, plane: ControlPlane, namespace: str, name: str, nodes: list[Node]) -> None:
        super().__init__(plane, namespace, name)
        self.nodes = {node.name: node for node in nodes}

    def create(self, changes: dict[str, object] | None = None) -> None:
        """Create it: two workers without storage and without launchers, unless changed."""
        super().create({"spec.template": spread(self.namespace), **(changes or {})})

    def train(self, count: int = 2, attempt: int = 1) -> dict[str, Manifest]:
        """Wait until so many pods of that attempt run and the status says so; return them."""
        self.wait_for_pods(attempt, count)
        self.wait_for("Running", ready=f"{count}/{count}", attempt=attempt)
        return self.pods(attempt)

    def node_of(self, pod: str) -> Node:
        """The node that the scheduler has chosen for the pod, when it has."""

        def chosen() -> str:
            return str(self.pods().get(pod, {}).get("spec", {}).get("nodeName", ""))

        return self.nodes[wait_until(chosen, f"{pod} is placed")]

    def uids(self) -> dict[str, str]:
        """The UIDs of its pods by name."""
        return {name: pod["metadata"]["uid"] for name, pod in self.pods().items()}

    def is_made_good(self, *reasons: str, told: int = 1) -> None:
        """It trains again after one disruption for one of these reasons, nobody is charged, and it ends well. `told`:
        how often at most the disruption is told."""
        status = self.status()
        assert status["restarts"].items() >= {"counted": 0, "disruptions": 1}.items()
        reason = status["lastRestart"]["reason"]
        assert reason in reasons
        expected = [["Normal"] * count for count in range(1, told + 1)]
        wait_until(lambda: [each[0] for each in self.events() if each[1] == reason] in expected, "the event")
        self.finish()

    def tell_program(self, pod: str, exit_code: int, message: str = "") -> None:
        """The program in the pod ends, of its own accord."""
        self.patch_pod(pod, {"metadata": {"annotations": {"test/exit-code": str(exit_code), "test/message": message}}})

    def evict(self, pod: str) -> None:
        """Ask the Eviction API to end the pod, as a drain does; LabError with 429 if a budget refuses."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
        self.plane.request("POST", f"/api/v1/namespaces/{self.namespace}/pods/{pod}/eviction", body)

    def wait_for_another(self, pod: str, old: str) -> Manifest:
        """Wait until the pod's name belongs to another one than that of the UID `old`; return it."""

        def another() -> Manifest | None:
            found = self.pods().get(pod)
            return found if found is not None and found["metadata"]["uid"] != old else None

        return wait_until(another, f"another pod {pod}: {self.status()}") or {}

    def finish(self, chief: str = "worker-0") -> Manifest:
        """Let the chief end well, and return the status that follows."""
        self.tell_program(f"{self.name}-{chief}", 0)
        return self.wait_for("Succeeded")


def spread(zone: str) -> Manifest:
    """A pod template for the nodes of that zone, one pod of a job on each."""
    found = template()
    labels = {"matchExpressions": [{"key": "tftraining.dev/role", "operator": "Exists"}]}
    apart = {"labelSelector": labels, "topologyKey": "kubernetes.io/hostname"}
    found["spec"] |= {
        "nodeSelector": {ZONE: zone},
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
    }
    return found
