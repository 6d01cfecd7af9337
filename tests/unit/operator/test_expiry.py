"""runPolicy.ttlSecondsAfterFinished: the job itself is deleted, after all that is to be done for it, and not before."""

import pytest

from tests.unit.operator.builders import a_job, a_launched_job
from tests.unit.operator.simulation import World

TTL = "runPolicy.ttlSecondsAfterFinished"


def succeeded(ttl: int, **storage: object) -> World:
    job = a_job().set(TTL, ttl)
    world = World(job.storage() if storage else job).run().wait(60)
    return world.exit("worker-0", code=0).run()


def test_a_job_goes_when_its_time_has_come() -> None:
    world = succeeded(100)
    assert world.timer is not None and world.status.completion_time is not None
    assert (world.timer - world.status.completion_time).total_seconds() == 100
    assert not world.wait(99).step() and not world.api.gone
    assert world.wait(1).run().api.gone
    assert world.api.writes[-1] == "delete job"
    assert not world.step(), "it is asked for once"


def test_a_failed_job_goes_too() -> None:
    world = World(a_job().set(TTL, 10).max_restarts(0)).run().exit("worker-1").run()
    assert world.wait(10).run().api.gone


def test_never_by_default() -> None:
    world = World(a_job()).run().exit("worker-0", code=0).run().wait(10**8).run()
    assert not world.api.gone and world.timer is None


def test_at_once() -> None:
    assert succeeded(0).api.gone


def test_not_before_the_cleanup_is_done() -> None:
    world = succeeded(0, storage=True)
    assert world.pods == ["cleanup", "worker-0"] and not world.api.gone
    world.exit("cleanup", code=0, message='{"removed": 1}').run()
    assert world.api.gone


def test_not_before_the_cleanup_is_given_up() -> None:
    world = succeeded(0, storage=True)
    assert world.status.completion_time is not None
    world.kubelet.hold("mnist-cleanup", "ErrImagePull", "no such image")
    world.run_timers()
    assert world.api.gone and (world.now - world.status.completion_time).total_seconds() == 600
    cleaned = world.status.condition("Cleaned")
    assert cleaned is not None and cleaned.status == "False"


def test_not_before_the_members_have_left() -> None:
    world = World(a_launched_job().set(TTL, 0).max_restarts(0)).run().exit("worker-1", code=137).run()
    assert world.status.phase == "Failed" and not world.api.gone, "worker-0 may leave by itself"
    assert world.run_timers().api.gone


def test_an_operator_that_was_down_past_it() -> None:
    world = World(a_job().set(TTL, 100)).run().exit("worker-0", code=0)
    world.forget()
    world.wait(10**6).run()
    assert world.status.phase == "Succeeded" and not world.api.gone, "nobody has known of the end until now"
    world.forget()
    assert world.wait(100).run().api.gone


def test_a_ttl_that_is_set_afterwards_counts() -> None:
    world = World(a_job()).run().exit("worker-0", code=0).run().wait(60)
    world.api.edit(TTL, 30)
    assert world.run().api.gone


def test_a_job_that_was_changed_meanwhile_is_looked_at_again() -> None:
    world = succeeded(10).wait(10)
    seen = world.api.snapshot()
    world.api.edit(TTL, 1000)
    world.step(seen=seen)
    assert not world.run().api.gone


@pytest.mark.parametrize("phase", ["Running", "Suspended"])
def test_only_a_job_that_is_done(phase: str) -> None:
    world = World(a_job().set(TTL, 0).set("runPolicy.suspend", phase == "Suspended")).run().wait(3600).run()
    assert world.status.phase == phase and not world.api.gone


def test_a_time_beyond_the_calendar_does_no_harm() -> None:
    world = succeeded(100)
    world.api.job["status"]["completionTime"] = "9999-12-31T23:59:59Z"
    assert not world.step() and not world.api.gone
