"""Row: the operator is rolled back. What an older version cannot read it leaves alone, and says so; the newer version
then goes on where it was. What it can read, but does not know, it keeps.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.simulated_cluster.builders import a_job, a_launched_job
from tests.support.simulated_cluster.simulation import World
from tests.unit.operator.plan.test_idle import IDLE

NEWER: list[tuple[str, Any]] = [
    ("restartPolicy.mode", "OnAnotherCluster"),
    ("successPolicy", "AnyWorker"),
    ("runPolicy.cleanPodPolicy", "Sidecars"),
    ("restartPolicy.maxRestarts", "10%"),
    ("storage", {"volumes": []}),
    ("template", {"spec": {"containers": {"tensorflow": {}}}}),
    ("replicaSpecs", {"peer": {"replicas": 2}}),
    ("replicaSpecs.peer", {"replicas": 2}),
]
UNREADABLE_STATUS: list[tuple[str, Any]] = [
    ("phase", "Resizing"),
    ("attempt", "2-b"),
    ("restarts", []),
    ("completionTime", {"at": "2026-03-01T12:00:00Z"}),
    ("conditions", [{"type": "Ready", "status": "Partly", "lastTransitionTime": "2026-03-01T12:00:00Z"}]),
]
STATES = pytest.mark.parametrize("state", IDLE)


def everything(world: World) -> Any:
    """What exists, but for the condition that says that the job cannot be read."""
    status = {name: value for name, value in world.api.job["status"].items() if name != "conditions"}
    others = [each for each in world.api.job["status"]["conditions"] if each["type"] != "Unreadable"]
    uids = {name: (each["metadata"]["uid"], "deletionTimestamp" in each["metadata"]) for name, each in pods(world)}
    return status, others, uids, sorted(world.api.services)


def pods(world: World) -> list[tuple[str, Any]]:
    return sorted(world.api.pods.items())


def said(world: World) -> tuple[str, str]:
    """The reason and message of the condition that says that the job cannot be read."""
    (condition,) = (each for each in world.api.job["status"]["conditions"] if each["type"] == "Unreadable")
    assert condition["status"] == "True"
    return condition["reason"], condition["message"]


@STATES
@pytest.mark.parametrize(("path", "value"), NEWER)
def test_a_job_whose_spec_is_newer_is_left_as_it_is(state: Callable[[], World], path: str, value: Any) -> None:
    world = state()
    world.api.edit(path, value)
    before, notes = everything(world), len(world.events)
    for seconds in (0, 3600, 86400 * 30):
        world.wait(seconds).run()
        assert everything(world) == before
    assert said(world)[0] == "SpecUnreadable"
    assert [(each.type, each.reason) for each in world.events[notes:]] == [("Warning", "SpecUnreadable")]


@STATES
@pytest.mark.parametrize(("field", "value"), UNREADABLE_STATUS)
def test_a_job_whose_status_is_newer_is_left_as_it_is(state: Callable[[], World], field: str, value: Any) -> None:
    world = state()
    world.api.job["status"][field] = value
    before, notes = everything(world), len(world.events)
    for seconds in (0, 3600, 86400 * 30):
        world.wait(seconds).run()
        assert everything(world) == before
    assert said(world)[0] == "StatusUnreadable" and field in said(world)[1]
    assert [(each.type, each.reason) for each in world.events[notes:]] == [("Warning", "StatusUnreadable")]


@pytest.mark.parametrize("job", [a_job, a_launched_job])
def test_a_job_that_has_begun_does_not_fail_for_a_spec_that_a_new_one_fails_for(job: Any) -> None:
    world = World(job()).run()
    before = everything(world)
    world.api.edit("replicaSpecs.worker.replicas", 0)
    assert everything(world.run()) == before
    assert said(world)[1].startswith(
        "spec.replicaSpecs needs a chief or a worker with at least one replica; the operator"
    )


def test_pods_that_fail_meanwhile_and_those_that_are_deleted_wait_for_who_can_read_the_job() -> None:
    world = World(a_job()).run()
    world.api.edit("successPolicy", "AnyWorker")
    world.run().exit("worker-1").delete("worker-0").run()
    assert (world.status.phase, world.status.restarts.counted, world.pods) == ("Running", 0, ["worker-1"])
    world.api.edit("successPolicy", "Chief")
    world.run_timers()
    assert (world.status.phase, world.status.ready, world.status.attempt) == ("Running", "2/2", 2)
    assert world.status.condition("Unreadable") is None


@pytest.mark.parametrize("job", [a_job, a_launched_job])
def test_the_newer_version_goes_on_where_it_was(job: Any) -> None:
    world = World(job().storage()).run()
    before = everything(world)
    world.api.edit("restartPolicy.mode", "OnAnotherCluster")
    world.wait(3600).run().forget()
    world.api.edit("restartPolicy.mode", job().raw()["spec"]["restartPolicy"]["mode"])
    world.run()
    status, *others = everything(world)
    assert [{**status, "observedGeneration": 1}, *others] == list(before)
    assert world.status.condition("Unreadable") is None and not world.step()


def test_a_new_job_starts_as_soon_as_it_can_be_read() -> None:
    world = World(a_job().set("successPolicy", "AnyWorker")).run()
    assert (world.status.phase, world.pods) == ("Pending", [])
    assert "Invalid enum value 'AnyWorker'" in said(world)[1] and "$.successPolicy" in said(world)[1]
    world.api.edit("successPolicy", "Chief")
    assert world.run().status.phase == "Running"


def test_a_job_whose_pods_are_made_but_not_told_of_has_begun() -> None:
    world = World(a_job())
    world.step(soon=True)
    assert world.pods and not world.api.job.get("status")
    world.api.edit("replicaSpecs.worker.replicas", 0)
    world.run()
    assert (world.status.phase, len(world.pods), said(world)[0]) == ("Pending", 2, "SpecUnreadable")


def test_another_cause_is_told_too_and_the_same_one_once() -> None:
    world = World(a_job().set("successPolicy", "AnyWorker")).run()
    world.forget()
    assert not world.step()
    world.api.edit("successPolicy", "AnyTwoWorkers")
    world.run()
    assert "AnyTwoWorkers" in said(world)[1]
    assert len(world.events) == 2


def test_a_value_of_any_length_gives_a_message_that_the_api_server_takes() -> None:
    world = World(a_job().set("successPolicy", "A" * 10**6)).run()
    assert len(said(world)[1]) < 32768


# --- what can be read, but is not known


def test_fields_of_the_status_that_a_newer_version_has_written_are_kept() -> None:
    world = World(a_job()).run().exit("worker-1").run_timers()
    status = world.api.job["status"]
    status |= {"topology": {"zone": "a"}, "checkpoints": [1, 2]}
    status["restarts"]["migrated"] = 3
    status["replicas"]["worker"]["spare"] = 1
    status["conditions"].append({**status["conditions"][0], "type": "Migrated"})
    world.exit("worker-0", code=137).run_timers()
    after = world.api.job["status"]
    assert world.status.restarts.counted == 2
    assert (after["topology"], after["checkpoints"]) == ({"zone": "a"}, [1, 2])
    assert (after["restarts"]["migrated"], after["replicas"]["worker"]["spare"]) == (3, 1)
    assert world.status.is_true("Migrated") == world.status.is_true("Ready")


def test_what_is_not_known_of_one_restart_or_failure_is_not_said_of_the_next() -> None:
    world = World(a_job()).run().exit("worker-1").run_timers()
    for name in ("lastRestart", "failure"):
        world.api.job["status"][name]["stack"] = "of worker-1"
    world.wait(5).delete("worker-0").run_timers()
    after = world.api.job["status"]
    assert after["failure"]["stack"] == "of worker-1", "it is the last failure still"
    assert after["lastRestart"]["pod"] == "mnist-worker-0" and "stack" not in after["lastRestart"]


def test_what_the_status_says_no_more_is_gone() -> None:
    world = World(a_job()).settle()
    world.api.job["status"]["admittedTime"] = "2026-03-01T12:00:00Z"
    assert "admittedTime" not in world.run().api.job["status"]
