"""Gangs that are placed as a whole, or not at all, by the coscheduling plugin itself (see coscheduling.py)."""

import time

import pytest

from tests.support.control_plane.jobs import wait_until
from tests.support.kwok import coscheduling
from tests.support.kwok.jobs import NewJob, SimulatedJob

pytestmark = [pytest.mark.slow_fault, pytest.mark.usefixtures("with_coscheduling")]
PLACING_SECONDS = 90.0  # what the plugin has turned away it looks at again after a while


def a_gang(new_job: NewJob, name: str, /, **changes: object) -> SimulatedJob:
    """A job of two workers that are to be placed together; the test has three nodes, and each takes one worker."""
    scheduling = {"podGroup": {"apiVersion": coscheduling.API}}
    return new_job(name, **{"spec__runPolicy": {"scheduling": scheduling}, **changes})


def placed(job: SimulatedJob) -> int:
    """How many of its pods have a node."""
    return sum(1 for pod in job.pods().values() if pod["spec"].get("nodeName"))


def groups(job: SimulatedJob) -> dict[str, object]:
    """The specs of the PodGroups in its namespace, by name."""
    path = f"/apis/{coscheduling.API}/namespaces/{job.namespace}/podgroups"
    return {each["metadata"]["name"]: each["spec"] for each in job.plane.request("GET", path)["items"]}


def test_a_gang_that_does_not_fit_starts_no_pod_until_it_does(new_job: NewJob) -> None:
    first = a_gang(new_job, "first")
    first.train()
    second = a_gang(new_job, "second")
    wait_until(lambda: "cannot be scheduled" in second.status().get("message", ""), "it says what it waits for")
    time.sleep(2)
    assert placed(second) == 0, "one of them would have had a node"
    first.finish()
    second.train()
    second.finish()
    wait_until(lambda: groups(second) == {}, "the groups are gone with the jobs")


def test_gangs_that_compete_do_not_hold_nodes_against_each_other(new_job: NewJob) -> None:
    jobs = [a_gang(new_job, name) for name in ("a", "b")]
    wait_until(lambda: any(placed(job) == 2 for job in jobs), "one is placed", PLACING_SECONDS)
    loser, winner = sorted(jobs, key=placed)
    winner.train()
    assert placed(loser) == 0
    winner.finish()
    loser.train()
    loser.finish()


def test_a_lost_pod_is_placed_into_its_gang_again(new_job: NewJob) -> None:
    job = a_gang(new_job, "job", spec__restartPolicy__mode="InPlace")
    job.train()
    (name,) = groups(job)
    old = job.uids()
    job.evict("job-worker-1")
    job.wait_for_another("job-worker-1", old["job-worker-1"])
    job.train()
    assert list(groups(job)) == [name]
    job.is_made_good("EvictionByEvictionAPI")


def test_a_gang_that_grows_is_placed_as_a_whole(new_job: NewJob) -> None:
    job = a_gang(new_job, "job")
    job.train()
    job.patch({"spec": {"replicaSpecs": {"worker": {"replicas": 4}}}})
    job.wait_for_pods(attempt=2, count=4)
    time.sleep(2)
    assert placed(job) == 0, "there are three nodes"
    job.patch({"spec": {"replicaSpecs": {"worker": {"replicas": 3}}}})
    job.train(count=3, attempt=3)
    job.finish()
