"""Side-cars that are injected into every pod of a namespace, as Istio does it: by a webhook of the API server.

No mesh is here, only containers as a mesh adds them, before all others of the pod: one that never ends, and a native
side-car, which is up before the launcher is copied into the pod. docs/integrations.md has what this leaves open.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.cluster import Cluster
from tests.support.cluster.injector import Manifest, injected
from tests.support.cluster.training import Training, condition, example

NAME = "istio-proxy"
# It goes on until it is killed, and ignores that it is asked to end: the worst side-car.
PROGRAM = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(60)"
GRACE_SECONDS = 5


@pytest.fixture(params=["injected", "native"])
def native(request: pytest.FixtureRequest) -> bool:
    """Whether the side-car is an init container that stays."""
    found: bool = request.param == "native"
    return found


@pytest.fixture
def pods(cluster: Cluster, namespace: str, native: bool, tmp_path: Path) -> Iterator[list[str]]:
    """The names of all pods of the namespace, each of which has the side-car."""
    if cluster.nodes is None:
        pytest.skip("the API server of a given cluster does not reach this machine")
    proxy: Manifest = {
        "name": NAME,
        "image": cluster.images[1],
        "command": ["python", "-c", PROGRAM],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    proxy |= {"restartPolicy": "Always"} if native else {}
    field = "initContainers" if native else "containers"
    with injected(cluster.kube, cluster.nodes, namespace, field, proxy, tmp_path) as names:
        yield names


@pytest.mark.slow_fault
def test_a_side_car_in_every_pod_neither_disturbs_the_training_nor_delays_its_end(
    cluster: Cluster, operator: object, namespace: str, directory: Path, native: bool, pods: list[str]
) -> None:
    manifest = example(cluster.images[1], "--epochs=8", "--steps-per-epoch=60")
    manifest["metadata"]["namespace"] = namespace
    manifest["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = GRACE_SECONDS
    cluster.kube.apply(manifest)
    training = Training(cluster.kube, namespace, manifest["metadata"]["name"])

    training.wait_for_line("worker-0", "^epoch 2/8 ", 180)
    assert all("running" in side_car(training, replica, native)["state"] for replica in ("worker-0", "worker-1"))
    cluster.kill(namespace, training.pod("worker-0"), container=NAME)
    training.wait_for("without its side-car", lambda _: has_died(side_car(training, "worker-0", native)), 30)
    training.kill_program("worker-1")

    status = training.wait_for_phase("Succeeded", 300)
    assert (status["restarts"]["counted"], status["restarts"]["inPlace"]) == (1, 1), status
    restart = status["lastRestart"]
    assert restart["pod"] == training.pod("worker-1") and restart["resumedFromEpoch"] > 0, status
    training.wait_for("cleaned up", lambda now: condition(now, "Cleaned") == "True", 120)
    # Kubernetes calls the pod of a classical side-car that was killed Failed.
    training.wait_for("over in all pods", lambda _: phases(training) <= {"Succeeded", "Failed"}, 60)
    assert {training.pod("worker-0"), training.pod("worker-1")} < set(pods), "the cleanup pod has the side-car, too"


def side_car(training: Training, replica: str, native: bool) -> Manifest:
    """What the kubelet says of the side-car in a replica's pod."""
    pod = training.kube.get("pod", training.pod(replica), "--namespace", training.namespace)
    statuses = pod["status"]["initContainerStatuses" if native else "containerStatuses"]
    (found,) = (each for each in statuses if each["name"] == NAME)
    return dict(found)


def has_died(state: Manifest) -> bool:
    """Whether the side-car was killed, and started again if it is a native one."""
    return "terminated" in state["state"] or state["restartCount"] > 0


def phases(training: Training) -> set[str]:
    """The phases of the pods of the job that are left."""
    items = training.kube.get("pods", "--namespace", training.namespace, "--selector", training.selector)["items"]
    return {pod["status"]["phase"] for pod in items}
