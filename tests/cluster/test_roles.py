"""Roles that restart alone, and a program that needs more memory than it has: real kubelets, real TensorFlow."""

import json
from pathlib import Path

import pytest
import yaml

from testbed.cluster import Cluster
from tests.support.cluster.training import Manifest, Training, example
from tests.support.repository import REPOSITORY

START_SECONDS = 180
TRAIN_SECONDS = 300
# Trains as ever; in worker 1, once, a thread takes all the memory that it can get as soon as a file is there.
GREEDY = """
import json, os, pathlib, sys, threading, time
from tftraining.examples import multi_worker_mnist
def eat():
    sign = pathlib.Path(os.environ["TFTRAINING_DIR"], "eat")
    while not sign.exists():
        time.sleep(0.1)
    sign.unlink()
    hoard = []
    while True:
        hoard.append(b"x" * (64 << 20))
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
    threading.Thread(target=eat, daemon=True).start()
sys.exit(multi_worker_mnist.main())
"""


def _start(cluster: Cluster, namespace: str, manifest: Manifest) -> Training:
    manifest["metadata"]["namespace"] = namespace
    manifest["spec"]["template"]["spec"]["containers"][0]["image"] = cluster.images[1]
    cluster.kube.apply(manifest)
    return Training(cluster.kube, namespace, manifest["metadata"]["name"])


def _read(name: str) -> Manifest:
    manifest: Manifest = yaml.safe_load((REPOSITORY / "examples" / name).read_text())
    return manifest


@pytest.mark.slow_fault
def test_a_worker_of_parameter_servers_restarts_alone(
    cluster: Cluster, operator: object, namespace: str, directory: Path
) -> None:
    training = _start(cluster, namespace, _read("parameter-server.yaml"))
    training.wait_for_line("chief-0", r"^epoch 2/", START_SECONDS)
    pods = training.uids()
    training.kill_program("worker-1")
    status = training.wait_for_phase("Succeeded", TRAIN_SECONDS)
    assert (status["restarts"]["counted"], status["restarts"]["inPlace"]) == (1, 1), status
    assert (status["lastRestart"]["pod"], status["lastRestart"]["alone"]) == (training.pod("worker-1"), True), status
    assert training.uids() == pods
    assert "resumed from" not in training.log("chief-0")
    assert json.loads((directory / "digits-ps" / "result.json").read_text())["accuracy"] > 0.85


@pytest.mark.slow_fault
def test_an_evaluator_restarts_alone_and_sees_the_last_checkpoint(
    cluster: Cluster, operator: object, namespace: str, directory: Path
) -> None:
    manifest = _read("multi-worker-evaluator.yaml")
    manifest["spec"]["runPolicy"]["evaluatorGraceSeconds"] = 120
    training = _start(cluster, namespace, manifest)
    training.wait_for_line("worker-0", r"^epoch 2/", START_SECONDS)
    pods = training.uids()
    training.kill_program("evaluator-0")
    status = training.wait_for_phase("Succeeded", TRAIN_SECONDS)
    assert (status["restarts"]["counted"], training.uids()) == (0, pods), status
    assert "resumed from" not in training.log("worker-0")
    evaluation = directory / training.name / "evaluation.json"
    training.wait_for("evaluated to the end", lambda _: '"epoch": 10' in evaluation.read_text(), 150)


@pytest.mark.slow_fault
def test_too_little_memory_is_named(cluster: Cluster, operator: object, namespace: str, directory: Path) -> None:
    manifest = example(cluster.images[1])
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    container["command"] = ["python", "-c", GREEDY, "--epochs=6", "--directory=$(TFTRAINING_DIR)"]
    training = _start(cluster, namespace, manifest)
    training.wait_for_line("worker-0", r"^epoch 2/", START_SECONDS)
    (directory / "digits" / "eat").touch()
    status = training.wait_for_phase("Succeeded", TRAIN_SECONDS)
    assert status["restarts"]["counted"] == 1, status
    last = status["lastRestart"]
    assert (last["pod"], last["reason"]) == (training.pod("worker-1"), "OOMKilled"), status
    assert last["resumedFromEpoch"] > 0, status
