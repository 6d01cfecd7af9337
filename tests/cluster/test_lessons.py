"""The lessons on real nodes, each with its manifest as it is written, and with its program killed."""

from pathlib import Path

import pytest

from testbed.cluster import Cluster
from tests.support.cluster.training import Training, condition
from tests.support.trainer.lessons import ACCURACY, FOURTH_EPOCH, LESSONS, manifest

START_SECONDS = 180
TRAIN_SECONDS = 400


@pytest.mark.slow_fault
@pytest.mark.parametrize("name", LESSONS)
def test_it_runs_as_written_and_survives_a_kill(
    cluster: Cluster, operator: object, namespace: str, directory: Path, name: str
) -> None:
    lesson, job = LESSONS[name], manifest(name)
    job["metadata"]["namespace"] = namespace
    job["spec"]["template"]["spec"]["containers"][0]["image"] = cluster.images[1]
    cluster.kube.apply(job)
    training = Training(cluster.kube, namespace, job["metadata"]["name"])
    training.wait_for_line("worker-0", rf"^{FOURTH_EPOCH}", START_SECONDS)
    training.kill_program(lesson.victim)
    status = training.wait_for_phase("Succeeded", TRAIN_SECONDS)
    assert status["restarts"]["counted"] == status["restarts"]["inPlace"] == 1, status
    log = training.log("worker-0")
    assert "resumed after epoch" in log or status["lastRestart"]["resumedFromEpoch"] > 0, log
    assert float(ACCURACY.findall(log)[-1]) > lesson.good, log
    training.wait_for("cleaned up", lambda now: condition(now, "Cleaned") == "True", 120)
    assert (directory / training.name / lesson.saved).exists()
    assert not list(directory.rglob("workertemp_*"))
