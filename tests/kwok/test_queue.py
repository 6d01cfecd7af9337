"""Jobs in a queue: held by scheduling gates as a whole, preempted as a whole, on the real scheduler (see queue.py)."""

import time

import pytest

from tests.control_plane.jobs import wait_until
from tests.kwok import queue
from tests.kwok.jobs import NewJob, SimulatedJob
from tests.kwok.simulation import Simulation

QUEUED = {queue.QUEUE: "research"}


@pytest.fixture(scope="session", autouse=True)
def _queue(control_plane: Simulation) -> None:
    queue.install(control_plane)


def a_queued_job(new_job: NewJob, **policy: object) -> SimulatedJob:
    """A job with launchers whose pods wait for their quota."""
    job = new_job(metadata__labels=QUEUED, spec__restartPolicy__mode="InPlace", spec__runPolicy=policy)
    job.wait_for_pods(attempt=1)
    words = "waits for its quota: a scheduling gate is still on it"
    wait_until(lambda: words in job.status().get("message", ""), "the job says what it waits for")
    return job


def test_the_time_in_the_queue_is_none_of_the_start_deadline(new_job: NewJob) -> None:
    job = a_queued_job(new_job, startDeadlineSeconds=1)
    time.sleep(2)
    assert job.wait_for("Starting")["ready"] == "0/2"
    assert {pod["spec"].get("nodeName") for pod in job.pods().values()} == {None}
    queue.admit(job)
    job.train()
    job.finish()


def test_a_preempted_gang_queues_anew_when_its_names_are_free(new_job: NewJob) -> None:
    job = a_queued_job(new_job)
    first = queue.admit(job)
    job.train()
    for pod in job.pods():
        job.delete_pod(pod)
    status = job.wait_for("Restarting", reason="PodDeleted", attempt=2)
    assert status["restarts"].items() >= {"counted": 0, "disruptions": 1}.items()
    assert set(queue.groups(job)) == {first}, "Kueue holds the old pods, and so their names"
    queue.let_go(job, first)
    second = queue.admit(job)
    assert second != first
    job.train(attempt=2)
    job.finish()


def test_a_lost_pod_of_a_queued_gang_takes_the_others_along(new_job: NewJob) -> None:
    job = a_queued_job(new_job)
    first = queue.admit(job)
    job.train()
    job.evict("job-worker-1")
    queue.let_go(job, first)
    second = queue.admit(job)
    job.train(attempt=2)
    assert (second != first, job.status()["lastRestart"]["reason"]) == (True, "EvictionByEvictionAPI")
    job.finish()


def test_a_suspended_job_leaves_the_queue(new_job: NewJob) -> None:
    job = a_queued_job(new_job)
    job.patch({"spec": {"runPolicy": {"suspend": True}}})
    job.wait_for("Suspended")
    for pod in job.pods():
        job.patch_pod(pod, {"metadata": {"finalizers": None}})
    wait_until(lambda: job.pods() == {}, "no pod is left")
    job.patch({"spec": {"runPolicy": {"suspend": False}}})
    queue.admit(job)
    job.train(attempt=job.status()["attempt"])
    job.finish()
