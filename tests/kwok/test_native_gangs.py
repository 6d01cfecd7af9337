"""Gangs that Kubernetes' own scheduler places as a whole, or not at all (runPolicy.scheduling.gang).

Collected from 1.37 on only (conftest.py): the simulation turns on what these gangs need.
"""

import time
from collections.abc import Iterator

import pytest

from tests.kwok.test_coscheduling import placed
from tests.support.control_plane.jobs import wait_until
from tests.support.control_plane.operator_process import OperatorProcess
from tests.support.kwok.jobs import NewJob, SimulatedJob
from tests.support.kwok.simulation import Simulation

GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/{}/podgroups"
PLACING_SECONDS = 90.0  # what the scheduler has turned away it looks at again after a while


def a_gang(new_job: NewJob, name: str = "job", /, **changes: object) -> SimulatedJob:
    """A job of two workers that are placed together; the test has three nodes, and each takes one worker."""
    return new_job(name, **{"spec__runPolicy": {"scheduling": {"gang": "Native"}}, **changes})


def groups(job: SimulatedJob) -> dict[str, int]:
    """How many pods each PodGroup in the job's namespace asks for, by its UID."""
    found = job.plane.request("GET", GROUPS.format(job.namespace))["items"]
    return {each["metadata"]["uid"]: each["spec"]["schedulingPolicy"]["gang"]["minCount"] for each in found}


@pytest.mark.parametrize(("scheduling", "held"), [({"gang": "Native"}, 0), ({}, 1)], ids=["gang", "no gang"])
def test_of_two_gangs_that_fit_alone_one_trains_after_the_other(
    new_job: NewJob, scheduling: dict[str, str], held: int
) -> None:
    jobs = [new_job(name, spec__runPolicy={"scheduling": scheduling}) for name in ("a", "b")]
    wait_until(lambda: any(placed(job) == 2 for job in jobs), "one is placed", PLACING_SECONDS)
    loser, winner = sorted(jobs, key=placed)
    winner.train()
    wait_until(lambda: "cannot be scheduled" in loser.status().get("message", ""), "it says what it waits for")
    for _ in range(20):
        assert placed(loser) == held, "the nodes that half a gang holds"
        time.sleep(0.1)
    winner.finish()
    loser.train()
    loser.finish()
    wait_until(lambda: groups(loser) == {}, "the groups are gone with the jobs")


def test_a_lost_pod_is_placed_into_its_gang_again(new_job: NewJob) -> None:
    job = a_gang(new_job, spec__restartPolicy__mode="InPlace")
    job.train()
    before, old = groups(job), job.uids()
    job.evict("job-worker-1")
    job.wait_for_another("job-worker-1", old["job-worker-1"])
    job.train()
    assert groups(job) == before
    job.is_made_good("EvictionByEvictionAPI")


def test_a_gang_that_changes_its_size_is_placed_as_a_whole(new_job: NewJob) -> None:
    job = a_gang(new_job)
    job.train()
    (group,) = groups(job)
    job.patch({"spec": {"replicaSpecs": {"worker": {"replicas": 4}}}})
    job.wait_for_pods(attempt=2, count=4)
    time.sleep(2)
    assert (placed(job), groups(job)) == (0, {group: 4}), "there are three nodes"
    job.patch({"spec": {"replicaSpecs": {"worker": {"replicas": 3}}}})
    job.train(count=3, attempt=3)
    assert groups(job) == {group: 3}
    job.finish()


def test_a_suspended_gang_has_no_group_and_gets_another_one(new_job: NewJob) -> None:
    job = a_gang(new_job)
    job.train()
    (group,) = groups(job)
    job.patch({"spec": {"runPolicy": {"suspend": True}}})
    job.wait_for("Suspended")
    wait_until(lambda: groups(job) == {}, "the group is gone")
    job.patch({"spec": {"runPolicy": {"suspend": False}}})
    job.train(attempt=2)
    assert len(groups(job)) == 1 and group not in groups(job)
    job.finish()


def test_no_pod_comes_into_a_group_that_somebody_has_deleted(new_job: NewJob) -> None:
    job = a_gang(new_job, spec__restartPolicy__mode="InPlace")
    job.train()
    (group,) = groups(job)
    job.plane.request("DELETE", GROUPS.format(job.namespace))
    assert list(groups(job)) == [group], "its pods run"
    job.evict("job-worker-1")
    wait_until(lambda: "is being deleted" in job.status().get("message", ""), "it says what it waits for")
    job.patch({"spec": {"runPolicy": {"suspend": True}}})
    job.wait_for("Suspended")
    job.patch({"spec": {"runPolicy": {"suspend": False}}})
    job.train(attempt=2)
    assert len(groups(job)) == 1 and group not in groups(job)
    job.finish()


def test_an_operator_that_takes_over_changes_nothing(new_job: NewJob, operator: OperatorProcess) -> None:
    job = a_gang(new_job)
    job.train()
    seen = (groups(job), job.uids(), job.raw()["metadata"]["resourceVersion"])
    operator.kill()
    operator.start()
    time.sleep(4)
    assert (groups(job), job.uids(), job.raw()["metadata"]["resourceVersion"]) == seen
    job.finish()


@pytest.fixture
def priorities(control_plane: Simulation) -> Iterator[None]:
    """Give a PriorityClass `high` (1000), and one that is the cluster's default (10)."""
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    for name, value in (("high", 1000), ("usual", 10)):
        priority = {"metadata": {"name": name}, "value": value, "globalDefault": name == "usual"}
        control_plane.request("POST", path, priority)
    yield
    for name in ("high", "usual"):
        control_plane.request("DELETE", f"{path}/{name}")


@pytest.mark.usefixtures("priorities")
@pytest.mark.parametrize(
    ("named", "priority"), [({"priorityClassName": "high"}, 1000), ({}, 10)], ids=["of the job", "of the cluster"]
)
def test_a_group_has_the_priority_of_its_pods_and_changes_its_size(
    new_job: NewJob, named: dict[str, str], priority: int
) -> None:
    job = a_gang(new_job, spec__runPolicy={"scheduling": {"gang": "Native", **named}})
    pods = job.train()
    (group,) = job.plane.request("GET", GROUPS.format(job.namespace))["items"]
    assert {each["spec"]["priority"] for each in (group, *pods.values())} == {priority}
    job.patch({"spec": {"replicaSpecs": {"worker": {"replicas": 3}}}})
    job.train(count=3, attempt=2)
    job.finish()
