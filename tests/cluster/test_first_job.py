"""examples/first-job.yaml as it is written: one command, the image of TensorFlow, a claim of the default class."""

from collections.abc import Iterator

import pytest
import yaml

from testbed import local_path, release, stock_image
from testbed.cluster import Cluster
from tests.support.cluster.training import Training, condition
from tests.support.repository import REPOSITORY

FIRST_JOB = REPOSITORY / "examples" / "first-job.yaml"
NAME = "first-job"


@pytest.fixture
def provisioner(cluster: Cluster) -> Iterator[str]:
    """The name of the provisioner of the default StorageClass.

    On nodes that are built here kind makes a class of `kubernetes.io/host-path`, to whose volumes only root may write.
    They get the provisioner that the official nodes have.
    """
    if cluster.nodes is not None and default_provisioner(cluster) == "kubernetes.io/host-path":
        with local_path.provisioner(cluster.kube, cluster.nodes.engine, cluster.nodes.workers()):
            yield default_provisioner(cluster)
    elif found := default_provisioner(cluster):
        yield found
    else:
        pytest.skip("the cluster has no default StorageClass")


def default_provisioner(cluster: Cluster) -> str:
    """What provisions the claims that name no class, by the newest default class; empty if there is none."""
    metadata = [(each["metadata"], each["provisioner"]) for each in cluster.kube.get("storageclasses")["items"]]
    default = {
        each["creationTimestamp"]: name
        for each, name in metadata
        if (each.get("annotations") or {}).get(local_path.DEFAULT_CLASS) == "true"
    }
    return default[max(default)] if default else ""


@pytest.mark.slow_fault
def test_the_first_job_trains_as_it_is_written_and_resumes(
    cluster: Cluster, operator: object, namespace: str, provisioner: str
) -> None:
    if cluster.nodes is not None:
        stock_image.load(cluster.nodes.engine, cluster.nodes.workers(), cluster.images[1])
    here = ("--namespace", namespace)
    cluster.kube.kubectl("apply", *here, "--filename", str(FIRST_JOB))
    training = Training(cluster.kube, namespace, NAME)
    training.wait_for_line("worker-0", "^epoch 3/30", 240)
    pods = cluster.kube.get("pods", *here, "--selector", training.selector)["items"]
    assert {pod["spec"]["containers"][0]["image"] for pod in pods} == {stock_image.NAME}
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 1, "a ReadWriteOnce volume is on one node"
    volume = cluster.kube.get("persistentvolumeclaim", NAME, *here)["spec"]["volumeName"]
    made_by = cluster.kube.get("persistentvolume", volume)["metadata"]["annotations"]
    assert made_by["pv.kubernetes.io/provisioned-by"] == provisioner
    training.kill_program("worker-1")
    status = training.wait_for_phase("Succeeded", 300)
    assert status["lastRestart"]["resumedFromEpoch"] >= 3, status
    assert status["progress"]["metrics"]["loss"] < 0.2, status
    training.wait_for("cleaned up", lambda now: condition(now, "Cleaned") == "True", 120)
    cluster.kube.kubectl("delete", *here, "--filename", str(FIRST_JOB), "--timeout=120s")
    cluster.kube.kubectl("wait", "--for=delete", f"persistentvolume/{volume}", "--timeout=120s")


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
