"""How jobs end: deleted in each of kubectl's ways, expired, with their namespace; the collectors are the real ones."""

import pytest

from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.jobs import wait_until
from tests.support.kwok.jobs import NewJob, SimulatedJob

# kind: path of its list
OWNED = {
    "pods": "/api/v1/namespaces/{}/pods",
    "services": "/api/v1/namespaces/{}/services",
    "secrets": "/api/v1/namespaces/{}/secrets",
    "networkpolicies": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
}


def left(job: SimulatedJob) -> dict[str, list[str]]:
    """The names of what is in the namespace, by kind; kinds of which there is nothing are left out."""
    found = {
        kind: sorted(each["metadata"]["name"] for each in job.plane.request("GET", path.format(job.namespace))["items"])
        for kind, path in OWNED.items()
    }
    return {kind: names for kind, names in found.items() if names}


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_a_deleted_job_takes_along_all_that_it_owns(new_job: NewJob, cascade: str) -> None:
    job = new_job(spec__restartPolicy={"mode": "InPlace"})
    job.train()
    assert set(left(job)) == set(OWNED)
    job.plane.kubectl("delete", "tftj/job", f"--cascade={cascade}", "--namespace", job.namespace)
    assert job.is_gone()
    wait_until(lambda: not left(job), f"nothing is left: {left(job)}")
    assert "PodDeleted" not in {event[1] for event in job.events()}


def test_what_is_left_of_a_job_whose_pods_are_orphaned_is_in_the_way_and_named(new_job: NewJob) -> None:
    job = new_job()
    job.train()
    old = job.uids()
    job.plane.kubectl("delete", "tftj/job", "--cascade=orphan", "--namespace", job.namespace)
    wait_until(lambda: not any("ownerReferences" in pod["metadata"] for pod in job.pods().values()), "they are orphans")
    assert job.uids() == old
    job.create()
    words = "service/job: already exists and does not belong to this job: delete it, or rename the job"
    wait_until(lambda: words in job.status().get("message", ""), f"it is named: {job.status()}")
    for kind in ("pods", "services", "networkpolicies"):
        job.plane.kubectl("delete", kind, "--all", "--namespace", job.namespace)
    job.train()
    job.finish()


@pytest.mark.slow_fault
def test_a_namespace_takes_along_its_jobs(new_job: NewJob, control_plane: ControlPlane) -> None:
    job = new_job(spec__restartPolicy={"mode": "InPlace"})
    job.train()
    control_plane.kubectl("delete", "namespace", job.namespace, "--timeout=60s")
    assert job.is_gone() and not left(job)


def test_an_expired_job_takes_along_what_it_kept(new_job: NewJob) -> None:
    job = new_job(
        spec__restartPolicy={"mode": "Recreate", "maxRestarts": 0},
        spec__storage={"volume": {"nfs": {"server": "files", "path": "/"}}},
    )
    job.train()
    job.tell_program("job-worker-1", 3, "out of luck")
    status = job.wait_for("Failed")
    assert (status["failure"]["exitCode"], status["failure"]["logTail"]) == (3, "out of luck")
    wait_until(lambda: job.condition("Cleaned").get("status") == "True", "the directories are cleaned")
    wait_until(lambda: list(job.pods()) == ["job-worker-1"], "the failed pod is kept for its log")
    job.patch({"spec": {"runPolicy": {"ttlSecondsAfterFinished": 1}}})
    wait_until(job.is_gone, "the job has expired")
    wait_until(lambda: not left(job), "nothing is left")


def test_the_same_name_again_at_once(new_job: NewJob) -> None:
    job = new_job(spec__restartPolicy={"mode": "InPlace"})
    job.train()
    old = job.uids()
    job.plane.kubectl("delete", "tftj/job", "--namespace", job.namespace)
    job.create({"spec.restartPolicy.mode": "InPlace"})
    pods = job.train()
    assert not set(old.values()) & set(job.uids().values())
    owner = job.raw()["metadata"]["uid"]
    assert {pod["metadata"]["ownerReferences"][0]["uid"] for pod in pods.values()} == {owner}
    assert job.status()["restarts"] == {"counted": 0}
    job.finish()
