"""The cluster: bringing it up, taking it down, and what tests do with it.

One control plane and two workers, a name of its own for each checkout, and one directory that all nodes share.
It must never leave anything behind when it goes down, caches excepted.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import binaries, engine, loading, node_image, pod_images, pod_network
from .docker import Engine
from .kube import Kube
from .node_image import NodeImage
from .nodes import Nodes
from .shell import LabError, cache_dir, lock, run, step, use, used

WORKERS = 2
SHARED = "/shared"  # in every node
MONITOR_GRACE_SECONDS = 20  # Kubernetes' default is 50
# As the chart and the examples call our images, so that they work here as they are written.
RELEASED = ("tftraining-operator:0.1.0", "tftraining-trainer:0.1.0")
READY_SECONDS = 120
KIND_SECONDS = 180


@dataclass(frozen=True)
class Cluster:
    """A running cluster. A given one (`--kubeconfig`) has no `nodes` and no `shared` directory."""

    kube: Kube
    images: Sequence[str]  # of the operator and the trainer, by the names that manifests use
    nodes: Nodes | None = None
    shared: Path | None = None  # on this machine; /shared in every node

    def kill(self, namespace: str, pod: str, signal: str = "KILL", container: str = "tensorflow") -> None:
        """Send a signal to the first process of a pod's container, or of its native side-car, as a crash would."""
        found = self.kube.get("pod", pod, "--namespace", namespace)
        statuses = [found["status"].get(f"{kind}Statuses") or [] for kind in ("initContainer", "container")]
        running = {one["name"]: one.get("containerID", "") for each in statuses for one in each}
        if not running.get(container):
            raise LabError(f"pod {namespace}/{pod} runs no container {container}")
        if self.nodes is None:
            raise LabError("cannot kill a container in a cluster given by --kubeconfig")
        self.nodes.kill_container(found["spec"]["nodeName"], running[container].rpartition("/")[2], signal)


def name() -> str:
    """Return the name of this checkout's cluster."""
    return f"tft-{hashlib.sha256(bytes(pod_images.REPOSITORY)).hexdigest()[:6]}"


def _folder() -> Path:
    return cache_dir() / "clusters" / name()


def is_up() -> bool:
    """Whether this checkout's cluster runs with all its nodes."""
    found = engine.running()
    return found is not None and _complete(Nodes(found, name()))


def _complete(nodes: Nodes) -> bool:
    return len(nodes.all()) == WORKERS + 1 and _ready_file().exists()


def _kubeconfig() -> Path:
    return _folder() / "kubeconfig"


def _kube() -> Kube:
    return Kube(_kubeconfig(), _folder() / "kubectl")


def _ready_file() -> Path:
    """Return the file that marks a cluster whose start was completed."""
    return _folder() / "ready"


def _kept_file() -> Path:
    """Return the file that marks a cluster that stays up without users."""
    return _folder() / "kept"


def up(grace_seconds: int = MONITOR_GRACE_SECONDS) -> Cluster:
    """Return this checkout's cluster with the current images in it, started first if it does not run; it stays up."""
    cluster = _up(grace_seconds)
    _kept_file().touch()
    return cluster


@contextmanager
def session() -> Iterator[Cluster]:
    """Give this checkout's cluster for as long as the block runs.

    One that `up` started is left up; another one goes down with its last user.
    """
    with use(name()):
        yield _up(MONITOR_GRACE_SECONDS)
    if not _kept_file().exists() and not used(name()):
        down()


def _up(grace_seconds: int) -> Cluster:
    with lock(f"cluster-{name()}"), engine.started() as found:
        official = node_image.to_pull(found)
        images = pod_images.ensure(found, own_base=official is None)
        nodes = Nodes(found, name())
        if not _complete(nodes):
            node = NodeImage(official, None) if official else node_image.build(found, images)
            with step("starting the cluster"):
                _create(found, node, grace_seconds)
        loading.load(found, nodes.all(), images[:1])  # where tests keep the operator out of the way of their faults
        loading.load(found, nodes.workers(), images)
        loading.rename(found, nodes.workers(), dict(zip(images, RELEASED, strict=True)))
    return Cluster(_kube(), images, nodes, _folder() / "shared")


def _create(started: Engine, node: NodeImage, grace_seconds: int) -> None:
    _delete(started)
    shared = _folder() / "shared"
    shared.mkdir(parents=True)
    shared.chmod(0o1777)
    config = _folder() / "kind.json"
    config.write_text(json.dumps(_kind_config(node, shared, grace_seconds)))
    started.docker("network", "create", name())
    _kind(started, "create", "cluster", "--config", str(config), "--wait", "0s")
    kube = _kube()
    await_registration(Nodes(started, name()), kube)
    if node.built_here:
        install_network(started, kube)
    _keep_dns_on_the_control_plane(kube)
    limit = f"--timeout={READY_SECONDS}s"
    kube.kubectl("wait", "--for=condition=Ready", "nodes", "--all", limit)
    kube.kubectl("rollout", "status", "deployment/coredns", "--namespace", "kube-system", limit)
    _ready_file().touch()


