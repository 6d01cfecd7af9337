"""Objects that look like the job's own and are not."""

import copy
from typing import Any

import pytest

from tests.support.simulated_cluster.builders import a_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tftraining_api.model.spec import Manifest
from tftraining_operator.model.observed import owned_by, parse_pod

NOT_OURS: dict[str, list[Manifest]] = {
    "another job": [{"kind": "TFTrainingJob", "name": "mnist", "uid": "another-uid", "controller": True}],
    "not the controller": [{"kind": "TFTrainingJob", "name": "mnist", "uid": "job-uid"}],
    "nobody": [],
}


def impostor(cluster: SimulatedCluster, name: str, **metadata: Any) -> Manifest:
    """A copy of the pod of worker 0 under another name."""
    pod = copy.deepcopy(cluster.api.pods["mnist-worker-0"])
    pod["metadata"] |= {"name": name, "uid": f"uid-of-{name}"} | metadata
    cluster.api.pods[name] = pod
    return pod


@pytest.mark.parametrize("owners", NOT_OURS.values(), ids=NOT_OURS)
def test_a_pod_with_our_labels_that_is_not_ours_is_not_touched(owners: list[Manifest]) -> None:
    cluster = SimulatedCluster(a_job()).run()
    pod = impostor(cluster, "mnist-worker-7", ownerReferences=owners)
    pod["metadata"]["labels"]["tftraining.dev/index"] = "7"
    assert parse_pod(pod) is not None
    status = cluster.status
    assert not cluster.step()
    cluster.kubelet.exit("mnist-worker-7", 1)
    assert not cluster.step()
    assert cluster.status == status


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"tftraining.dev/role": "worker", "tftraining.dev/index": "x", "tftraining.dev/attempt": "1"},
        {"tftraining.dev/role": "worker", "tftraining.dev/index": "-1", "tftraining.dev/attempt": "1"},
        {"tftraining.dev/role": "worker", "tftraining.dev/index": "123456", "tftraining.dev/attempt": "1"},
        {"tftraining.dev/role": "worker", "tftraining.dev/index": "0", "tftraining.dev/attempt": ""},
        {"tftraining.dev/role": "worker", "tftraining.dev/index": "0", "tftraining.dev/attempt": "9" * 30},
        {"tftraining.dev/role": "worker", "tftraining.dev/index": "0", "tftraining.dev/attempt": "1.5"},
        {"tftraining.dev/role": "boss", "tftraining.dev/index": "0", "tftraining.dev/attempt": "1"},
    ],
)
def test_a_pod_whose_labels_make_no_sense_is_not_touched(labels: Manifest) -> None:
    cluster = SimulatedCluster(a_job()).run()
    pod = impostor(cluster, "mnist-worker-7", labels=labels)
    assert parse_pod(pod) is None
    assert not cluster.step()


def test_an_owned_pod_under_another_name_does_not_pass_for_the_worker() -> None:
    cluster = SimulatedCluster(a_job()).run()
    impostor(cluster, "mnist-worker-0-copy")
    cluster.run()
    assert "worker-0" in cluster.pods
    assert cluster.status.attempt == 1


def test_an_owned_pod_of_a_member_that_nobody_wants_is_removed() -> None:
    cluster = SimulatedCluster(a_job()).run()
    pod = impostor(cluster, "mnist-worker-7")
    pod["metadata"]["labels"]["tftraining.dev/index"] = "7"
    assert cluster.run().pods == ["worker-0", "worker-1"]
    assert cluster.status.attempt == 1


def test_only_the_controller_owns() -> None:
    assert owned_by({"metadata": {"ownerReferences": [{"uid": "a", "controller": True}]}}, "a")
    assert not owned_by({"metadata": {}}, "a")
    assert not owned_by({"metadata": {"ownerReferences": None}}, "a")


def test_a_foreign_pod_in_the_way_is_named_and_the_job_starts_once_it_is_gone() -> None:
    cluster = SimulatedCluster(a_job())
    cluster.api.pods["mnist-worker-1"] = {
        "metadata": {
            "name": "mnist-worker-1",
            "uid": "foreign",
            "resourceVersion": "1",
            "creationTimestamp": "2026-03-01T12:00:00Z",
        },
        "spec": {"nodeName": "node-a"},
        "status": {"phase": "Running"},
    }
    cluster.settle()
    assert (cluster.status.phase, cluster.status.reason) == ("Starting", "CreationRefused")
    assert cluster.status.message == "pod/mnist-worker-1: already exists and does not belong to this job"
    cluster.kubelet.force_delete("mnist-worker-1")
    assert cluster.run_timers().status.phase == "Running"


def test_a_foreign_service_in_the_way_keeps_every_pod_from_being_made() -> None:
    cluster = SimulatedCluster(a_job())
    cluster.api.services["mnist"] = {"metadata": {"name": "mnist", "uid": "foreign", "resourceVersion": "1"}}
    cluster.settle()
    assert cluster.pods == []
    assert (cluster.status.phase, cluster.status.reason) == ("Starting", "CreationRefused")
    assert cluster.status.message == "service/mnist: already exists and does not belong to this job"
    del cluster.api.services["mnist"]
    assert cluster.run_timers().status.phase == "Running"


def test_a_foreign_service_is_not_deleted_at_the_end() -> None:
    cluster = SimulatedCluster(a_job()).run()
    cluster.api.services["mnist"]["metadata"]["ownerReferences"] = []
    cluster.exit("worker-0", code=0).run()
    assert "mnist" in cluster.api.services
