"""What cannot start stays Starting and says why, naming the pod: the answers of a real scheduler and real kubelets."""

from typing import Any

import pytest

from tests.cluster.lab.cluster import Cluster
from tests.cluster.training import Manifest, Training, example, local_storage

WORDS_SECONDS = 60
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


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_no_storage, ["worker-0: cannot be scheduled", 'persistentvolumeclaim "nowhere" not found']),
        (_no_image, ["image pull failed", "nowhere.invalid"]),
        (_no_room, ["worker-0: cannot be scheduled", "Insufficient cpu"]),
    ],
    ids=["storage", "image", "room"],
)
def test_what_cannot_start_says_why(
    cluster: Cluster, operator: object, namespace: str, spoil: Any, words: list[str]
) -> None:
    manifest = example(cluster.images[1])
    spoil(manifest)
    _stays_starting(cluster, namespace, manifest, words)


def test_a_volume_that_cannot_be_mounted_says_so(cluster: Cluster, operator: object, namespace: str) -> None:
    volume, claim = local_storage(namespace)  # nobody makes its directory
    cluster.kube.apply(volume, claim)
    words = ["worker-0: its volumes or its network are not ready"]
    _stays_starting(cluster, namespace, example(cluster.images[1]), words)
    cluster.kube.kubectl("delete", "persistentvolume", volume["metadata"]["name"], "--wait=false")


def _stays_starting(cluster: Cluster, namespace: str, manifest: Manifest, words: list[str]) -> None:
    manifest["metadata"]["namespace"] = namespace
    cluster.kube.apply(manifest)
    job = Training(cluster.kube, namespace, "digits")
    status = job.wait_for(
        f"saying {words}", lambda now: all(word in now.get("message", "") for word in words), WORDS_SECONDS
    )
    assert status["phase"] == "Starting"
    assert status["restarts"]["counted"] == 0
