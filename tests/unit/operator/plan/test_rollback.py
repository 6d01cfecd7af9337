"""Row: the operator is rolled back. What an older version cannot read it leaves alone, and says so; the newer version
then goes on where it was. What it can read, but does not know, it keeps.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.simulated_cluster.builders import a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
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


def everything(cluster: SimulatedCluster) -> Any:
    """What exists, but for the condition that says that the job cannot be read."""
    status = {name: value for name, value in cluster.api.job["status"].items() if name != "conditions"}
    others = [each for each in cluster.api.job["status"]["conditions"] if each["type"] != "Unreadable"]
    uids = {name: (each["metadata"]["uid"], "deletionTimestamp" in each["metadata"]) for name, each in pods(cluster)}
    return status, others, uids, sorted(cluster.api.services)


def pods(cluster: SimulatedCluster) -> list[tuple[str, Any]]:
    return sorted(cluster.api.pods.items())


def reason_and_message(cluster: SimulatedCluster) -> tuple[str, str]:
    """The reason and message of the condition that says that the job cannot be read."""
    (condition,) = (each for each in cluster.api.job["status"]["conditions"] if each["type"] == "Unreadable")
    assert condition["status"] == "True"
    return condition["reason"], condition["message"]


@STATES
@pytest.mark.parametrize(("path", "value"), NEWER)
def test_a_job_whose_spec_is_newer_is_left_as_it_is(
    state: Callable[[], SimulatedCluster], path: str, value: Any
) -> None:
    cluster = state()
    cluster.api.edit(path, value)
    before, notes = everything(cluster), len(cluster.events)
    for seconds in (0, 3600, 86400 * 30):
        cluster.wait(seconds).run()
        assert everything(cluster) == before
    assert reason_and_message(cluster)[0] == "SpecUnreadable"
    assert [(each.type, each.reason) for each in cluster.events[notes:]] == [("Warning", "SpecUnreadable")]


@STATES
@pytest.mark.parametrize(("field", "value"), UNREADABLE_STATUS)
def test_a_job_whose_status_is_newer_is_left_as_it_is(
    state: Callable[[], SimulatedCluster], field: str, value: Any
) -> None:
    cluster = state()
    cluster.api.job["status"][field] = value
    before, notes = everything(cluster), len(cluster.events)
    for seconds in (0, 3600, 86400 * 30):
        cluster.wait(seconds).run()
        assert everything(cluster) == before
    assert reason_and_message(cluster)[0] == "StatusUnreadable" and field in reason_and_message(cluster)[1]
    assert [(each.type, each.reason) for each in cluster.events[notes:]] == [("Warning", "StatusUnreadable")]


@pytest.mark.parametrize("job", [a_job, a_launched_job])
def test_a_job_that_has_begun_does_not_fail_for_a_spec_that_a_new_one_fails_for(job: Any) -> None:
    cluster = SimulatedCluster(job()).run()
    before = everything(cluster)
    cluster.api.edit("replicaSpecs.worker.replicas", 0)
    assert everything(cluster.run()) == before
    assert reason_and_message(cluster)[1].startswith(
        "spec.replicaSpecs needs a chief or a worker with at least one replica; the operator"
    )


def test_pods_that_fail_meanwhile_and_those_that_are_deleted_wait_for_who_can_read_the_job() -> None:
    cluster = SimulatedCluster(a_job()).run()
    cluster.api.edit("successPolicy", "AnyWorker")
    cluster.run().exit("worker-1").delete("worker-0").run()
    assert (cluster.status.phase, cluster.status.restarts.counted, cluster.pods) == ("Running", 0, ["worker-1"])
    cluster.api.edit("successPolicy", "Chief")
    cluster.run_timers()
    assert (cluster.status.phase, cluster.status.ready, cluster.status.attempt) == ("Running", "2/2", 2)
    assert cluster.status.condition("Unreadable") is None


@pytest.mark.parametrize("job", [a_job, a_launched_job])
def test_the_newer_version_goes_on_where_it_was(job: Any) -> None:
    cluster = SimulatedCluster(job().storage()).run()
    before = everything(cluster)
    cluster.api.edit("restartPolicy.mode", "OnAnotherCluster")
    cluster.wait(3600).run().forget()
    cluster.api.edit("restartPolicy.mode", job().raw()["spec"]["restartPolicy"]["mode"])
    cluster.run()
    status, *others = everything(cluster)
    seconds, known = status["goodput"]["seconds"], before[0].pop("goodput")["seconds"]
    assert seconds == {"start": known["start"], "trained": 3600}
    del status["goodput"]
    assert [{**status, "observedGeneration": 1}, *others] == list(before)
    assert cluster.status.condition("Unreadable") is None and not cluster.step()


def test_a_new_job_starts_as_soon_as_it_can_be_read() -> None:
    cluster = SimulatedCluster(a_job().set("successPolicy", "AnyWorker")).run()
    assert (cluster.status.phase, cluster.pods) == ("Pending", [])
    assert (
        "Invalid enum value 'AnyWorker'" in reason_and_message(cluster)[1]
        and "$.successPolicy" in reason_and_message(cluster)[1]
    )
    cluster.api.edit("successPolicy", "Chief")
    assert cluster.run().status.phase == "Running"


def test_a_job_whose_pods_are_made_but_not_told_of_has_begun() -> None:
    cluster = SimulatedCluster(a_job())
    cluster.step(soon=True)
    assert cluster.pods and not cluster.api.job.get("status")
    cluster.api.edit("replicaSpecs.worker.replicas", 0)
    cluster.run()
    assert (cluster.status.phase, len(cluster.pods), reason_and_message(cluster)[0]) == ("Pending", 2, "SpecUnreadable")


def test_another_cause_is_told_too_and_the_same_one_once() -> None:
    cluster = SimulatedCluster(a_job().set("successPolicy", "AnyWorker")).run()
    cluster.forget()
    assert not cluster.step()
    cluster.api.edit("successPolicy", "AnyTwoWorkers")
    cluster.run()
    assert "AnyTwoWorkers" in reason_and_message(cluster)[1]
    assert len(cluster.events) == 2


def test_a_value_of_any_length_gives_a_message_that_the_api_server_takes() -> None:
    cluster = SimulatedCluster(a_job().set("successPolicy", "A" * 10**6)).run()
    assert len(reason_and_message(cluster)[1]) < 32768


# --- what can be read, but is not known


def test_fields_of_the_status_that_a_newer_version_has_written_are_kept() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-1").run_timers()
    status = cluster.api.job["status"]
    status |= {"topology": {"zone": "a"}, "checkpoints": [1, 2]}
    status["restarts"]["migrated"] = 3
    status["replicas"]["worker"]["spare"] = 1
    status["conditions"].append({**status["conditions"][0], "type": "Migrated"})
    cluster.exit("worker-0", code=137).run_timers()
    after = cluster.api.job["status"]
    assert cluster.status.restarts.counted == 2
    assert (after["topology"], after["checkpoints"]) == ({"zone": "a"}, [1, 2])
    assert (after["restarts"]["migrated"], after["replicas"]["worker"]["spare"]) == (3, 1)
    assert cluster.status.is_true("Migrated") == cluster.status.is_true("Ready")


def test_what_is_not_known_of_one_restart_or_failure_is_not_said_of_the_next() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-1").run_timers()
    for name in ("lastRestart", "failure"):
        cluster.api.job["status"][name]["stack"] = "of worker-1"
    cluster.wait(5).delete("worker-0").run_timers()
    after = cluster.api.job["status"]
    assert after["failure"]["stack"] == "of worker-1", "it is the last failure still"
    assert after["lastRestart"]["pod"] == "mnist-worker-0" and "stack" not in after["lastRestart"]


def test_what_the_status_says_no_more_is_gone() -> None:
    cluster = SimulatedCluster(a_job()).settle()
    cluster.api.job["status"]["admittedTime"] = "2026-03-01T12:00:00Z"
    assert "admittedTime" not in cluster.run().api.job["status"]
