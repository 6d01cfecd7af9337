"""A job in which nothing happens costs nothing: no write, no event, no timer, however often it is looked at."""

from collections.abc import Callable

import pytest

from tests.support.simulated_cluster.builders import a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tftraining_api.model.job import dump_status, parse_job


def running() -> SimulatedCluster:
    return SimulatedCluster(a_job().storage()).run()


def running_after_restarts() -> SimulatedCluster:
    return SimulatedCluster(a_job()).run().exit("worker-1", code=137).run().delete("worker-0").run_timers()


def succeeded() -> SimulatedCluster:
    cluster = SimulatedCluster(a_job().storage()).run().exit("worker-0", code=0).run()
    return cluster.exit("cleanup", code=0, message='{"removed": 1}').run()


def failed() -> SimulatedCluster:
    return SimulatedCluster(a_job().max_restarts(0)).run().exit("worker-1", message="boom").run()


def invalid() -> SimulatedCluster:
    return SimulatedCluster(a_job().set("replicaSpecs", {})).run()


def running_in_place() -> SimulatedCluster:
    cluster = SimulatedCluster(a_launched_job().storage()).run()
    cluster.launchers.advance(3, 200, loss=0.5)
    cluster.run()
    cluster.launchers.crash("worker-1")
    cluster.run().exit("worker-0", code=137, reason="OOMKilled").run_timers()
    return cluster


def failed_by_verdict() -> SimulatedCluster:
    cluster = SimulatedCluster(a_launched_job().max_restarts(0)).run()
    cluster.launchers.crash("worker-1")
    return cluster.run()


def suspended() -> SimulatedCluster:
    cluster = SimulatedCluster(a_job().storage()).run()
    cluster.api.edit("runPolicy.suspend", True)
    return cluster.run().exit("cleanup", code=0, message='{"removed": 1}').run()


def resumed() -> SimulatedCluster:
    cluster = suspended()
    cluster.api.edit("runPolicy.suspend", False)
    return cluster.run()


def created_suspended() -> SimulatedCluster:
    return SimulatedCluster(a_launched_job().storage().set("runPolicy.suspend", True)).run()


IDLE = [running_in_place, failed_by_verdict, running, running_after_restarts, succeeded, failed, invalid]
IDLE += [suspended, resumed, created_suspended]


@pytest.mark.parametrize("state", IDLE)
def test_an_idle_job_writes_nothing(state: Callable[[], SimulatedCluster]) -> None:
    cluster = state()
    writes = len(cluster.api.writes)
    for seconds in (0, 0.3, 1, 60, 86400):
        step = cluster.wait(seconds).plan()
        assert step.status == cluster.status
        assert not (step.create_pods or step.delete_pods or step.create_service or step.delete_service or step.events)
        assert step.requeue_at is None
        assert not cluster.step()
    assert len(cluster.api.writes) == writes


@pytest.mark.parametrize("state", IDLE)
def test_a_status_survives_the_wire(state: Callable[[], SimulatedCluster]) -> None:
    cluster = state()
    raw = dump_status(cluster.status)
    assert parse_job(cluster.api.job | {"status": raw}).status == cluster.status
    assert all("message" in condition for condition in raw["conditions"])
    assert raw["phase"] == cluster.status.phase


def test_a_gang_that_waits_for_its_pods_writes_nothing() -> None:
    cluster = SimulatedCluster(a_job()).settle()
    assert not cluster.wait(599).step()


def test_a_restart_in_place_that_waits_writes_nothing() -> None:
    cluster = SimulatedCluster(a_launched_job()).run()
    cluster.launchers.crash("worker-1")
    cluster.launcher_report = cluster.launchers.last_report()
    cluster.settle()
    assert cluster.status.phase == "Restarting"
    assert not cluster.wait(3600).step()


def test_a_restart_that_waits_writes_nothing() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-1").run().exit("worker-1").settle()
    cluster.kubelet.remove_deleted()
    cluster.settle()
    assert not cluster.wait(0.5).step()
    assert cluster.timer is not None


def test_the_writes_of_a_whole_life() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-0", code=0).run()
    assert cluster.api.writes.count("status") <= 6