def install_network(started: Engine, kube: Kube) -> None:
    """Give nodes that were built here, and that are registered, the pod network that the official ones bring."""
    pod_network.mend_dns(kube)
    pod_network.install(started, kube)


def await_registration(nodes: Nodes, kube: Kube) -> None:
    """Wait until each node has its object and its range of pod addresses: `kubeadm join` may end before that."""
    for node in nodes.all():
        try:
            kube.kubectl("wait", "--for=create", f"node/{node}", f"--timeout={READY_SECONDS}s")
            kube.kubectl("wait", "--for=jsonpath={.spec.podCIDR}", f"node/{node}", f"--timeout={READY_SECONDS}s")
        except LabError as error:
            journal = nodes.execute(node, "journalctl", "--unit=kubelet", "--no-pager", "--lines=15")
            raise LabError(f"{node} does not join the cluster: {error}; its kubelet:\n{journal}") from error


def _keep_dns_on_the_control_plane(kube: Kube) -> None:
    """A test that stops a worker node must disturb the training only, not the DNS of the whole cluster."""
    where = {"nodeSelector": {"node-role.kubernetes.io/control-plane": ""}}
    patch = json.dumps({"spec": {"template": {"spec": where}}})
    kube.kubectl("patch", "deployment/coredns", "--namespace", "kube-system", "--patch", patch)


def _kind_config(node: NodeImage, shared: Path, grace_seconds: int) -> dict[str, object]:
    manager = {"extraArgs": {"node-monitor-grace-period": f"{grace_seconds}s"}}
    mounts = [{"hostPath": str(shared), "containerPath": SHARED}]
    roles = ["control-plane", *["worker"] * WORKERS]
    return kind_config(node, roles, mounts, [{"kind": "ClusterConfiguration", "controllerManager": manager}])


def kind_config(
    node: NodeImage,
    roles: Sequence[str],
    mounts: Sequence[Mapping[str, object]] = (),
    patches: Sequence[Mapping[str, object]] = (),
) -> dict[str, object]:
    """Return kind's configuration of a cluster of such nodes, with further mounts and patches for kubeadm."""
    store = {"hostPath": str(node.store), "containerPath": "/kind/store", "readOnly": True}
    extra = [*mounts, *([store] if node.store else [])]
    kubelet = {"kind": "KubeletConfiguration", "failCgroupV1": False}
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": {"disableDefaultCNI": node.built_here},
        "featureGates": binaries.GANG_GATES,
        "runtimeConfig": binaries.GANG_APIS,
        "kubeadmConfigPatches": [json.dumps(patch) for patch in (*patches, kubelet)],
        "nodes": [{"role": role, "image": node.name, "extraMounts": extra} for role in roles],
    }


def _kind(started: Engine, *words: str) -> None:
    program = binaries.ensure("kind") / "kind"
    env = {**started.env, "KIND_EXPERIMENTAL_DOCKER_NETWORK": name()}
    run([program, *words, "--name", name(), "--kubeconfig", _kubeconfig()], env=env, timeout=KIND_SECONDS)


def down() -> list[str]:
    """Remove this checkout's cluster, and the private engine with it if no other cluster uses it.

    Return what was removed, a line each; nothing where there was nothing.
    """
    with lock(f"cluster-{name()}"):
        removed = []
        if found := engine.running():
            with step("removing the cluster"):
                removed = _delete(found)
        removed += _delete_folder()
        if engine.stop_if_unused():
            removed.append("the private Docker engine (its images stay in the cache)")
    return removed


def _delete(found: Engine) -> list[str]:
    """Remove the cluster's containers, volumes, network and files, as far as they are there; return what was."""
    removed = []
    if nodes := Nodes(found, name()).all(state=""):
        _kind(found, "delete", "cluster")
        removed.append(f"the nodes {', '.join(nodes)}")
    if found.docker("network", "ls", "--quiet", "--filter", f"name=^{name()}$").strip():
        found.docker("network", "rm", name())
        removed.append(f"the network {name()}")
    return removed + _delete_folder()


def _delete_folder() -> list[str]:
    if not _folder().exists():
        return []
    shutil.rmtree(_folder())
    return [f"{_folder()} (the kubeconfig, and the files of trainings in {SHARED})"]


def status() -> str:
    """Return the state of the cluster in a few lines."""
    if not is_up():
        return f"cluster {name()}: not running"
    return f"cluster {name()}: running\n{_kube().kubectl('get', 'nodes')}"
