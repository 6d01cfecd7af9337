"""examples/first-job.yaml as it is written: one command, the image of TensorFlow, a claim of the default class."""

from collections.abc import Iterator

import pytest
import yaml

from testbed import release, stock_image
from testbed.cluster import Cluster
from tests.support.cluster.training import Training, condition, local_storage
from tests.support.repository import REPOSITORY

FIRST_JOB = REPOSITORY / "examples" / "first-job.yaml"
NAME = "first-job"


@pytest.fixture
def default_class(cluster: Cluster, namespace: str) -> Iterator[None]:
    """A volume for the claim on the nodes that are built here.

    The provisioner of the default class there is `kubernetes.io/host-path`. Its volumes are directories that only root
    may write to, and the kubelet applies no `fsGroup` to them. To a `local` volume of the same class it does.
    """
    classes = cluster.kube.get("storageclasses")["items"]
    default = "storageclass.kubernetes.io/is-default-class"
    marked = [each for each in classes if (each["metadata"].get("annotations") or {}).get(default) == "true"]
    if marked and marked[0]["provisioner"] != "kubernetes.io/host-path":
        yield
        return
    if cluster.shared is None:
        pytest.skip("the cluster has no default StorageClass whose volumes a user that is not root can write to")
    volume, _ = local_storage(namespace, NAME)
    volume["spec"]["accessModes"] = ["ReadWriteOnce"]
    volume["spec"]["storageClassName"] = marked[0]["metadata"]["name"] if marked else ""
    name = volume["metadata"]["name"]
    (cluster.shared / name).mkdir(mode=0o755)
    cluster.kube.apply(volume)
    yield
    cluster.kube.kubectl("delete", "persistentvolume", name, "--wait=false")


@pytest.mark.slow_fault
def test_the_first_job_trains_as_it_is_written_and_resumes(
    cluster: Cluster, operator: object, namespace: str, default_class: None
) -> None:
    if cluster.nodes is not None:
        stock_image.load(cluster.nodes, cluster.images[1])
    cluster.kube.kubectl("apply", "--namespace", namespace, "--filename", str(FIRST_JOB))
    training = Training(cluster.kube, namespace, NAME)
    training.wait_for_line("worker-0", "^epoch 3/30", 240)
    pods = cluster.kube.get("pods", "--namespace", namespace, "--selector", training.selector)["items"]
    assert {pod["spec"]["containers"][0]["image"] for pod in pods} == {stock_image.NAME}
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 1, "a ReadWriteOnce volume is on one node"
    training.kill_program("worker-1")
    status = training.wait_for_phase("Succeeded", 300)
    assert status["lastRestart"]["resumedFromEpoch"] >= 3, status
    assert status["progress"]["metrics"]["loss"] < 0.2, status
    training.wait_for("cleaned up", lambda now: condition(now, "Cleaned") == "True", 120)


@pytest.mark.slow_fault
@pytest.mark.parametrize("program", ["helm", "helm4"])
def test_helm_test_runs_a_job(program: str, cluster: Cluster, operator: str) -> None:
    # Each Helm also upgrades what the other one installed, here to the same pods.
    upgrade = ("upgrade", release.NAME, release.CHART, "--reuse-values", *release.WAIT)
    assert "STATUS: deployed" in release.helm(cluster.kube, *upgrade, program=program)
    told = release.helm(cluster.kube, "test", release.NAME, "--logs", "--timeout", "5m", program=program)
    assert "Phase:          Succeeded" in told
    assert "Succeeded: " in told
    assert cluster.kube.get("tftrainingjobs", "--namespace", operator)["items"] == [], "hooks that succeed are deleted"


def test_the_example_names_the_image_that_the_test_has() -> None:
    *_, job = yaml.safe_load_all(FIRST_JOB.read_text(encoding="utf-8"))
    assert job["spec"]["template"]["spec"]["containers"][0]["image"] == stock_image.NAME
