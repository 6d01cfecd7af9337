"""What kubelets and the control plane do to the pods of the simulated API server, on the orders of a test."""

import copy
from collections.abc import Iterable

from tests.support.simulated_cluster.apiserver import DONE, ApiServer, stamp
from tests.support.simulated_cluster.kueue import SimulatedKueue
from tests.support.simulated_cluster.nodes import SimulatedNodes
from tftraining_api.model.spec import Manifest

UNPREPARED = {"type": "PodReadyToStartContainers", "status": "False"}
PENDING: Manifest = {"phase": "Pending"}
UNMOUNTED: Manifest = {"phase": "Pending", "conditions": [UNPREPARED]}


class Kubelet:
    """All nodes at once. Pods are called by their names."""

    def __init__(self, api: ApiServer, nodes: SimulatedNodes, kueue: SimulatedKueue) -> None:
        self._api = api
        self._nodes = nodes
        self._kueue = kueue
        self.launcher_secrets: dict[str, int] = {}  # what launchers have read, by the UID of their pod

    def start(self, *names: str, ready: bool = True) -> None:
        """Place the pods and run their containers."""
        for name in names:
            pod = self._api.pods[name]
            pod["spec"].setdefault("nodeName", self._nodes.pick_node() or "node-a")
            if not self._mounted(pod):
                continue
            announced = [each for each in pod["status"].get("conditions", ()) if each["type"] == "DisruptionTarget"]
            pod["status"] = {"phase": "Running", "containerStatuses": self._containers(pod, ready)}
            if announced:
                pod["status"]["conditions"] = announced

    def start_all(self, launched: bool = False) -> bool:
        """Start every pod that waits for nothing; whether there was one. Launchers make training pods ready, or not."""
        idle = [name for name, pod in self._api.pods.items() if pod["status"] in (PENDING, UNMOUNTED)]
        idle = [name for name in idle if self._kubelet_reachable(name) and self._nodes.pick_node()]
        idle = [name for name in idle if not self._kueue.is_gated(self._api.pods[name])]
        for name in idle:
            if "deletionTimestamp" not in self._api.pods[name]["metadata"]:
                self.start(name, ready=not launched or name.endswith("-cleanup"))
        return any(self._api.pods[name]["status"] != UNMOUNTED for name in idle)

    def remove_deleted(self) -> bool:
        """Carry out the deletions that were asked for; whether there was one."""
        gone = [name for name, pod in self._api.pods.items() if "deletionTimestamp" in pod["metadata"]]
        gone = [name for name in gone if self._kubelet_reachable(name)]
        kept = [name for name in gone if "finalizers" in self._api.pods[name]["metadata"]]
        for name in gone:
            if name not in kept:
                del self._api.pods[name]
        ended = [name for name in kept if self._end_deleted(self._api.pods[name])]
        return self._kueue.act() or bool(ended) or len(gone) > len(kept)

    def _end_deleted(self, pod: Manifest) -> bool:
        """End the containers of a pod whose object a finalizer keeps; whether any ran. Nobody ends a pod without a
        node."""
        if pod["status"]["phase"] in DONE or "nodeName" not in pod["spec"]:
            return False
        if pod["status"].get("containerStatuses"):
            self.exit(pod["metadata"]["name"], 137)
        pod["status"]["phase"] = "Failed"
        return True

    def exit(self, name: str, code: int, reason: str = "", message: str = "") -> None:
        """The main container of the pod ends; 137 is SIGKILL."""
        status = self._api.pods[name]["status"]
        main, *others = status["containerStatuses"]
        ended = {
            **(main["state"].get("running") or {"startedAt": stamp(self._api.now)}),
            "exitCode": code,
            "reason": reason or ("Error" if code else "Completed"),
            "message": message,
            "finishedAt": stamp(self._api.now),
        }
        main |= {"ready": False, "state": {"terminated": ended}}
        if not any("running" in each["state"] for each in others):
            status["phase"] = "Failed" if code else "Succeeded"

    def evict(self, name: str, code: int = 137) -> None:
        """The kubelet ends the pod for lack of memory on its node."""
        self.mark_disrupted(name, "TerminationByKubelet")
        self.exit(name, code)
        self._api.pods[name]["status"] |= {
            "phase": "Failed",
            "reason": "Evicted",
            "message": "The node was low on resource: memory.",
        }

    def mark_disrupted(self, name: str, reason: str) -> None:
        """Somebody in the control plane announces the pod's end."""
        condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
        self.condition(name, condition | {"lastTransitionTime": stamp(self._api.now)})

    def condition(self, name: str, condition: Manifest) -> None:
        """Set a condition of the pod."""
        status = self._api.pods[name]["status"]
        others = [each for each in status.get("conditions", ()) if each["type"] != condition["type"]]
        status["conditions"] = [*others, condition]

    def set_waiting(self, name: str, reason: str, message: str = "") -> None:
        """The pod is placed, and its container waits for a reason, such as ErrImagePull."""
        pod = self._api.pods[name]
        pod["spec"]["nodeName"] = "node-a"
        waiting = {"waiting": {"reason": reason, "message": message}}
        pod["status"] |= {"containerStatuses": [{**each, "state": waiting} for each in self._containers(pod, False)]}

    def force_delete(self, *names: str) -> None:
        """The pods are gone without a word, as after a forced deletion."""
        for name in names:
            del self._api.pods[name]

    def running(self) -> Iterable[str]:
        """The names of the pods that are not done and that nobody has asked to go."""
        pods = self._api.pods.items()
        return [n for n, p in pods if p["status"]["phase"] not in DONE and "deletionTimestamp" not in p["metadata"]]

    def _mounted(self, pod: Manifest) -> bool:
        """Whether the pod has the Secrets that it needs, now or since it was started; otherwise they are waited for."""
        uid = pod["metadata"]["uid"]
        needed = [] if uid in self.launcher_secrets else _secrets(pod)
        if not all(name in self._api.secrets for name in needed):
            pod["status"] = copy.deepcopy(UNMOUNTED)
            return False
        for name in needed:
            self.launcher_secrets[uid] = self._api.secrets[name]
        return True

    def _kubelet_reachable(self, name: str) -> bool:
        """Whether the pod's kubelet is there to do anything for it."""
        return self._nodes.is_reachable(self._api.pods[name]["spec"].get("nodeName", ""))

    def _containers(self, pod: Manifest, ready: bool) -> list[Manifest]:
        state = {"running": {"startedAt": stamp(self._api.now)}}
        return [
            {"name": each["name"], "image": each.get("image", ""), "ready": ready, "state": dict(state)}
            for each in pod["spec"]["containers"]
        ]


def _secrets(pod: Manifest) -> list[str]:
    """The Secrets that are mounted into the pod as the operator made it."""
    volumes = pod["spec"].get("volumes") or ()
    return [each["secret"]["secretName"] for each in volumes if each["name"] == "tftraining-key"]
