"""What Kueue does to the pods of a group: it keeps their objects, admits successors, and deletes what is too many.

As pkg/controller/jobs/pod/pod_controller.go of Kueue 0.14 has it, without roles: all pods of a group are alike. A group
whose pods have all ended is finished for ever: a pod that joins it later waits behind its gate.
"""

from collections import defaultdict

from tests.support.simulated_cluster.apiserver import DONE, ApiServer
from tftraining_api.model.names import QUEUE_GROUP
from tftraining_api.model.spec import Manifest

FINALIZER = "kueue.x-k8s.io/managed"
TOTAL = "kueue.x-k8s.io/pod-group-total-count"
GATED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}


class SimulatedKueue:
    """The controller of plain pods, with quota for everybody."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._finished: set[str] = set()
        api.finalizer_of = finalizer_of

    def act(self) -> bool:
        """Bring every group up to date; whether that changed anything."""
        groups: dict[str, list[Manifest]] = defaultdict(list)
        for pod in self._api.pods.values():
            if (group := pod["metadata"]["labels"].get(QUEUE_GROUP)) is not None:
                groups[group].append(pod)
        changes = [self._bring_up_to_date(group, pods) for group, pods in groups.items()]
        return any(changes)

    def is_gated(self, pod: Manifest) -> bool:
        """Whether the pod may not be placed."""
        return pod["metadata"]["labels"].get(QUEUE_GROUP) in self._finished

    def _bring_up_to_date(self, group: str, pods: list[Manifest]) -> bool:
        total = int(pods[0]["metadata"]["annotations"][TOTAL])
        succeeded = sum(pod["status"]["phase"] == "Succeeded" for pod in pods)
        if succeeded == total or all(pod["status"]["phase"] in DONE for pod in pods):
            self._finished.add(group)
        if group in self._finished:
            for pod in pods:
                if pod["status"]["phase"] == "Pending" and "nodeName" not in pod["spec"]:
                    pod["status"]["conditions"] = [dict(GATED)]
            changes = [self._let_go(pod) for pod in pods]
            return any(changes)
        active = [pod for pod in pods if _may_run(pod)]
        inactive = [pod for pod in pods if not _may_run(pod)]
        newest_last = sorted(active, key=lambda pod: int(pod["metadata"]["uid"].rpartition("-")[2]))
        changed = False
        for pod in newest_last[total:]:
            changed = self._let_go(pod) or changed
            self._api.delete_pod(pod["metadata"]["name"], 30)
        for pod in inactive[: max(0, len(active) + len(inactive) - total)]:
            changed = self._let_go(pod) or changed
        return changed

    def _let_go(self, pod: Manifest) -> bool:
        """Remove the finalizer: an object that somebody has deleted is gone then, if its pod has ended."""
        if FINALIZER not in pod["metadata"].get("finalizers", ()):
            return False
        del pod["metadata"]["finalizers"]
        placed = "nodeName" in pod["spec"] and pod["status"]["phase"] not in DONE
        if "deletionTimestamp" in pod["metadata"] and not placed:
            del self._api.pods[pod["metadata"]["name"]]
        return True


def finalizer_of(pod: Manifest) -> str:
    """The finalizer that Kueue's webhook gives to a new pod; empty if none."""
    return FINALIZER if QUEUE_GROUP in pod["metadata"].get("labels", {}) else ""


def _may_run(pod: Manifest) -> bool:
    if "deletionTimestamp" in pod["metadata"] and "nodeName" not in pod["spec"]:
        return False
    return bool(pod["status"]["phase"] != "Failed")
