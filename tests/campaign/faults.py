"""What each kind of fault does to the cluster. A fault returns what it has hit, or raises LabError if it found nothing.

Each fault that lasts is healed before it returns, whatever happens meanwhile; `heal` heals what an exception left.
It must never touch anything but the nodes of the lab's own cluster, and pods in it.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from testbed.cluster import Cluster
from testbed.kube import Kube
from testbed.nodes import Nodes
from testbed.shell import LabError
from tests.campaign import clocks
from tests.campaign.disk import Disk
from tests.campaign.kinds import JOBS
from tests.campaign.plan import Strike
from tests.support.cluster.training import Manifest, Training

T = TypeVar("T")
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
BACK_SECONDS = 180
LOOK_SECONDS = 0.5
LET_GO_SECONDS = 60
INTERFACE = "eth0"  # of a node, on the bridge of the lab
CUT = [("INPUT", "-i"), ("OUTPUT", "-o"), ("FORWARD", "-i"), ("FORWARD", "-o")]
SLOW = ("rate", "4mbit", "burst", "32kb", "latency", "400ms")
# The name of a process in /proc has 15 characters.
SERVERS = {
    "api-server": "kube-apiserver",
    "etcd": "etcd",
    "controller-manager": "kube-controller",
    "scheduler": "kube-scheduler",
}
# Stands still in the pod itself: if the pod is gone, so is this process.
FREEZE = (
    "import json, os, signal, sys, time, urllib.request as u\n"
    "pid = json.load(u.urlopen('http://127.0.0.1:8472/status'))['pid']\n"
    "os.kill(pid, signal.SIGSTOP)\n"
    "try:\n    time.sleep(float(sys.argv[1]))\n"
    "finally:\n"
    "    try:\n        os.kill(pid, signal.SIGCONT)\n"
    "    except ProcessLookupError:\n        pass\n"  # another fault has killed it
)
# Fills /dev/shm of the pod.
FILL = (
    "import os, sys, time\n"
    "name = f'/dev/shm/campaign-{os.getpid()}'\n"
    "with open(name, 'wb', buffering=0) as file:\n"
    "    try:\n"
    "        while file.write(bytes(1 << 20)) == 1 << 20:\n            pass\n"
    "    except OSError:\n        pass\n"
    "    try:\n        time.sleep(float(sys.argv[1]))\n"
    "    finally:\n        os.unlink(name)\n"
)


@dataclass(frozen=True)
class Place:
    """What a campaign has brought along for its faults."""

    operator: str  # its namespace
    clocks: Path  # of its processes
    job_clocks: Path
    disks: Mapping[str, Disk]  # by the number of the lane


@dataclass(frozen=True)
class Faults:
    """The faults of one strike."""

    cluster: Cluster
    nodes: Nodes
    place: Place
    training: Training
    strike: Strike

    def strike_now(self) -> str:
        """Do it; what was hit."""
        if server := SERVERS.get(self.strike.kind.removesuffix("-killed")):
            return self._server_killed(server)
        if self.strike.kind.removesuffix("-killed") in ("kubelet", "containerd"):
            return self._unit_killed(self.strike.kind.removesuffix("-killed"))
        return self._table()[self.strike.kind]()

    def _table(self) -> dict[str, Callable[[], str]]:
        return {
            "program-killed": self._program_killed,
            "program-frozen": lambda: self._inside(FREEZE),
            "shm-filled": lambda: self._inside(FILL),
            "disk-filled": self._disk_filled,
            "launcher-clock-moved": self._launcher_clock_moved,
            "launcher-killed": self._launcher_killed,
            "launcher-frozen": self._launcher_frozen,
            "pod-deleted": lambda: self._on_pod("delete", "pod", "--wait=false"),
            "pod-deleted-by-force": lambda: self._on_pod("delete", "pod", "--force", "--grace-period=0"),
            "pod-evicted": self._pod_evicted,
            "pod-relabelled": self._pod_relabelled,
            "operator-killed": self._operator_killed,
            "operator-clock-moved": self._operator_clock_moved,
            "leader-killed": self._leader_killed,
            "control-plane-paused": lambda: self._paused(control_plane(self.training.kube)),
            "node-paused": lambda: self._paused(self._node()),
            "node-off": self._node_off,
            "network-cut": self._network_cut,
            "network-slow": self._network_slow,
            "secret-deleted": lambda: self._object_deleted("secret"),
            "service-deleted": lambda: self._object_deleted("service"),
            "network-policy-deleted": lambda: self._object_deleted("networkpolicy"),
            "suspended": self._suspended,
            "scaled": self._scaled,
            "edited": self._edited,
        }

    # One job, one of its pods

    @property
    def _here(self) -> tuple[str, str]:
        return "--namespace", self.training.namespace

    def _choose(self, names: Sequence[str], what: str) -> str:
        if not names:
            raise LabError(f"there is no {what}")
        return sorted(names)[int(self.strike.aim * len(names))]

    def _one_of(self, ways: Sequence[T]) -> T:
        """One of several ways, which does not depend on the choice of the pod."""
        return ways[int(self.strike.aim * 997) % len(ways)]

    def _pod(self, running: bool = True) -> Manifest:
        pods = self.training.kube.get("pods", *self._here, "--selector", self.training.selector)["items"]
        found = {
            pod["metadata"]["name"]: pod
            for pod in pods
            if pod["metadata"]["name"].startswith(f"{self.training.name}-")  # others may have its labels, too
            if "tftraining.dev/role" in pod["metadata"]["labels"] and "deletionTimestamp" not in pod["metadata"]
            if not running or pod["status"].get("phase") == "Running"
        }
        chosen: Manifest = found[self._choose(list(found), "running pod")]
        return chosen

    def _replica(self) -> str:
        return str(self._pod()["metadata"]["name"]).removeprefix(f"{self.training.name}-")

    def _program_killed(self) -> str:
        replica = self._replica()
        self.training.kill_program(replica)
        return self.training.pod(replica)

    def _inside(self, code: str) -> str:
        pod = self._pod()["metadata"]["name"]
        words = ("--container=tensorflow", "--", "python", "-c", code, str(self.strike.seconds))
        self.training.kube.kubectl("exec", *self._here, pod, *words)
        return str(pod)

    def _launcher_killed(self) -> str:
        pod = self._pod()["metadata"]["name"]
        self.cluster.kill(self.training.namespace, pod)
        return str(pod)

    def _launcher_frozen(self) -> str:
        pod = self._pod()
        node, [status] = pod["spec"]["nodeName"], pod["status"]["containerStatuses"]
        container = status.get("containerID", "").rpartition("/")[2]
        self.nodes.kill_container(node, container, "STOP")
        try:
            time.sleep(self.strike.seconds)
        finally:
            self._let_go(node, container)
        return str(pod["metadata"]["name"])

    def _let_go(self, node: str, container: str) -> None:
        """Let a container go on, unless it is gone. Its node may be paused or off just now."""
        deadline = time.monotonic() + LET_GO_SECONDS
        while time.monotonic() < deadline:
            try:
                self.nodes.kill_container(node, container, "CONT")
                return
            except LabError as error:
                if "not found" in str(error):
                    return
                time.sleep(LOOK_SECONDS)

    def _disk_filled(self) -> str:
        self._alive()
        disk = self.place.disks[self.training.name.split("-")[1]]
        with disk.filled():
            time.sleep(self.strike.seconds)
        return str(disk.folder)

    def _launcher_clock_moved(self) -> str:
        return self._clock_moved(self.place.job_clocks, str(self._pod()["metadata"]["name"]))

    def _operator_clock_moved(self) -> str:
        return self._clock_moved(self.place.clocks, self._choose(self._operator_pods(), "operator"))

    def _clock_moved(self, folder: Path, pod: str) -> str:
        seconds = self._one_of(clocks.OFFSETS)
        try:
            clocks.move(folder, pod, seconds)
        except FileNotFoundError as error:
            raise LabError(f"{pod} has not started yet") from error
        try:
            time.sleep(self.strike.seconds)
        finally:
            clocks.move(folder, pod, 0)
        return f"{pod} {seconds:+d} s"

    def _on_pod(self, verb: str, kind: str, *words: str) -> str:
        pod = str(self._pod(running=False)["metadata"]["name"])
        self.training.kube.kubectl(verb, kind, pod, *self._here, *words)
        return pod

    def _pod_evicted(self) -> str:
        replica = self._replica()
        self.training.evict(replica)
        return self.training.pod(replica)

    def _pod_relabelled(self) -> str:
        pod = str(self._pod(running=False)["metadata"]["name"])
        label = self._one_of(["tftraining.dev/job-name-", "tftraining.dev/job-name=another", "tftraining.dev/role-"])
        self.training.kube.kubectl("label", "pod", pod, *self._here, "--overwrite", label)
        return f"{pod} {label}"

    # One job, as its owner

    def _object_deleted(self, kind: str) -> str:
        found = self.training.kube.get(kind, *self._here, "--selector", self.training.selector)["items"]
        name = self._choose([each["metadata"]["name"] for each in found], kind)
        self.training.kube.kubectl("delete", kind, name, *self._here, "--wait=false")
        return f"{kind} {name}"

    def _alive(self) -> Manifest:
        job = self.training.job()
        if job.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            raise LabError("the job is done")
        return job

    def _suspended(self) -> str:
        self._alive()
        self.training.change({"runPolicy": {"suspend": True}})
        try:
            time.sleep(self.strike.seconds)
        finally:
            self._restore(lambda: self.training.change({"runPolicy": {"suspend": False}}))
        return self.training.name

    def _scaled(self) -> str:
        self._alive()
        # Not the present number: another striker may have changed it for a while.
        size = JOBS[self.training.name.partition("-")[0]].workers
        other = 3 if size == 2 else 2
        self._scale(other)
        try:
            time.sleep(self.strike.seconds)
        finally:
            self._restore(lambda: self._scale(size))
        return f"{self.training.name} {size} {other} {size}"

    def _restore(self, call: Callable[[], None]) -> None:
        """Change the job back, if it is still there."""

        def change() -> None:
            try:
                call()
            except LabError as error:
                if "NotFound" not in str(error):
                    raise

        patiently(change)

    def _scale(self, size: int) -> None:
        self.training.kube.kubectl("scale", "tftrainingjob", self.training.name, f"--replicas={size}", *self._here)

    def _edited(self) -> str:
        self._alive()
        most = 1000 + int(self.strike.aim * 1000)
        self.training.change({"restartPolicy": {"maxRestarts": most}})
        return f"{self.training.name} maxRestarts {most}"

    # The operator

    def _operator_pods(self) -> list[str]:
        pods = self.training.kube.get("pods", "--namespace", self.place.operator)["items"]
        return [
            pod["metadata"]["name"]
            for pod in pods
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]

    def _kill_operator(self, pod: str) -> str:
        self.training.kube.kubectl(
            "delete", "pod", pod, "--namespace", self.place.operator, "--force", "--grace-period=0", "--wait=false"
        )
        return pod

    def _operator_killed(self) -> str:
        return self._kill_operator(self._choose(self._operator_pods(), "operator"))

    def _leader_killed(self) -> str:
        leases = self.training.kube.get("leases", "--namespace", self.place.operator)["items"]
        holders = {str(each["spec"].get("holderIdentity", "")).rpartition("_")[0] for each in leases}
        return self._kill_operator(self._choose([*holders & {*self._operator_pods()}], "leader"))

    # Servers and nodes

    def _server_killed(self, server: str) -> str:
        node = control_plane(self.training.kube)
        self.nodes.execute(node, "pkill", "-KILL", "-x", server)
        if server in ("etcd", "kube-apiserver"):
            answering(self.training.kube)
        return f"{server} on {node}"

    def _node(self) -> str:
        """A worker node; that of a pod of the job, if it has any."""
        with suppress(LabError):
            if node := self._pod(running=False)["spec"].get("nodeName"):  # none before the pod is scheduled
                return str(node)
        return self._choose(self.nodes.workers(), "node")

    def _unit_killed(self, unit: str) -> str:
        node = self._node()
        self.nodes.execute(node, "systemctl", "kill", "--signal=KILL", "--kill-whom=main", unit)
        self.nodes.execute(node, "systemctl", "start", unit)
        return f"{unit} on {node}"

    def _paused(self, node: str) -> str:
        self.nodes.pause(node)
        try:
            time.sleep(self.strike.seconds)
        finally:
            self.nodes.unpause(node)
        return node

    def _node_off(self) -> str:
        node = self._node()
        self.nodes.stop(node)
        try:
            time.sleep(self.strike.seconds)
        finally:
            self.nodes.start(node, self.training.kube)
            for disk in self.place.disks.values():
                disk.share(node)
            self.training.kube.kubectl("wait", "--for=condition=Ready", f"node/{node}", f"--timeout={BACK_SECONDS}s")
        return node

    def _network_cut(self) -> str:
        node = self._node()
        with _rules(self.nodes, node):
            time.sleep(self.strike.seconds)
        return node

    def _network_slow(self) -> str:
        node = self._node()
        self.nodes.execute(node, "tc", "qdisc", "replace", "dev", INTERFACE, "root", "tbf", *SLOW)
        try:
            time.sleep(self.strike.seconds)
        finally:
            self.nodes.execute(node, "tc", "qdisc", "del", "dev", INTERFACE, "root")
        return node


@contextmanager
def _rules(nodes: Nodes, node: str) -> Iterator[None]:
    """Nothing passes between this node and the others."""
    try:
        for chain, side in CUT:
            nodes.execute(node, "iptables", "-w", "-I", chain, "1", side, INTERFACE, "-j", "DROP")
        yield
    finally:
        _connect(nodes, node)


def _connect(nodes: Nodes, node: str) -> None:
    for chain, side in CUT:
        with suppress(LabError):  # there is no such rule
            nodes.execute(node, "iptables", "-w", "-D", chain, side, INTERFACE, "-j", "DROP")


def control_plane(kube: Kube) -> str:
    """The node with the servers."""
    return str(kube.get("nodes", "--selector", CONTROL_PLANE)["items"][0]["metadata"]["name"])


def patiently(call: Callable[[], object]) -> None:
    """Repeat a call until the API server does it; LabError after some minutes."""
    deadline = time.monotonic() + BACK_SECONDS
    while True:
        try:
            call()
            return
        except LabError:
            if time.monotonic() > deadline:
                raise
            time.sleep(LOOK_SECONDS)


def answering(kube: Kube) -> None:
    """Wait until the API server answers, and etcd behind it."""
    patiently(lambda: kube.kubectl("get", "--raw", "/readyz"))


def heal(nodes: Nodes, kube: Kube, disks: Iterable[Disk]) -> list[str]:
    """Let all nodes run, connected and unhindered; what had to be healed."""
    healed = []
    for node in nodes.all(state="paused"):
        nodes.unpause(node)
        healed.append(f"{node} was paused")
    for node in nodes.all(state="exited"):
        nodes.start(node, kube)
        healed.append(f"{node} was off")
    for node in nodes.all():
        for disk in disks:
            disk.share(node)
        _connect(nodes, node)
        with suppress(LabError):  # the interface has no such discipline
            nodes.execute(node, "tc", "qdisc", "del", "dev", INTERFACE, "root")
            healed.append(f"{node} was slow")
        nodes.execute(node, "systemctl", "start", "containerd", "kubelet")
    answering(kube)
    return healed
