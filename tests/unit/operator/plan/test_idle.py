"""A job in which nothing happens costs nothing: no write, no event, no timer, however often it is looked at."""

from collections.abc import Callable

import pytest

from tests.support.simulated_cluster.builders import a_job, a_launched_job
from tests.support.simulated_cluster.simulation import World
from tftraining_api.model.job import dump_status, parse_job


def running() -> World:
    return World(a_job().storage()).run()


def running_after_restarts() -> World:
    return World(a_job()).run().exit("worker-1", code=137).run().delete("worker-0").run_timers()


def succeeded() -> World:
    world = World(a_job().storage()).run().exit("worker-0", code=0).run()
    return world.exit("cleanup", code=0, message='{"removed": 1}').run()


def failed() -> World:
    return World(a_job().max_restarts(0)).run().exit("worker-1", message="boom").run()


def invalid() -> World:
    return World(a_job().set("replicaSpecs", {})).run()


def running_in_place() -> World:
    world = World(a_launched_job().storage()).run()
    world.launchers.advance(3, 200, loss=0.5)
    world.run()
    world.launchers.crash("worker-1")
    world.run().exit("worker-0", code=137, reason="OOMKilled").run_timers()
    return world


def failed_by_verdict() -> World:
    world = World(a_launched_job().max_restarts(0)).run()
    world.launchers.crash("worker-1")
    return world.run()


def suspended() -> World:
    world = World(a_job().storage()).run()
    world.api.edit("runPolicy.suspend", True)
    return world.run().exit("cleanup", code=0, message='{"removed": 1}').run()


def resumed() -> World:
    world = suspended()
    world.api.edit("runPolicy.suspend", False)
    return world.run()


def created_suspended() -> World:
    return World(a_launched_job().storage().set("runPolicy.suspend", True)).run()


IDLE = [running_in_place, failed_by_verdict, running, running_after_restarts, succeeded, failed, invalid]
IDLE += [suspended, resumed, created_suspended]


@pytest.mark.parametrize("state", IDLE)
def test_an_idle_job_writes_nothing(state: Callable[[], World]) -> None:
    world = state()
    writes = len(world.api.writes)
    for seconds in (0, 0.3, 1, 60, 86400):
        step = world.wait(seconds).plan()
        assert step.status == world.status
        assert not (step.create_pods or step.delete_pods or step.create_service or step.delete_service or step.events)
        assert step.requeue_at is None
        assert not world.step()
    assert len(world.api.writes) == writes


@pytest.mark.parametrize("state", IDLE)
def test_a_status_survives_the_wire(state: Callable[[], World]) -> None:
    world = state()
    raw = dump_status(world.status)
    assert parse_job(world.api.job | {"status": raw}).status == world.status
    assert all("message" in condition for condition in raw["conditions"])
    assert raw["phase"] == world.status.phase


def test_a_gang_that_waits_for_its_pods_writes_nothing() -> None:
    world = World(a_job()).settle()
    assert not world.wait(599).step()


def test_a_restart_in_place_that_waits_writes_nothing() -> None:
    world = World(a_launched_job()).run()
    world.launchers.crash("worker-1")
    world.launcher_report = world.launchers.last_report()
    world.settle()
    assert world.status.phase == "Restarting"
    assert not world.wait(3600).step()


def test_a_restart_that_waits_writes_nothing() -> None:
    world = World(a_job()).run().exit("worker-1").run().exit("worker-1").settle()
    world.kubelet.remove_deleted()
    world.settle()
    assert not world.wait(0.5).step()
    assert world.timer is not None


def test_the_writes_of_a_whole_life() -> None:
    world = World(a_job()).run().exit("worker-0", code=0).run()
    assert world.api.writes.count("status") <= 6
