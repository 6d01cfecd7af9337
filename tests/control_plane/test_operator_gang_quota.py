"""A gang is created whole or not at all: ResourceQuotas of a real API server, whose admission counts the pods.

No quota controller runs: what removed pods have used is subtracted here by hand.
"""

import time

from tests.control_plane.test_operator_bad_input import set_quota
from tests.control_plane.test_operator_storage import STORAGE
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.jobs import NewJob, TrainingJob, wait_until


def use(plane: ControlPlane, namespace: str, pods: int) -> None:
    path, kind = f"/api/v1/namespaces/{namespace}/resourcequotas/pods/status", "application/merge-patch+json"
    plane.request("PATCH", path, {"status": {"used": {"pods": str(pods)}}}, kind)


def release(plane: ControlPlane, job: TrainingJob) -> None:
    """The job, and what it has used of the quota, is gone."""

    def is_gone() -> bool:
        for name in job.pods():
            job.remove_pod(name)
        return job.pods() == {}

    job.delete()
    wait_until(is_gone, "its pods are gone")
    use(plane, job.namespace, 0)


def gang(new_job: NewJob, name: str, workers: int) -> TrainingJob:
    return new_job(name, spec__replicaSpecs__worker__replicas=workers)


def test_of_two_gangs_that_do_not_fit_together_the_second_waits_with_no_pod(
    control_plane: ControlPlane, new_job: NewJob, namespace: str
) -> None:
    set_quota(control_plane, namespace, pods=6)
    jobs = [gang(new_job, name, 4) for name in ("one", "two")]
    wait_until(lambda: any(each.status().get("reason") == "WaitingForQuota" for each in jobs), "one waits")
    first, second = sorted(jobs, key=lambda each: each.status().get("reason") == "WaitingForQuota")
    first.run(count=4)
    words = "4 pods wait for room in the quota pods: they need pods=4 of 6"
    status = second.wait_for("Starting", reason="WaitingForQuota", message=words)
    assert second.pods() == {} and status.get("restarts", {}).get("counted", 0) == 0
    release(control_plane, first)
    second.run(count=4)


def test_a_gang_that_can_never_fit_is_named_and_blocks_nobody(
    control_plane: ControlPlane, new_job: NewJob, namespace: str
) -> None:
    set_quota(control_plane, namespace, pods=6)
    use(control_plane, namespace, 3)  # somebody else's pods
    large = gang(new_job, "large", 5)
    words = "5 pods never fit in the quota pods: they need pods=5 of 6, beside what others use"
    large.wait_for("Starting", reason="WaitingForQuota", message=words)
    assert large.pods() == {}
    gang(new_job, "small", 2).run(count=2)
    use(control_plane, namespace, 0)
    large.wait_for_pods(attempt=1, count=5)


def test_a_gang_that_can_never_fit_holds_no_directory(
    control_plane: ControlPlane, new_job: NewJob, namespace: str
) -> None:
    set_quota(control_plane, namespace, pods=3)
    large = new_job("large", spec__storage=STORAGE, spec__replicaSpecs__worker__replicas=5)
    large.wait_for("Starting", reason="WaitingForQuota")
    small = new_job("small", spec__storage=STORAGE)
    small.run()
    set_quota(control_plane, namespace, pods=9)
    large.wait_for("Starting", reason="StorageInUse")
    release(control_plane, small)
    large.run(count=5)


def test_the_gangs_that_wait_start_by_age(control_plane: ControlPlane, new_job: NewJob, namespace: str) -> None:
    set_quota(control_plane, namespace, pods=6)
    running = gang(new_job, "running", 4)
    running.run(count=4)
    old = gang(new_job, "old", 5)
    old.wait_for("Starting", reason="WaitingForQuota")
    time.sleep(1.1)  # creation times are whole seconds
    young = gang(new_job, "young", 2)
    words = "room in the quota pods goes to the older job old first"
    young.wait_for("Starting", reason="WaitingForQuota", message=words)
    assert young.pods() == {}
    release(control_plane, running)
    old.run(count=5)
    release(control_plane, old)
    young.run(count=2)
