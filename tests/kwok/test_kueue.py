"""Jobs in a queue of Kueue itself: admitted as a whole, kept waiting, preempted, let go (see kueue.py).

The pods have launchers in their manifests but none runs: what a launcher does meanwhile is for the other tiers.
"""

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.support.control_plane.jobs import wait_until
from tests.support.kwok import coscheduling, kueue
from tests.support.kwok.jobs import NewJob, SimulatedJob, spread
from tests.support.kwok.kueue import Queue
from tests.support.kwok.simulation import Simulation

pytestmark = [pytest.mark.slow_fault, pytest.mark.usefixtures("with_kueue")]
Manifest = dict[str, Any]
KEPT_SECONDS = 3.0
WAITS = "waiting for quota: scheduling gated"
# Kubernetes looks for deleted pods that never had a node every 20 s, and Kueue lets go of them only when that is done.
NEVER_PLACED_SECONDS = 90.0


@pytest.fixture
def queue(control_plane: Simulation, namespace: str, with_kueue: None) -> Iterator[Queue]:
    """The queue `research` of the namespace, with room for three pods; what Kueue said is shown when the test fails."""
    yield Queue(control_plane, namespace, pods=3)
    print(control_plane.kubectl("get", "events", "--namespace", namespace))


def queued(new_job: NewJob, name: str = "job", /, priority: str = "", **changes: object) -> SimulatedJob:
    """A job of two workers with launchers, in that queue."""
    labels = {kueue.QUEUE: "research"} | ({kueue.PRIORITY: priority} if priority else {})
    return new_job(name, **{"metadata__labels": labels, "spec__restartPolicy__mode": "InPlace", **changes})


def waits(job: SimulatedJob, queue: Queue) -> None:
    """Its pods are held back, it says why, and Kueue knows of it."""
    wait_until(lambda: WAITS in job.status().get("message", ""), f"it says what it waits for: {job.status()}")
    wait_until(lambda: group(job) in queue.workloads(), "Kueue has its Workload")
    assert {pod["spec"].get("nodeName") for pod in job.pods().values()} == {None}


def group(job: SimulatedJob) -> str:
    """The name of the group of its pods."""
    (name,) = {pod["metadata"]["labels"][kueue.GROUP] for pod in job.pods().values()}
    return str(name)


def placed(job: SimulatedJob, name: str) -> Manifest:
    """The pod of that name, once Kueue has admitted it and it has a node; empty before."""
    found: Manifest = job.pods().get(name, {})
    return found if found.get("spec", {}).get("nodeName") else {}


def is_gone(job: SimulatedJob, name: str) -> bool:
    return name not in job.pods()


def evaluates(job: SimulatedJob) -> bool:
    return bool(job.status()["replicas"]["evaluator"].get("ready"))


def leaves_nothing(queue: Queue, *jobs: SimulatedJob) -> None:
    """Neither pods nor Workloads are left, and all quota is free."""
    wait_until(lambda: not any(job.pods() for job in jobs), "no pod is left", NEVER_PLACED_SECONDS)
    wait_until(lambda: not queue.workloads() and not queue.reserved(), "no Workload is left")


def test_a_job_is_admitted_as_a_whole_and_the_next_one_waits_for_its_end(new_job: NewJob, queue: Queue) -> None:
    first = queued(new_job, "first")
    first.train()
    second = queued(new_job, "second", spec__runPolicy={"startDeadlineSeconds": 4})
    waits(second, queue)
    wait_until(lambda: queue.reserved() == 2, "the quota of the first is taken")
    time.sleep(5)  # the deadline counts from its admission
    assert first.finish()["restarts"]["counted"] == 0
    second.train()
    second.finish()
    wait_until(lambda: queue.reserved() == 0, "all quota is free")


def test_what_is_admitted_and_finds_no_node_fails_by_the_start_deadline(new_job: NewJob, queue: Queue) -> None:
    nowhere = spread("nowhere")
    job = queued(new_job, spec__runPolicy={"startDeadlineSeconds": 3}, spec__template=nowhere)
    status = job.wait_for("Failed", reason="StartDeadlineExceeded")
    assert "worker-0: cannot be scheduled: 0/" in status["message"]
    wait_until(lambda: queue.reserved() == 0, "its quota is free")


