"""The gang that `benchmarks.recovery --cluster` disturbs: pods of the test cluster with real operator and launchers.

The nodes of the test cluster are containers of this machine, so all processes share one CLOCK_MONOTONIC. It
restores the cluster.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.program_killer import Killer
from testbed import cluster as lab
from testbed import release
from testbed.cluster import Cluster
from testbed.shell import LabError
from tests.support.cluster.api_server import connected
from tests.support.cluster.training import Training, local_storage
from tftraining_api.kube.api import Api, ApiError
from tftraining_api.model.names import Replica
from tftraining_operator.cluster.launcher_reports import LauncherEndpoint, through_api_server

NAMESPACE = "recovery"
PATIENCE = 300.0
LOOK_SECONDS = 0.2
# The floor of a deleted pod's recovery: the time of a bare pod of the same image to start, and then to import.
BARE = (
    "import time; print(time.monotonic(), flush=True); "
    "import tensorflow, tf_keras; print(time.monotonic(), flush=True); time.sleep(600)"
)


class PodGang:
    """The launchers of a job in the cluster, reached by the API server's pod proxy."""

    def __init__(self, cluster: Cluster, training: Training, replicas: tuple[Replica, ...], api: Api) -> None:
        assert cluster.nodes is not None, "the lab's own cluster has nodes"
        self.training = training
        self.nodes = cluster.nodes
        self._cluster = cluster
        self._replicas = replicas
        self._fetch = through_api_server(api)
        self._killers: dict[Replica, Killer] = {}

    @property
    def directory(self) -> Path:
        """The shared storage, as this machine sees it."""
        assert self._cluster.shared is not None
        name: str = local_storage(NAMESPACE)[0]["metadata"]["name"]
        return self._cluster.shared / name

    async def next_epoch(self) -> None:
        """Wait until the next epoch ends, and with it a backup."""
        began = await self._epoch()
        await _until(lambda: self._is_past(began), "new epoch")

    async def _is_past(self, epoch: int) -> bool:
        return await self._epoch() > epoch

    def arm(self, stack: contextlib.ExitStack) -> None:
        """Start a Killer in the pod of each member."""
        for each in self._replicas:
            self._killers[each] = stack.enter_context(Killer(self.training, str(each)))

    async def kill(self, victim: Replica) -> float:
        """Send SIGKILL to a member's program; seconds until all members train again."""
        at = self._killers[victim].kill()
        return await self.trained_since(at) - at

    async def delete(self, victim: Replica) -> float:
        """Delete the pod of a member; seconds until all members train again."""
        at = time.monotonic()
        self.training.delete(str(victim))
        return await self.trained_since(at) - at

    async def trained_since(self, at: float, without: Replica | None = None) -> float:
        """Wait for a first step after `at` in all members (except `without`); the time of the last of these steps."""
        made: list[float] = []
        replicas = [each for each in self._replicas if each != without]

        async def all_made() -> bool:
            steps = [(await self._look(each)).get("firstStepMonotonic") or 0.0 for each in replicas]
            made[:] = [step for step in steps if step > at]
            return len(made) == len(steps)

        await _until(all_made, "first step of all members")
        return max(made)

    async def down_seconds(self) -> float:
        """Seconds without training in the last restart, as soon as the chief's launcher reports them."""
        known: list[float] = []

        async def told() -> bool:
            last = (await self._look(self._replicas[0])).get("lastRestart") or {}
            known[:] = [last["downSeconds"]] if last.get("downSeconds") is not None else []
            return bool(known)

        await _until(told, "end of the restart")
        return known[0]

    async def step(self) -> int:
        """The training step that the chief has reached; 0 before the first."""
        return int(((await self._look(self._replicas[0])).get("progress") or {}).get("step") or 0)

    async def _epoch(self) -> int:
        return int(((await self._look(self._replicas[0])).get("progress") or {}).get("epoch") or 0)

    async def _look(self, replica: Replica) -> dict[str, Any]:
        pod = LauncherEndpoint(
            uid="", job="", namespace=NAMESPACE, pod=self.training.pod(str(replica)), ip="", job_state=""
        )
        try:
            status: dict[str, Any] = json.loads(await self._fetch(pod, ""))
        except (ApiError, ValueError):  # the pod does not exist, or does not answer yet
            return {}
        return status

    async def bare(self) -> tuple[float, float]:
        """Delete and recreate a bare pod: seconds until its program's first line, and of its import of TensorFlow."""
        kube, name = self._cluster.kube, "bare"
        await self._make_bare(name)
        at = time.monotonic()
        kube.kubectl("delete", "pod", name, "--namespace", NAMESPACE, "--grace-period=1")
        await self._make_bare(name)
        started, imported = (float(line) for line in self._bare_log(name).splitlines()[:2])
        kube.kubectl("delete", "pod", name, "--namespace", NAMESPACE, "--grace-period=0", "--force")
        return started - at, imported - started

    async def _make_bare(self, name: str) -> None:
        container = {"name": "tensorflow", "image": self._cluster.images[1], "command": ["python", "-c", BARE]}
        spec = {"restartPolicy": "Never", "containers": [container]}
        metadata = {"name": name, "namespace": NAMESPACE}
        self._cluster.kube.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

        async def imported() -> bool:
            return self._bare_log(name).count("\n") >= 2

        await _until(imported, "line from the bare pod after its import")

    def _bare_log(self, name: str) -> str:
        try:
            lines = self._cluster.kube.kubectl("logs", name, "--namespace", NAMESPACE).splitlines()
        except LabError:
            return ""
        return "".join(f"{line}\n" for line in lines if line.replace(".", "", 1).isdigit())


