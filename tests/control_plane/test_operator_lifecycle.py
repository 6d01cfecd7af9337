"""Suspension, deadlines, expiry and success policies on a real API server, with the rights that the chart gives."""

import time

from tests.support.control_plane.jobs import NewJob, TrainingJob, wait_until
from tests.support.control_plane.manifests import template
from tests.support.control_plane.operator_process import OperatorProcess

CLAIM = {"volume": {"persistentVolumeClaim": {"claimName": "data"}}}
WAITING = {"reason": "ErrImagePull", "message": "no such image"}


def run_policy(job: TrainingJob, **fields: object) -> None:
    """A person changes spec.runPolicy."""
    job.patch({"spec": {"runPolicy": fields}})


def hold_pod(job: TrainingJob, name: str) -> None:
    """The pod cannot get its image."""
    entry = {"name": "tensorflow", "image": "x", "imageID": "", "restartCount": 0, "ready": False}
    job.patch_pod(name, {"status": {"containerStatuses": [{**entry, "state": {"waiting": WAITING}}]}}, "/status")


def test_a_job_that_is_created_suspended_has_nothing_until_it_is_resumed(new_job: NewJob) -> None:
    job = new_job(spec__runPolicy={"suspend": True})
    status = job.wait_for("Suspended", ready="0/2")
    assert "startTime" not in status and job.condition("Suspended")["status"] == "True"
    assert job.pods() == {} and job.objects("services") == {}
    run_policy(job, suspend=False)
    job.run()
    assert job.status()["startTime"] and job.condition("Suspended")["status"] == "False"
    wait_until(lambda: len(job.events()) == 3, "three events")
    assert [event[1] for event in job.events()] == ["Suspended", "Resumed", "Training"]


def test_a_suspended_job_frees_its_pods_is_cleaned_and_goes_on_as_it_was_changed(new_job: NewJob) -> None:
    job = new_job(spec__storage=CLAIM)
    job.wait_for_pods(attempt=1)
    for name in ("job-worker-0", "job-worker-1"):
        job.bind_pod(name)
    job.run()
    began = job.status()["startTime"]
    run_policy(job, suspend=True)
    status = job.wait_for("Suspended", message="suspended: waiting for worker-0 to stop")
    assert status["replicas"]["worker"]["active"] == 2
    wait_until(
        lambda: all(
            pod["metadata"].get("deletionGracePeriodSeconds") == pod["spec"]["terminationGracePeriodSeconds"]
            for pod in job.pods().values()
        ),
        "both pods are told to stop within their own grace",
    )
    for name in ("job-worker-0", "job-worker-1"):
        job.remove_pod(name)
    wait_until(lambda: set(job.pods()) == {"job-cleanup"}, "the cleanup")
    job.succeed_pod("job-cleanup", '{"removed": 1}')
    wait_until(lambda: job.condition("Cleaned").get("status") == "True" and not job.pods(), "cleaned, and no pod left")

    job.patch({"spec": {"template": template(image="trainer:2"), "replicaSpecs": {"worker": {"replicas": 1}}}})
    time.sleep(1.1)  # times of whole seconds
    run_policy(job, suspend=False)
    (pod,) = job.run(attempt=2, count=1).values()
    assert pod["spec"]["containers"][0]["image"] == "trainer:2"
    status = job.wait_for("Running", ready="1/1")
    assert status["startTime"] > began and status["restarts"] == {"counted": 0}
    assert job.condition("Cleaned") == {}


def test_a_job_that_runs_too_long_fails(new_job: NewJob) -> None:
    job = new_job()
    job.run()
    run_policy(job, activeDeadlineSeconds=3)
    status = job.wait_for("Failed", reason="DeadlineExceeded")
    assert status["message"] == "not finished after 3 s (spec.runPolicy.activeDeadlineSeconds)"
    wait_until(lambda: job.pods() == {} and job.objects("services") == {}, "nothing is left")


def test_deadlines_pass_while_the_operator_is_down(new_job: NewJob, operator: OperatorProcess) -> None:
    long, late, done = new_job("long"), new_job("late"), new_job("done")
    for job in (long, done):
        job.run()
    late.wait_for_pods(attempt=1)
    operator.kill()
    for job in (long, done):
        run_policy(job, activeDeadlineSeconds=3)
    run_policy(late, startDeadlineSeconds=3)
    hold_pod(late, "late-worker-1")
    done.succeed_pod("done-worker-0")
    time.sleep(4)
    operator.start()
    long.wait_for("Failed", reason="DeadlineExceeded")
    done.wait_for("Succeeded")
    status = late.wait_for("Failed", reason="StartDeadlineExceeded")
    assert "worker-1: container tensorflow: image pull failed (x): no such image" in status["message"]


def test_a_change_in_a_suspension_that_the_operator_missed(new_job: NewJob, operator: OperatorProcess) -> None:
    job, same = new_job(), new_job("same")
    for each in (job, same):
        each.run()
    with operator.frozen():
        for each in (job, same):
            run_policy(each, suspend=True)
        job.patch({"spec": {"template": template(image="trainer:2")}})
        for each in (job, same):
            run_policy(each, suspend=False)
    pods = job.run(attempt=2)
    assert {pod["spec"]["containers"][0]["image"] for pod in pods.values()} == {"trainer:2"}
    assert job.status()["lastRestart"]["reason"] == "SpecChanged"
    assert (same.status()["attempt"], same.status()["phase"]) == (1, "Running")
