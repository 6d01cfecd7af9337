"""A program without an image (spec.code) on real nodes: restarts and new pods run the submitted code."""

import hashlib
import os
import time
from pathlib import Path
from typing import Any

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


# The first program of the job fails, so that the second one is a restart.
LARGE_PROGRAM = """
import hashlib, os, sys
print(hashlib.sha256(open("noise.bin", "rb").read()).hexdigest(), "round", os.environ["TFTRAINING_ROUND"], flush=True)
sys.exit(os.environ["TFTRAINING_ROUND"] == "1")
"""


def submitted(cluster: Cluster, namespace: str, source: Path, storage: Any = None) -> Training:
    """A job of two workers that runs `train.py` of the directory."""
    manifest = example(cluster.images[1])
    manifest["metadata"]["namespace"] = namespace
    manifest["spec"]["storage"] = storage
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    container = {"name": "tensorflow", "image": container["image"], "command": ["python", "train.py"]}
    manifest["spec"]["template"]["spec"]["containers"] = [container]
    with Client(kubeconfig=str(cluster.kube.kubeconfig), namespace=namespace) as client:
        return Training(cluster.kube, namespace, client.submit(manifest, code=source).name)


def test_a_program_too_large_for_a_config_map_goes_through_the_storage(
    cluster: Cluster, operator: object, namespace: str, directory: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(LARGE_PROGRAM)
    noise = os.urandom(8 << 20)
    (tmp_path / "noise.bin").write_bytes(noise)
    package = pack(tmp_path)
    began = time.monotonic()
    training = submitted(cluster, namespace, tmp_path, {"volume": {"persistentVolumeClaim": {"claimName": "training"}}})
    print("TIME submitted", time.monotonic() - began)
    (tmp_path / "noise.bin").write_bytes(b"changed")
    code = training.job()["spec"]["code"]
    assert code["digest"] == package.digest
    assert (directory / code["storage"]["path"]).read_bytes() == package.data
    pods = cluster.kube.get("pods", "--namespace", namespace, "--selector", "app.kubernetes.io/name=code-upload")
    assert [each for each in pods["items"] if "deletionTimestamp" not in each["metadata"]] == []
    line = f"^{hashlib.sha256(noise).hexdigest()} round 2$"
    training.wait_for_line("worker-0", line, START_SECONDS)
    print("TIME line", time.monotonic() - began)
    status = training.wait_for_phase("Succeeded", START_SECONDS)
    print("TIME end", time.monotonic() - began, training.job())
    assert status["code"] == {"digest": package.digest}


@pytest.mark.slow_fault
def test_a_restart_and_a_new_pod_run_the_submitted_code(
    cluster: Cluster, operator: object, namespace: str, tmp_path: Path
) -> None:
    source = tmp_path / "program"
    (source / "lib").mkdir(parents=True)
    (source / "train.py").write_text(PROGRAM)
    (source / "lib" / "model.py").write_text("NAME = 'submitted'")
    digest = pack(source).digest
    training = submitted(cluster, namespace, source)
    (source / "lib" / "model.py").write_text("NAME = 'changed'")
    training.wait_for_line("worker-1", r"^submitted in /opt/tftraining-code round 1$", START_SECONDS)
    training.delete("worker-1")
    training.wait_for_line("worker-1", r"^submitted in /opt/tftraining-code round 2$", START_SECONDS)
    training.wait_for_line("worker-0", r"^submitted in /opt/tftraining-code round 2$", START_SECONDS)
    status = training.wait_for_phase("Succeeded", START_SECONDS)
    assert status["code"] == {"digest": digest}
