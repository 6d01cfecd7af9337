"""A program without an image (spec.code) on real nodes: restarts and new pods run the submitted code."""

import os
from pathlib import Path

import pytest

from testbed.cluster import Cluster
from tests.support.cluster.training import Training, example
from tftraining_client import Client
from tftraining_client.code import pack

START_SECONDS = 180
PROGRAM = """
import os, time
from lib.model import NAME
print(NAME, "in", os.getcwd(), "round", os.environ["TFTRAINING_ROUND"], flush=True)
time.sleep(20 if os.environ["TFTRAINING_ROUND"] != "1" else 600)
"""


STORAGE = {"volume": {"persistentVolumeClaim": {"claimName": "training"}}}


def submitted(cluster: Cluster, namespace: str, source: Path, suspended: bool = False) -> Training:
    """A job of two workers that runs `train.py` of the directory."""
    manifest = example(cluster.images[1], storage=STORAGE, **({"runPolicy": {"suspend": True}} if suspended else {}))
    manifest["metadata"]["namespace"] = namespace
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    container = {"name": "tensorflow", "image": container["image"], "command": ["python", "train.py"]}
    manifest["spec"]["template"]["spec"]["containers"] = [container]
    with Client(kubeconfig=str(cluster.kube.kubeconfig), namespace=namespace) as client:
        return Training(cluster.kube, namespace, client.submit(manifest, code=source).name)


def test_a_program_too_large_for_a_config_map_goes_through_the_storage(
    cluster: Cluster, operator: object, namespace: str, directory: Path, tmp_path: Path
) -> None:
    """The job stays suspended: that its pods unpack the archive is a test of its own below."""
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "noise.bin").write_bytes(os.urandom(8 << 20))
    package = pack(tmp_path)
    training = submitted(cluster, namespace, tmp_path, suspended=True)
    code = training.job()["spec"]["code"]
    assert code["digest"] == package.digest
    assert (directory / code["storage"]["path"]).read_bytes() == package.data
    pods = cluster.kube.get("pods", "--namespace", namespace, "--selector", "app.kubernetes.io/name=files")
    assert all(each["metadata"].get("deletionTimestamp") for each in pods["items"])


@pytest.mark.slow_fault
@pytest.mark.parametrize("noise", [0, 2 << 20], ids=["config map", "storage"])
def test_a_restart_and_a_new_pod_run_the_submitted_code(
    cluster: Cluster, operator: object, namespace: str, directory: Path, tmp_path: Path, noise: int
) -> None:
    source = tmp_path / "program"
    (source / "lib").mkdir(parents=True)
    (source / "train.py").write_text(PROGRAM)
    (source / "lib" / "model.py").write_text("NAME = 'submitted'")
    (source / "noise.bin").write_bytes(os.urandom(noise))
    digest = pack(source).digest
    training = submitted(cluster, namespace, source)
    assert ("storage" in training.job()["spec"]["code"]) == bool(noise)
    (source / "lib" / "model.py").write_text("NAME = 'changed'")
    training.wait_for_line("worker-1", r"^submitted in /opt/tftraining-code round 1$", START_SECONDS)
    training.delete("worker-1")
    training.wait_for_line("worker-1", r"^submitted in /opt/tftraining-code round 2$", START_SECONDS)
    training.wait_for_line("worker-0", r"^submitted in /opt/tftraining-code round 2$", START_SECONDS)
    status = training.wait_for_phase("Succeeded", START_SECONDS)
    assert status["code"] == {"digest": digest}


@pytest.mark.slow_fault
def test_the_image_can_fetch_a_commit_and_tells_why_it_cannot(
    cluster: Cluster, operator: object, namespace: str
) -> None:
    """The image trusts no server of the test cluster, so the fetch itself is tested elsewhere."""
    manifest = example(cluster.images[1], restartPolicy={"maxRestarts": 0})
    del manifest["spec"]["storage"]
    with Client(kubeconfig=str(cluster.kube.kubeconfig), namespace=namespace) as client:
        name = client.submit(manifest, git=f"https://git.invalid/a.git@{'0' * 40}").name
    training = Training(cluster.kube, namespace, name)
    status = training.wait_for("a failed fetch", lambda now: "cannot fetch 000" in str(now), START_SECONDS)
    assert "git.invalid" in str(status) and "needs the program git" not in str(status)
