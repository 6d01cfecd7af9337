"""The manifests of the other training programs on real nodes, as they are written, each with its program killed.

The workers that `fit` are in `test_training.py`, the parameter servers and the evaluator in `test_roles.py`.
"""

import json
from pathlib import Path

import pytest
import yaml

from testbed.cluster import Cluster
from tests.support.cluster.training import Training, condition
from tests.support.repository import REPOSITORY

START_SECONDS = 900
TRAIN_SECONDS = 900
# Who is killed, after which line of the chief, and what accuracy of the test the program reaches all the same.
PROGRAMS = {
    "multi-worker-custom-loop": ("worker-1", r"^epoch 3/", 0.9),
    "mirrored-custom-loop": ("worker-0", r"^epoch 4/", 0.9),
    "dtensor-mlp": ("worker-0", r"^epoch 4/", 0.9),
    "transfer-learning": ("worker-0", r"^epoch 3/", 0.8),
    # Thirty steps: it learns its pictures, not those of the test.
    "resnet50": ("worker-1", r"^epoch 2/", 0.0),
}


@pytest.mark.slow_fault
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_runs_as_written_and_survives_a_kill(
    cluster: Cluster, operator: object, namespace: str, directory: Path, name: str
) -> None:
    victim, line, good = PROGRAMS[name]
    manifest = yaml.safe_load((REPOSITORY / "examples" / f"{name}.yaml").read_text())
    manifest["metadata"]["namespace"] = namespace
    manifest["spec"]["template"]["spec"]["containers"][0]["image"] = cluster.images[1]
    cluster.kube.apply(manifest)
    training = Training(cluster.kube, namespace, manifest["metadata"]["name"])
    training.wait_for_line("worker-0", line, START_SECONDS)
    training.kill_program(victim)
    status = training.wait_for_phase("Succeeded", TRAIN_SECONDS)
    assert status["restarts"]["counted"] == status["restarts"]["inPlace"] == 1, status
    assert status["lastRestart"]["resumedFromEpoch"] > 0, status
    result = json.loads((directory / training.name / "result.json").read_text())
    assert result["accuracy"] > good and 0 < result["resumed_from"] < result["epochs"], result
    curves = json.loads((directory / training.name / "history.json").read_text())
    assert len(curves) == result["epochs"] and curves[-1]["accuracy"] > curves[0]["accuracy"], curves
    training.wait_for("cleaned up", lambda now: condition(now, "Cleaned") == "True", 120)
    assert not list(directory.rglob("workertemp_*"))