@pytest.mark.parametrize("how", ["deleted", "evicted"])
def test_the_successor_of_a_lost_pod_is_admitted_and_the_others_stay(new_job: NewJob, queue: Queue, how: str) -> None:
    job = queued(new_job)
    job.train()
    first, before = group(job), job.uids()
    admitted = queue.admitted_at(first)
    (job.evict if how == "evicted" else job.delete_pod)("job-worker-1")
    successor = wait_until(lambda: placed(job, "job-worker-1-r1"), "the successor has its quota and a node")
    assert (successor["spec"]["hostname"], successor["spec"]["subdomain"]) == ("job-worker-1", "job")
    wait_until(lambda: "job-worker-1" not in job.pods(), "Kueue lets go of the lost pod")
    job.train()
    assert (group(job), queue.admitted_at(first)) == (first, admitted), "it never left the queue"
    assert job.uids()["job-worker-0"] == before["job-worker-0"]
    wait_until(lambda: queue.reserved() == 2, "its quota is as it was")
    job.is_made_good("EvictionByEvictionAPI" if how == "evicted" else "PodDeleted")
    job.delete()
    leaves_nothing(queue, job)


def test_a_pod_that_is_lost_twice_counts_on(new_job: NewJob, queue: Queue) -> None:
    job = queued(new_job)
    job.train()
    before = job.uids()["job-worker-0"]
    for lost, successor in (("job-worker-1", "job-worker-1-r1"), ("job-worker-1-r1", "job-worker-1-r2")):
        job.delete_pod(lost)
        wait_until(partial(placed, job, successor), f"{successor} has its quota and a node")
        wait_until(partial(is_gone, job, lost), f"Kueue lets go of {lost}")
        job.train()
    assert set(job.pods()) == {"job-worker-0", "job-worker-1-r2"}
    assert job.uids()["job-worker-0"] == before
    assert job.status()["successors"] == {"worker-1": 2}
    job.finish()


def test_a_gang_of_which_every_pod_is_lost_queues_anew(new_job: NewJob, queue: Queue) -> None:
    job = queued(new_job)
    job.train()
    first = group(job)
    time.sleep(1.1)  # pods tell seconds only: one that may have been created after the first loss is a loss of its own
    job.delete_pod("job-worker-0")
    job.delete_pod("job-worker-1")
    job.train(attempt=2)
    assert group(job) != first
    wait_until(lambda: queue.reserved() == 2, "the first group has given its quota back")
    job.is_made_good("PodDeleted", told=2)  # the loss of one pod, seen before that of the next, and that of the gang


def test_a_job_that_is_preempted_gives_its_pods_up_free_of_charge_and_returns(
    new_job: NewJob, queue: Queue, priorities: None
) -> None:
    low = queued(new_job, "low", priority="low")
    low.train()
    high = queued(new_job, "high", priority="high")
    high.train()
    status = low.wait_for("Restarting", attempt=2)
    assert status["lastRestart"]["reason"] == "WorkloadEvictedDueToPreempted"
    waits(low, queue)
    high.finish()
    low.train(attempt=2)
    low.is_made_good("WorkloadEvictedDueToPreempted")


@pytest.fixture
def priorities(control_plane: Simulation) -> None:
    """WorkloadPriorityClasses `low` and `high`."""
    for name, value in (("low", 1), ("high", 2)):
        kueue.create(control_plane, "WorkloadPriorityClass", name, value=value, description="of the tests")


def test_a_suspended_job_gives_its_place_to_the_next_and_queues_anew(new_job: NewJob, queue: Queue) -> None:
    first = queued(new_job, "first")
    first.train()
    second = queued(new_job, "second")
    waits(second, queue)
    first.patch({"spec": {"runPolicy": {"suspend": True}}})
    first.wait_for("Suspended")
    second.train()
    first.patch({"spec": {"runPolicy": {"suspend": False}}})
    waits(first, queue)
    second.finish()
    first.train(attempt=2)
    first.finish()


def test_a_job_that_is_suspended_while_it_waits_leaves_the_queue(new_job: NewJob, queue: Queue) -> None:
    first = queued(new_job, "first")
    first.train()
    second = queued(new_job, "second")
    waits(second, queue)
    second.patch({"spec": {"runPolicy": {"suspend": True}}})
    second.wait_for("Suspended")
    wait_until(lambda: not second.pods(), "no pod is left", NEVER_PLACED_SECONDS)
    wait_until(lambda: len(queue.workloads()) == 1, "only the other one is queued")
    second.patch({"spec": {"runPolicy": {"suspend": False}}})
    first.finish()
    second.train(attempt=second.status()["attempt"])
    second.finish()