@contextlib.asynccontextmanager
async def running(
    manifest: dict[str, Any], replicas: tuple[Replica, ...], *settings: str, objects: Sequence[dict[str, Any]] = ()
) -> AsyncIterator[PodGang]:
    """Run the job in the test cluster, with all members training; the end of the block deletes everything.

    `settings` are the operator's, in the form of Helm's --set; `objects` are made beside the job.
    """
    with lab.session() as cluster:
        release.install(cluster.kube, cluster.images[0], *settings)
        volume, claim = local_storage(NAMESPACE)
        try:
            assert cluster.shared is not None
            (cluster.shared / volume["metadata"]["name"]).mkdir(mode=0o755, exist_ok=True)
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
            more = [{**each, "metadata": {**each["metadata"], "namespace": NAMESPACE}} for each in objects]
            cluster.kube.apply(namespace, volume, claim, *more, _placed(manifest, cluster.images[1]))
            async with connected(cluster.kube) as api:
                training = Training(cluster.kube, NAMESPACE, manifest["metadata"]["name"])
                gang = PodGang(cluster, training, replicas, api)
                await gang.trained_since(0.0)
                with contextlib.ExitStack() as stack:
                    gang.arm(stack)
                    yield gang
        finally:
            cluster.kube.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=120s")
            cluster.kube.kubectl("delete", "persistentvolume", volume["metadata"]["name"], "--ignore-not-found")
            release.uninstall(cluster.kube)


def _placed(manifest: dict[str, Any], image: str) -> dict[str, Any]:
    spec = manifest["spec"]
    pod = spec["template"]["spec"]
    [container] = pod["containers"]
    template = {"spec": {**pod, "containers": [{**container, "image": image}]}}
    storage = {"volume": {"persistentVolumeClaim": {"claimName": "training"}}}
    metadata = {**manifest["metadata"], "namespace": NAMESPACE}
    return {**manifest, "metadata": metadata, "spec": {**spec, "storage": storage, "template": template}}


async def _until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not await holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} within {PATIENCE:.0f} s")
        await asyncio.sleep(LOOK_SECONDS)
