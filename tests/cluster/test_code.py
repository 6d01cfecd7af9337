"""A program without an image (spec.code) on real nodes: restarts and new pods run the submitted code."""

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


@pytest.mark.slow_fault
def test_a_restart_and_a_new_pod_run_the_submitted_code(
    cluster: Cluster, operator: object, namespace: str, tmp_path: Path
) -> None:
    source = tmp_path / "program"
    (source / "lib").mkdir(parents=True)
    (source / "train.py").write_text(PROGRAM)
    (source / "lib" / "model.py").write_text("NAME = 'submitted'")
    digest = pack(source).digest
    manifest = example(cluster.images[1])
    manifest["spec"].pop("storage", None)
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    manifest["spec"]["template"]["spec"]["containers"][0] = {
        "name": "tensorflow",
        "image": container["image"],
        "command": ["python", "train.py"],
    }
    with Client(kubeconfig=str(cluster.kube.kubeconfig), namespace=namespace) as client:
        manifest["metadata"]["namespace"] = namespace
        name = client.submit(manifest, code=source).name
    (source / "lib" / "model.py").write_text("NAME = 'changed'")
    training = Training(cluster.kube, namespace, name)
    training.wait_for_line("worker-1", r"^submitted in /opt/tftraining-code round 1$", START_SECONDS)
    training.delete("worker-1")
    training.wait_for_line("worker-1", r"^submitted in /opt/tftraining-code round 2$", START_SECONDS)
    training.wait_for_line("worker-0", r"^submitted in /opt/tftraining-code round 2$", START_SECONDS)
    status = training.wait_for_phase("Succeeded", START_SECONDS)
    assert status["code"] == {"digest": digest}
