"""TensorFlow's tutorial "Multi-worker training with Keras" on real nodes, as a user copies it, with a kill."""

import re
import shutil
from pathlib import Path

import pytest

from testbed.cluster import Cluster
from tests.support.cluster.training import Training, example
from tests.support.repository import REPOSITORY
from tests.support.trainer import tutorials

PROGRAM = REPOSITORY / "tests" / "support" / "trainer" / "tutorial_fit.py"
SECONDS = 900


@pytest.mark.slow_fault
def test_it_comes_to_the_accuracy_of_an_undisturbed_training(
    cluster: Cluster, operator: object, namespace: str, directory: Path
) -> None:
    """The chief is killed in the third epoch of all workers."""
    tutorials.write_pictures(directory / "pictures.npz")
    shutil.copy(PROGRAM, directory)
    for each in directory.glob("*.*"):
        each.chmod(0o644)
    job = example(cluster.images[1])
    job["metadata"]["namespace"] = namespace
    container = job["spec"]["template"]["spec"]["containers"][0]
    container["command"] = ["python", f"/training/{PROGRAM.name}"]
    container["env"] = [{"name": "MNIST", "value": "/training/pictures.npz"}]
    cluster.kube.apply(job)
    training = Training(cluster.kube, namespace, job["metadata"]["name"])
    training.wait_for_line("worker-1", r"is patched for 2 workers(.|\n)*^Epoch 3/3", SECONDS)
    training.kill_program("worker-0")
    status = training.wait_for_phase("Succeeded", SECONDS)
    assert status["keras"] == "Own"
    assert status["restarts"]["counted"] == status["restarts"]["inPlace"] == 1, status
    assert re.search(r"^tftraining: resumed from memory at epoch \d, step \d+", training.log("worker-0"), re.MULTILINE)
    tutorials.check(training.log("worker-1"))
