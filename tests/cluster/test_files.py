"""`tftj cp` and `tftj ls` on real kubelets: data in while a job runs, its model out when it has ended, over a claim
that one node has at a time."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.cluster import Cluster
from tests.support.cluster.training import Training, example, local_storage

START_SECONDS = 180
COMMAND_SECONDS = 60
MODEL = os.urandom(1 << 20)
# It trains as soon as the data is there.
PROGRAM = """
import os, pathlib, time
directory = pathlib.Path(os.environ["TFTRAINING_DIR"])
print("waits in", directory, flush=True)
while not (directory / "data/last").exists():
    time.sleep(0.1)
(directory / "models").mkdir()
(directory / "models/final.keras").write_bytes((directory / "data/noise.bin").read_bytes()[: 1 << 20])
"""


@pytest.fixture
def directory(cluster: Cluster, namespace: str) -> Iterator[Path]:
    """Give the directory of a ReadWriteOnce volume, which is bound to the claim `training` of the namespace."""
    if cluster.shared is None:
        pytest.skip("only the lab's own nodes share a directory")
    volume, claim = local_storage(namespace)
    for each in (volume, claim):
        each["spec"]["accessModes"] = ["ReadWriteOnce"]
    directory = cluster.shared / volume["metadata"]["name"]
    directory.mkdir(mode=0o755)
    cluster.kube.apply(volume, claim)
    yield directory
    cluster.kube.kubectl("delete", "persistentvolume", volume["metadata"]["name"], "--wait=false")


def waiting(cluster: Cluster, namespace: str) -> Training:
    """A job of one worker that waits for its data."""
    storage = {"volume": {"persistentVolumeClaim": {"claimName": "training"}}}
    manifest = example(cluster.images[1], storage=storage, replicaSpecs={"worker": {"replicas": 1}})
    manifest["metadata"] = {"name": "digits", "namespace": namespace}
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    container = {"name": "tensorflow", "image": container["image"], "command": ["python", "-c", PROGRAM]}
    manifest["spec"]["template"]["spec"]["containers"] = [container]
    cluster.kube.apply(manifest)
    return Training(cluster.kube, namespace, "digits")


def started(training: Training, *words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tftraining_client", *words, "--namespace", training.namespace]
    environment = {**os.environ, "KUBECONFIG": str(training.kube.kubeconfig)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def said(training: Training, *words: str) -> str:
    """What the command prints."""
    process = started(training, *words)
    out, told = process.communicate(timeout=COMMAND_SECONDS)
    assert process.returncode == 0, told
    return out


def node_of(training: Training, *selector: str) -> str:
    (pod,) = training.kube.get("pods", "--namespace", training.namespace, *selector)["items"]
    return str(pod["spec"]["nodeName"])


def interrupt(training: Training, directory: Path, *words: str) -> Path:
    """Press Ctrl-C in the middle of a copy; what has arrived of it."""
    process, deadline = started(training, *words), time.monotonic() + COMMAND_SECONDS
    try:
        while not (parts := [each for each in directory.rglob(".tftj-*.part") if each.stat().st_size > 1 << 20]):
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()
            time.sleep(0.02)
        process.send_signal(signal.SIGSTOP)
        where = node_of(training, "--selector=app.kubernetes.io/name=files")
        assert where == node_of(training, "--selector=tftraining.dev/job-name=digits"), "the claim is on one node"
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)
        _, told = process.communicate(timeout=COMMAND_SECONDS)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, "Traceback" in told) == (130, False), told
    pods = training.kube.get("pods", "--namespace", training.namespace, "--selector=app.kubernetes.io/name=files")
    assert all(each["metadata"].get("deletionTimestamp") for each in pods["items"])
    return parts[0]


def test_data_goes_in_and_the_model_comes_out(
    cluster: Cluster, operator: object, namespace: str, directory: Path, tmp_path: Path
) -> None:
    training = waiting(cluster, namespace)
    data = tmp_path / "data"
    (data / "empty").mkdir(parents=True)
    noise = MODEL + bytes(63 << 20)
    (data / "noise.bin").write_bytes(noise)
    (data / "last").touch()
    training.wait_for_line("worker-0", "^waits in /training/digits$", START_SECONDS)

    part = interrupt(training, directory, "cp", str(data / "noise.bin"), "digits:data/")
    arrived = part.stat().st_size
    assert 0 < arrived < len(noise)
    with part.open("r+b") as file:
        file.write(b"another user's bytes")
    assert said(training, "cp", str(data / "noise.bin"), "digits:data/") == "1 file (64.0 MiB) copied to digits:data/\n"
    assert (directory / "digits/data/noise.bin").read_bytes() == noise and not part.exists()

    assert said(training, "cp", f"{data}/.", "digits:data") == "2 files (64.0 MiB) copied to digits:data\n"
    assert (directory / "digits/data/empty").is_dir()
    training.wait_for_phase("Succeeded", START_SECONDS)
    listed = json.loads(said(training, "ls", "digits:models", "-o", "json"))
    assert [(each["name"], each["size"]) for each in listed["files"]] == [("final.keras", len(MODEL))]
    out = tmp_path / "final.keras"
    assert (
        said(training, "cp", "digits:models/final.keras", str(tmp_path)) == f"1 file (1.0 MiB) copied to {tmp_path}\n"
    )
    assert out.read_bytes() == MODEL