def test_deleted_jobs_leave_no_pod_and_no_workload(new_job: NewJob, queue: Queue) -> None:
    first = queued(new_job, "first")
    first.train()
    second = queued(new_job, "second")
    waits(second, queue)
    first.delete()
    second.delete()
    leaves_nothing(queue, first, second)


def test_a_job_of_another_size_is_another_group(new_job: NewJob, queue: Queue) -> None:
    job = queued(new_job)
    job.train()
    job.patch({"spec": {"replicaSpecs": {"worker": {"replicas": 3}}}})
    job.train(count=3, attempt=2)
    wait_until(lambda: queue.reserved() == 3, "the larger group has its quota, the smaller none")
    restarts = job.finish()["restarts"]
    assert (restarts["counted"], restarts.get("disruptions", 0)) == (0, 0)


@pytest.mark.usefixtures("with_coscheduling")
def test_a_gang_is_queued_as_a_whole_and_then_placed_as_a_whole(new_job: NewJob, queue: Queue) -> None:
    together = {"scheduling": {"podGroup": {"apiVersion": coscheduling.API}}}
    first = queued(new_job, "first", spec__runPolicy=together)
    first.train()
    second = queued(new_job, "second", spec__runPolicy=together)
    waits(second, queue)
    first.finish()
    second.train()
    assert {pod["spec"]["schedulerName"] for pod in second.pods().values()} == {coscheduling.NAME}
    second.finish()


def test_the_evaluator_is_queued_and_lost_by_itself(new_job: NewJob, queue: Queue) -> None:
    roles = {"worker": {"replicas": 2}, "evaluator": {"replicas": 1}}
    job = queued(new_job, spec__replicaSpecs=roles)
    job.wait_for("Running", ready="2/2")
    wait_until(lambda: evaluates(job), "the evaluator runs")
    old = job.uids()
    job.delete_pod("job-evaluator-0")
    job.wait_for_another("job-evaluator-0", old["job-evaluator-0"])
    wait_until(lambda: evaluates(job), "the next evaluator runs")
    assert {**job.uids(), "job-evaluator-0": ""} == {**old, "job-evaluator-0": ""}
    job.finish()


def test_a_failed_job_keeps_its_pods_but_no_quota(new_job: NewJob, queue: Queue) -> None:
    job = queued(new_job, spec__restartPolicy={"mode": "Recreate", "maxRestarts": 0})
    job.train()
    job.tell_program("job-worker-1", 1, "no such file")
    job.wait_for("Failed", reason="MaxRestartsExceeded")
    assert "job-worker-1" in job.pods()
    wait_until(lambda: queue.reserved() == 0, "its quota is free")
    job.delete()
    leaves_nothing(queue, job)


def test_the_pods_that_a_job_leaves_running_keep_their_quota(new_job: NewJob, queue: Queue) -> None:
    job = queued(new_job, spec__restartPolicy={"mode": "Recreate"}, spec__runPolicy={"cleanPodPolicy": "None"})
    job.train()
    job.finish()
    next_one = queued(new_job, "next", spec__replicaSpecs={"worker": {"replicas": 3}})
    waits(next_one, queue)
    time.sleep(KEPT_SECONDS)
    assert job.pods()["job-worker-1"]["status"]["phase"] == "Running" and queue.reserved() >= 1
    assert not any(pod["spec"].get("nodeName") for pod in next_one.pods().values())
    job.delete()
    next_one.train(count=3)


def test_a_queued_gang_on_a_node_that_falls_silent_goes_on_elsewhere(new_job: NewJob, queue: Queue) -> None:
    job = queued(new_job, spec__runPolicy={"nodeLostSeconds": 2})
    job.train()
    node = job.node_of("job-worker-1")
    node.silence()
    wait_until(lambda: placed(job, "job-worker-1-r1"), "its successor has a node")
    job.train()
    assert job.node_of("job-worker-1-r1").name != node.name
    job.is_made_good("NodeLost")
