"""A newcomer's program whose save fails after `fit`, in pods: no epoch is trained twice, and nothing is left behind."""

import json
import shutil
from pathlib import Path

import pytest

from testbed.cluster import Cluster
from tests.support.cluster.training import Training, condition, example
from tests.support.repository import REPOSITORY

START_SECONDS = 180
TRAIN_SECONDS = 300
EPOCHS = 4  # of tests/support/newcomer.py


@pytest.mark.slow_fault
def test_a_save_that_fails_in_one_pod_costs_no_epoch(
    cluster: Cluster, operator: object, namespace: str, directory: Path
) -> None:
    place = directory / "digits"
    place.mkdir()
    place.chmod(0o777)
    shutil.copy(REPOSITORY / "tests" / "newcomer.py", place / "train.py")
    manifest = example(cluster.images[1], successPolicy="AllWorkers")
    manifest["metadata"]["namespace"] = namespace
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    container["command"] = ["python", "$(TFTRAINING_DIR)/train.py"]
    cluster.kube.apply(manifest)
    training = Training(cluster.kube, namespace, "digits")
    training.wait_for("restarted twice", lambda now: now.get("restarts", {}).get("inPlace", 0) >= 2, START_SECONDS)
    (place / "workertemp_1").mkdir()
    (place / "workertemp_1").chmod(0o777)
    status = training.wait_for_phase("Succeeded", TRAIN_SECONDS)
    assert status["restarts"]["counted"] == status["restarts"]["inPlace"] >= 2, status
    assert status["lastRestart"].get("resumedFromEpoch") in (None, EPOCHS), "the last round is shorter than a look"
    assert not status["lastRestart"].get("lostSteps"), status
    for worker in range(2):
        epochs = [int(line) for line in (place / f"epochs-{worker}").read_text().split()]
        assert epochs == list(range(EPOCHS)), "each epoch once"
        ends = [json.loads(line) for line in (place / f"ends-{worker}").read_text().splitlines()]
        assert len(ends) >= 3 and all(end == ends[0] for end in ends), ends
    training.wait_for("cleaned up", lambda now: condition(now, "Cleaned") == "True", 120)
    assert [each for each in place.rglob("*") if "finished" in each.name or "workertemp" in each.name] == []
