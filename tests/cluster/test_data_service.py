"""The servers of tf.data service as pods, and a training that shares them, each with its manifest as it is written.

One server and one program are killed in between.
"""

import json
from pathlib import Path

import pytest
import yaml

from testbed.cluster import Cluster
from tests.support.client.false_alarms import false_alarms
from tests.support.cluster.training import Training
from tests.support.repository import REPOSITORY

MANIFESTS = REPOSITORY / "examples" / "data-service"
START_SECONDS = 900
TRAIN_SECONDS = 900


@pytest.mark.slow_fault
def test_two_workers_train_on_the_batches_of_one_service(
    cluster: Cluster, operator: object, namespace: str, directory: Path
) -> None:
    objects = [
        each for name in ("servers", "job") for each in yaml.safe_load_all((MANIFESTS / f"{name}.yaml").read_text())
    ]
    for each in objects:
        each["metadata"]["namespace"] = namespace
        for container in each["spec"].get("template", {}).get("spec", {}).get("containers", []):
            container["image"] = cluster.images[1]
    cluster.kube.apply(*objects)
    training = Training(cluster.kube, namespace, objects[-1]["metadata"]["name"])
    training.wait_for_line("worker-0", r"^epoch 2/", START_SECONDS)
    server, *_ = cluster.kube.kubectl(
        "get", "pods", "--namespace", namespace, "--selector=app=data-service-worker", "--output=name"
    ).split()
    cluster.kube.kubectl("delete", server, "--namespace", namespace, "--wait=false")
    training.wait_for_line("worker-0", r"^epoch 4/", START_SECONDS)
    training.kill_program("worker-1")
    training.wait_for_phase("Succeeded", TRAIN_SECONDS)
    result = json.loads((directory / training.name / "result.json").read_text())
    assert result["resumed_from"] >= 3, result
    assert result["accuracy"] > 0.85, result
    assert false_alarms(training.log("worker-0") + training.log("worker-1")) == []
    told = [each["type"] for each in training.status()["conditions"] if each["status"] == "True"]
    assert not {"NoProgress", "TrainsAlone", "ResumedTrainingDiffers"} & {*told}, told
