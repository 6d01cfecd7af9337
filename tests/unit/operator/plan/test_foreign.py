"""Objects that look like the job's own and are not."""

import copy
from typing import Any

import pytest

from tests.support.simulated_cluster.builders import a_job
from tests.support.simulated_cluster.simulation import World
from tftraining_api.model.spec import Manifest
from tftraining_operator.model.observed import owned_by, parse_pod

NOT_OURS: dict[str, list[Manifest]] = {
    "another job": [{"kind": "TFTrainingJob", "name": "mnist", "uid": "another-uid", "controller": True}],
    "not the controller": [{"kind": "TFTrainingJob", "name": "mnist", "uid": "job-uid"}],
    "nobody": [],
}


def impostor(world: World, name: str, **metadata: Any) -> Manifest:
    """A copy of the pod of worker 0 under another name."""
    pod = copy.deepcopy(world.api.pods["mnist-worker-0"])
    pod["metadata"] |= {"name": name, "uid": f"uid-of-{name}"} | metadata
    world.api.pods[name] = pod
    return pod


@pytest.mark.parametrize("owners", NOT_OURS.values(), ids=NOT_OURS)
def test_a_pod_with_our_labels_that_is_not_ours_is_not_touched(owners: list[Manifest]) -> None:
    world = World(a_job()).run()
    pod = impostor(world, "mnist-worker-7", ownerReferences=owners)
    pod["metadata"]["labels"]["tftraining.dev/index"] = "7"
    assert parse_pod(pod) is not None
    status = world.status
    assert not world.step()
    world.kubelet.exit("mnist-worker-7", 1)
    assert not world.step()
    assert world.status == status


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
    world = World(a_job()).run()
    pod = impostor(world, "mnist-worker-7", labels=labels)
    assert parse_pod(pod) is None
    assert not world.step()


def test_an_owned_pod_under_another_name_does_not_pass_for_the_worker() -> None:
    world = World(a_job()).run()
    impostor(world, "mnist-worker-0-copy")
    world.run()
    assert "worker-0" in world.pods
    assert world.status.attempt == 1


def test_an_owned_pod_of_a_member_that_nobody_wants_is_removed() -> None:
    world = World(a_job()).run()
    pod = impostor(world, "mnist-worker-7")
    pod["metadata"]["labels"]["tftraining.dev/index"] = "7"
    assert world.run().pods == ["worker-0", "worker-1"]
    assert world.status.attempt == 1


def test_only_the_controller_owns() -> None:
    assert owned_by({"metadata": {"ownerReferences": [{"uid": "a", "controller": True}]}}, "a")
    assert not owned_by({"metadata": {}}, "a")
    assert not owned_by({"metadata": {"ownerReferences": None}}, "a")


def test_a_foreign_pod_in_the_way_is_named_and_the_job_starts_once_it_is_gone() -> None:
    world = World(a_job())
    world.api.pods["mnist-worker-1"] = {
        "metadata": {
            "name": "mnist-worker-1",
            "uid": "foreign",
            "resourceVersion": "1",
            "creationTimestamp": "2026-03-01T12:00:00Z",
        },
        "spec": {"nodeName": "node-a"},
        "status": {"phase": "Running"},
    }
    world.settle()
    assert (world.status.phase, world.status.reason) == ("Starting", "CreationRefused")
    assert world.status.message == "pod/mnist-worker-1: already exists and does not belong to this job"
    world.kubelet.lose("mnist-worker-1")
    assert world.run_timers().status.phase == "Running"


def test_a_foreign_service_in_the_way_keeps_every_pod_from_being_made() -> None:
    world = World(a_job())
    world.api.services["mnist"] = {"metadata": {"name": "mnist", "uid": "foreign", "resourceVersion": "1"}}
    world.settle()
    assert world.pods == []
    assert (world.status.phase, world.status.reason) == ("Starting", "CreationRefused")
    assert world.status.message == "service/mnist: already exists and does not belong to this job"
    del world.api.services["mnist"]
    assert world.run_timers().status.phase == "Running"


def test_a_foreign_service_is_not_deleted_at_the_end() -> None:
    world = World(a_job()).run()
    world.api.services["mnist"]["metadata"]["ownerReferences"] = []
    world.exit("worker-0", code=0).run()
    assert "mnist" in world.api.services
