"""The machines of the lab's cluster, and the faults that a test can give them.

It must never touch a container that is not a node of this cluster.
"""

from dataclasses import dataclass

from . import pod_network
from .docker import Engine
from .kube import Kube
from .loading import CTR
from .shell import LabError


@dataclass(frozen=True)
class Nodes:
    """The nodes of the cluster called `cluster`, each a container of the engine with the node's name."""

    engine: Engine
    cluster: str

    def all(self, state: str = "running") -> list[str]:
        """Return the names of the nodes in a state of Docker's; an empty `state` means any."""
        filters = [f"label=io.x-k8s.kind.cluster={self.cluster}", *([f"status={state}"] if state else [])]
        words = [word for value in filters for word in ("--filter", value)]
        return sorted(self.engine.docker("ps", "--all", *words, "--format", "{{.Names}}").split())

    def workers(self) -> list[str]:
        """Return the names of the running nodes that take pods."""
        return [node for node in self.all() if "worker" in node.removeprefix(self.cluster)]

    def gateway(self) -> str:
        """Return the address by which the nodes reach this machine."""
        gateway = "{{(index .IPAM.Config 0).Gateway}}"
        return self.engine.docker("network", "inspect", self.cluster, "--format", gateway).strip()

    def pause(self, node: str) -> None:
        """Freeze all processes of a node, its pods included: the node falls silent without closing a connection."""
        self._docker("pause", node)

    def unpause(self, node: str) -> None:
        """Let a frozen node go on."""
        self._docker("unpause", node)

    def stop(self, node: str) -> None:
        """Switch a node off at once, its pods with it."""
        self._docker("kill", node)

    def start(self, node: str, kube: Kube) -> None:
        """Switch a stopped node on again, and give it back its part of the pod network."""
        self._docker("start", node)
        kube.kubectl("wait", "--for=create", f"node/{node}", "--timeout=60s")
        if self.engine.execute(node, "sh", "-c", f"ls {pod_network.CONFLIST} 2>/dev/null || true").strip():
            pod_network.install(self.engine, kube)

    def execute(self, node: str, *words: str) -> str:
        """Run a program on a node, as its administrator, and return what it prints."""
        return self.engine.execute(node, *words)

    def kill_container(self, node: str, container: str, signal: str) -> None:
        """Send a signal to the first process of a container, from outside of it: even SIGKILL reaches it."""
        self.engine.execute(node, *CTR, "task", "kill", "--signal", f"SIG{signal}", container)

    def _docker(self, command: str, node: str) -> None:
        if node not in self.all(state=""):
            raise LabError(f"{node} is not a node of this cluster; its nodes: {', '.join(self.all(state=''))}")
        self.engine.docker(command, node)
