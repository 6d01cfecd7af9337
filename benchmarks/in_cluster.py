"""The gang that `benchmarks.recovery --cluster` disturbs: real pods of the test cluster, its operator and launchers.

The nodes of the test cluster are containers of this machine, so all clocks here are one CLOCK_MONOTONIC. It must never
judge, and leaves the cluster as it was.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from tests.cluster.lab import cluster as lab
from tests.cluster.lab import release
from tests.cluster.lab.cluster import Cluster
from tests.cluster.lab.shell import LabError
from tests.cluster.training import Training, local_storage
from tftraining_operator.model.names import Replica

NAMESPACE = "recovery"
PATIENCE = 300.0
LOOK_SECONDS = 0.2
# Beside which a deleted pod's recovery stands: what a bare pod of the same image needs to run, and then to import.
BARE = (
    "import time; print(time.monotonic(), flush=True); "
    "import tensorflow, tf_keras; print(time.monotonic(), flush=True); time.sleep(600)"
)


class PodGang:
    """The launchers of a job in the cluster, as seen through `kubectl exec`."""

    def __init__(self, cluster: Cluster, training: Training, replicas: tuple[Replica, ...]) -> None:
        self._cluster = cluster
        self._training = training
        self._replicas = replicas

    async def next_epoch(self) -> None:
        """Wait until an epoch, and so a backup, is done from now on."""
        began = self._epoch()
        _until(lambda: self._epoch() > began, "a new epoch")

    async def kill(self, victim: Replica) -> float:
        """SIGKILL the program of a member; seconds until all train again."""
        at = self._training.kill_program(str(victim))
        return self._trained_since(at) - at

    def delete(self, victim: Replica) -> float:
        """Delete the pod of a member; seconds until all train again."""
        at = time.monotonic()
        where = ("--namespace", NAMESPACE, "--wait=false")
        self._training.kube.kubectl("delete", "pod", self._training.pod(str(victim)), *where)
        return self._trained_since(at) - at

    def wait(self) -> None:
        """Wait for the first step of all members."""
        self._trained_since(0.0)

    def _trained_since(self, at: float) -> float:
        """Wait for a first step after `at` in all members; when the last of them made it."""
        made: list[float] = []

        def all_made() -> bool:
            steps = [self._look(each).get("firstStepMonotonic") or 0.0 for each in self._replicas]
            made[:] = [step for step in steps if step > at]
            return len(made) == len(steps)

        _until(all_made, "a first step of all members")
        return max(made)

    def _epoch(self) -> int:
        return int((self._look(self._replicas[0]).get("progress") or {}).get("epoch") or 0)

    def _look(self, replica: Replica) -> dict[str, Any]:
        try:
            return self._training.launcher(str(replica))
        except LabError:  # the pod is not there, or not yet
            return {}

    def bare(self) -> tuple[float, float]:
        """A bare pod deleted and made again: seconds to its program's first line, and of the import there."""
        kube, name = self._cluster.kube, "bare"
        self._make_bare(name)
        at = time.monotonic()
        kube.kubectl("delete", "pod", name, "--namespace", NAMESPACE, "--grace-period=1")
        self._make_bare(name)
        started, imported = (float(line) for line in self._bare_log(name).splitlines()[:2])
        kube.kubectl("delete", "pod", name, "--namespace", NAMESPACE, "--grace-period=0", "--force")
        return started - at, imported - started

    def _make_bare(self, name: str) -> None:
        container = {"name": "tensorflow", "image": self._cluster.images[1], "command": ["python", "-c", BARE]}
        spec = {"restartPolicy": "Never", "containers": [container]}
        metadata = {"name": name, "namespace": NAMESPACE}
        self._cluster.kube.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        _until(lambda: self._bare_log(name).count("\n") >= 2, "the bare pod's import")

    def _bare_log(self, name: str) -> str:
        try:
            lines = self._cluster.kube.kubectl("logs", name, "--namespace", NAMESPACE).splitlines()
        except LabError:
            return ""
        return "".join(f"{line}\n" for line in lines if line.replace(".", "", 1).isdigit())


@contextlib.contextmanager
def running(manifest: dict[str, Any], replicas: tuple[Replica, ...]) -> Iterator[PodGang]:
    """The job in the test cluster, all members training; everything of it is gone when the block ends."""
    with lab.session() as cluster:
        release.install(cluster.kube, cluster.images[0])
        volume, claim = local_storage(NAMESPACE)
        try:
            assert cluster.shared is not None
            (cluster.shared / volume["metadata"]["name"]).mkdir(mode=0o755, exist_ok=True)
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
            cluster.kube.apply(namespace, volume, claim, _placed(manifest, cluster.images[1]))
            gang = PodGang(cluster, Training(cluster.kube, NAMESPACE, manifest["metadata"]["name"]), replicas)
            gang.wait()
            yield gang
        finally:
            cluster.kube.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=120s")
            cluster.kube.kubectl("delete", "persistentvolume", volume["metadata"]["name"], "--ignore-not-found")
            release.uninstall(cluster.kube)


def _placed(manifest: dict[str, Any], image: str) -> dict[str, Any]:
    spec = manifest["spec"]
    [container] = spec["template"]["spec"]["containers"]
    template = {"spec": {"containers": [{**container, "image": image}]}}
    storage = {"volume": {"persistentVolumeClaim": {"claimName": "training"}}}
    metadata = {**manifest["metadata"], "namespace": NAMESPACE}
    return {**manifest, "metadata": metadata, "spec": {**spec, "storage": storage, "template": template}}


def _until(holds: Any, what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} within {PATIENCE:.0f} s")
        time.sleep(LOOK_SECONDS)
