"""What cannot start stays Starting and says why, naming the pod: the answers of a real scheduler and real kubelets."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from testbed.cluster import Cluster
from tests.support.cluster.training import Manifest, Training, example, local_storage

WORDS_SECONDS = 60
# The pod's own status is one source of it, an event the other; the operator looks by itself only after minutes.
SOON = 20.0
GONE = {"storage": {"volume": {"persistentVolumeClaim": {"claimName": "nowhere"}}, "saveDirs": ["."]}}


def _container(manifest: Manifest) -> dict[str, Any]:
    container: dict[str, Any] = manifest["spec"]["template"]["spec"]["containers"][0]
    return container


def _no_storage(manifest: Manifest) -> None:
    manifest["spec"] |= GONE


def _no_image(manifest: Manifest) -> None:
    del manifest["spec"]["storage"]
    _container(manifest).update(image="nowhere.invalid/image:none", command=["train"])


def _no_room(manifest: Manifest) -> None:
    del manifest["spec"]["storage"]
    _container(manifest).update(command=["train"], resources={"requests": {"cpu": "1000"}})


def _no_directory(manifest: Manifest) -> None:
    """As it is; but nobody makes the directory of its volume."""


STUCK: dict[str, tuple[Callable[[Manifest], None], list[str]]] = {
    "no-storage": (_no_storage, ["worker-0: cannot be scheduled", 'persistentvolumeclaim "nowhere" not found']),
    "no-image": (_no_image, ["worker-", "container tensorflow: image pull failed (nowhere.invalid/image:none)"]),
    "no-room": (_no_room, ["worker-0: cannot be scheduled", "Insufficient cpu"]),
    "no-directory": (_no_directory, ["worker-0: volumes or network not ready: MountVolume."]),
}


def test_what_cannot_start_says_why(cluster: Cluster, operator: object, namespace: str) -> None:
    """All at once: half a minute of waiting for what a kubelet and a scheduler say."""
    volume, claim = local_storage(namespace)
    cluster.kube.apply(volume, claim, *(_stuck(cluster, namespace, name) for name in STUCK))
    for name, (_, words) in STUCK.items():
        job = Training(cluster.kube, namespace, name)
        status = job.wait_for(f"saying {words}", partial(_says, words), WORDS_SECONDS)
        assert (status["phase"], status["restarts"]["counted"]) == ("Starting", 0), status
    cluster.kube.kubectl("delete", "persistentvolume", volume["metadata"]["name"], "--wait=false")


def test_an_image_that_cannot_be_pulled_is_named_as_soon_as_the_kubelet_says_so(
    cluster: Cluster, operator: object, namespace: str
) -> None:
    """The kubelet's own words are an event, and then the status of the pod."""
    cluster.kube.apply(_stuck(cluster, namespace, "no-image"))
    job, began = Training(cluster.kube, namespace, "no-image"), time.monotonic()
    seen: dict[str, float] = {}
    while len(seen) < 3:
        now = time.monotonic() - began
        assert now < WORDS_SECONDS, seen
        told = {
            "event": _has_event(job),
            "pod": _pod_waits(job),
            "job": "image pull failed" in job.status().get("message", ""),
        }
        seen = {what: now for what, is_so in told.items() if is_so} | seen
        time.sleep(0.2)
    print("seconds after the creation:", {what: round(at, 1) for what, at in seen.items()})
    assert seen["job"] - seen["event"] < SOON, seen


def _has_event(job: Training) -> bool:
    events = job.kube.get("events", "--namespace", job.namespace, "--field-selector", "reason=Failed")["items"]
    return any("nowhere.invalid" in each["message"] for each in events)


def _pod_waits(job: Training) -> bool:
    pods = job.kube.get("pods", "--namespace", job.namespace)["items"]
    states = [each["state"] for pod in pods for each in pod["status"].get("containerStatuses", ())]
    return any("Image" in state.get("waiting", {}).get("reason", "") for state in states)


def _says(words: list[str], status: Manifest) -> bool:
    return all(word in status.get("message", "") for word in words)


def _stuck(cluster: Cluster, namespace: str, name: str) -> Manifest:
    manifest = example(cluster.images[1])
    manifest["metadata"] |= {"name": name, "namespace": namespace}
    STUCK[name][0](manifest)
    return manifest
