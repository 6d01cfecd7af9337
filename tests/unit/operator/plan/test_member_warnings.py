"""Members that the launchers name, without their GPUs or on their own: the job trains on, and says so."""

from __future__ import annotations

import pytest

from tests.support.simulated_cluster.builders import a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster

MESSAGE = "worker-1 requests GPUs, but TensorFlow sees none"


def lacking(*members: str) -> SimulatedCluster:
    cluster = SimulatedCluster(a_launched_job().container(resources={"limits": {"nvidia.com/gpu": 1}})).run()
    cluster.launchers.no_gpu = list(members)
    return cluster.run()


def told(cluster: SimulatedCluster) -> list[tuple[str, str]]:
    return [(note.type, note.message) for note in cluster.events if note.reason == "NoGPU"]


def test_one_warning_and_a_word_in_the_message() -> None:
    cluster = lacking("worker-1")
    assert told(cluster) == [("Warning", f"{MESSAGE}: install NVIDIA's CUDA libraries in the image")]
    assert (cluster.status.phase, cluster.status.message) == ("Running", f"2 replicas training; {MESSAGE} (NoGPU)")
    condition = cluster.status.condition("NoGPU")
    assert condition is not None and (condition.status, condition.reason) == ("True", "NoGPU")
    assert cluster.status.is_true("Ready"), "it is no failure"


def test_several_are_named() -> None:
    cluster = lacking("worker-0", "worker-1")
    assert cluster.status.message == (
        "2 replicas training; worker-0, worker-1 request GPUs, but TensorFlow sees none (NoGPU)"
    )


@pytest.mark.parametrize("then", ["time", "a new operator", "a restart"])
def test_it_is_told_once(then: str) -> None:
    cluster = lacking("worker-1")
    if then == "a new operator":
        cluster.forget()
    if then == "a restart":
        cluster.launchers.crash("worker-0")
    cluster.wait(60).run()
    assert "(NoGPU)" in (cluster.status.message or "")
    assert cluster.status.restarts.in_place == (then == "a restart")
    assert len(told(cluster)) == 1


def test_it_is_over_when_the_gpus_are_seen() -> None:
    cluster = lacking("worker-1")
    cluster.launchers.no_gpu = []
    cluster.wait(60).run()
    condition = cluster.status.condition("NoGPU")
    assert condition is not None and (condition.status, condition.reason) == ("False", "Training")
    assert cluster.status.message == "2 replicas training"


def test_a_job_that_lacks_none_says_nothing() -> None:
    cluster = lacking()
    assert cluster.status.condition("NoGPU") is None
    assert told(cluster) == []


def test_the_end_keeps_the_condition() -> None:
    cluster = lacking("worker-1")
    cluster.launchers.finish()
    cluster.run()
    assert (cluster.status.phase, cluster.status.is_true("NoGPU")) == ("Succeeded", True)


def test_members_that_train_alone_are_a_condition_and_one_event() -> None:
    cluster = SimulatedCluster(a_launched_job()).run()
    cluster.launchers.alone = ["worker-0", "worker-1"]
    cluster.run().wait(60).run()
    words = "worker-0, worker-1 train without the other members, each a model of its own"
    assert cluster.status.message == f"2 replicas training; {words} (TrainsAlone)"
    assert cluster.status.is_true("TrainsAlone")
    (note,) = [note for note in cluster.events if note.reason == "TrainsAlone"]
    assert (note.type, note.message.startswith(f"{words}: build the strategy from the TF_CONFIG")) == ("Warning", True)
    cluster.launchers.alone = []
    cluster.wait(60).run()
    condition = cluster.status.condition("TrainsAlone")
    assert condition is not None and (condition.status, condition.reason) == ("False", "Training")
