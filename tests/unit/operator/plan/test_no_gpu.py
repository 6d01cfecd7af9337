"""A container asks for GPUs and TensorFlow in it sees none: the job trains on, and says so."""

from __future__ import annotations

import pytest

from tests.support.simulated_cluster.builders import a_launched_job
from tests.support.simulated_cluster.simulation import World

MESSAGE = "worker-1 requests GPUs, but TensorFlow sees none"


def lacking(*members: str) -> World:
    world = World(a_launched_job().container(resources={"limits": {"nvidia.com/gpu": 1}})).run()
    world.launchers.no_gpu = list(members)
    return world.run()


def told(world: World) -> list[tuple[str, str]]:
    return [(note.type, note.message) for note in world.events if note.reason == "NoGPU"]


def test_one_warning_and_a_word_in_the_message() -> None:
    world = lacking("worker-1")
    assert told(world) == [("Warning", f"{MESSAGE}: install NVIDIA's CUDA libraries in the image")]
    assert (world.status.phase, world.status.message) == ("Running", f"2 replicas training; {MESSAGE} (NoGPU)")
    condition = world.status.condition("NoGPU")
    assert condition is not None and (condition.status, condition.reason) == ("True", "NoGPU")
    assert world.status.is_true("Ready"), "it is no failure"


def test_several_are_named() -> None:
    world = lacking("worker-0", "worker-1")
    assert world.status.message == (
        "2 replicas training; worker-0, worker-1 request GPUs, but TensorFlow sees none (NoGPU)"
    )


@pytest.mark.parametrize("then", ["time", "a new operator", "a restart"])
def test_it_is_told_once(then: str) -> None:
    world = lacking("worker-1")
    if then == "a new operator":
        world.forget()
    if then == "a restart":
        world.launchers.crash("worker-0")
    world.wait(60).run()
    assert "(NoGPU)" in (world.status.message or "")
    assert world.status.restarts.in_place == (then == "a restart")
    assert len(told(world)) == 1


def test_it_is_over_when_the_gpus_are_seen() -> None:
    world = lacking("worker-1")
    world.launchers.no_gpu = []
    world.wait(60).run()
    condition = world.status.condition("NoGPU")
    assert condition is not None and (condition.status, condition.reason) == ("False", "Training")
    assert world.status.message == "2 replicas training"


def test_a_job_that_lacks_none_says_nothing() -> None:
    world = lacking()
    assert world.status.condition("NoGPU") is None
    assert told(world) == []


def test_the_end_keeps_the_condition() -> None:
    world = lacking("worker-1")
    world.launchers.finish()
    world.run()
    assert (world.status.phase, world.status.is_true("NoGPU")) == ("Succeeded", True)
