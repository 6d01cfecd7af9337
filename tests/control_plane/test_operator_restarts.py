"""Recovery on a real API server: who failed, what it costs, and that two attempts never train at once."""

import time

import pytest

from tests.support.control_plane.jobs import NewJob, wait_until
from tests.support.control_plane.manifests import Manifest
from tests.support.control_plane.operator_process import OperatorProcess


def test_a_crash_restarts_the_gang_and_is_charged_once(operator: OperatorProcess, new_job: NewJob) -> None:
    job = new_job()
    old = job.run()
    with operator.frozen():  # else it may delete worker-0 before that one fails as well
        job.fail_pod("job-worker-1", 137, "epoch 2\nloss 0.5\n", reason="OOMKilled")
        job.fail_pod("job-worker-0", 1, "UnavailableError: worker-1 is gone")
    new = job.wait_for_pods(attempt=2)

    assert {pod["metadata"]["uid"] for pod in old.values()}.isdisjoint(pod["metadata"]["uid"] for pod in new.values())
    status = job.wait_for("Restarting", attempt=2)
    assert status["restarts"]["counted"] == 1 and status["restarts"]["recreated"] == 1
    assert status["lastRestart"]["pod"] == "job-worker-1"
    assert (status["lastRestart"]["exitCode"], status["lastRestart"]["signal"]) == (137, 9)
    assert status["failure"] == {
        "pod": "job-worker-1", "exitCode": 137, "signal": 9, "reason": "OOMKilled", "logTail": "epoch 2\nloss 0.5",
    }  # fmt: skip
    assert "worker-1 failed: exit code 137 (SIGKILL, OOMKilled)" in status["message"]

    job.run(attempt=2)
    status = job.wait_for("Running", attempt=2)
    assert status["lastRestart"]["downSeconds"] >= 0
    assert status["restarts"]["counted"] == 1
    wait_until(lambda: len(job.events()) == 4, "four events")
    kinds = [event[:2] for event in job.events()]
    assert kinds[2:] == [("Warning", "OOMKilled"), ("Normal", "Training")]


def test_nothing_new_is_made_while_an_old_pod_can_still_write(new_job: NewJob) -> None:
    job = new_job()
    job.wait_for_pods(attempt=1)
    for name in ("job-worker-0", "job-worker-1"):
        job.bind_pod(name)
    job.run()
    job.delete_pod("job-worker-1")
    job.wait_for("Restarting", attempt=2)
    wait_until(
        lambda: all("deletionTimestamp" in pod["metadata"] for pod in job.pods().values()), "both pods are told to stop"
    )
    job.remove_pod("job-worker-1")
    time.sleep(1)
    assert set(job.pods()) == {"job-worker-0"}
    job.remove_pod("job-worker-0")
    job.run(attempt=2)
    assert job.status()["restarts"]["counted"] == 0


def test_the_budget_ends_and_the_pods_go(new_job: NewJob) -> None:
    job = new_job(spec__restartPolicy={"maxRestarts": 1})
    job.run()
    job.fail_pod("job-worker-0", 2, "first")
    job.run(attempt=2)
    job.fail_pod("job-worker-0", 3, "ValueError: no")
    status = job.wait_for("Failed", reason="MaxRestartsExceeded")
    assert "worker-0 failed: exit code 3; no restarts left: spec.restartPolicy.maxRestarts is 1" in status["message"]
    assert status["failure"]["logTail"] == "ValueError: no"
    # The failed pod is kept for its log; the one that still ran is not.
    wait_until(lambda: set(job.pods()) == {"job-worker-0"}, "only the failed pod is left")
    wait_until(lambda: not job.objects("services"), "the Service gone")
    wait_until(lambda: job.events()[-1][:2] == ("Warning", "Failed"), "the event")


def test_a_pod_without_its_labels_is_replaced_with_its_attempt(new_job: NewJob) -> None:
    job = new_job()
    before = job.run()
    job.patch_pod("job-worker-1", {"metadata": {"labels": {"tftraining.dev/job-name": None}}})
    after = job.run(attempt=2)
    assert not {each["metadata"]["uid"] for each in before.values()} & {
        each["metadata"]["uid"] for each in after.values()
    }
    restarts = job.status()["restarts"]
    assert (restarts["counted"], restarts["disruptions"], restarts["recreated"]) == (0, 1, 1)


@pytest.mark.parametrize("name", ["job-worker-0", "job-worker-1"])
def test_a_pod_without_its_labels_is_labelled_again_where_launchers_train_on(new_job: NewJob, name: str) -> None:
    job = new_job(spec__restartPolicy={"mode": "InPlace"})
    before = uids(job.run())
    job.patch_pod(name, {"metadata": {"labels": {"tftraining.dev/job-name": None, "tftraining.dev/role": None}}})
    wait_until(lambda: job.status()["restarts"].get("disruptions") == 1, "it is missed")
    wait_until(lambda: uids(job.pods()) == before, "it is labelled again")
    job.wait_for("Running", ready="2/2", attempt=1)


@pytest.mark.parametrize("label", ["attempt", "index", "role"])
def test_a_pod_whose_labels_belie_it_is_mended_too(new_job: NewJob, label: str) -> None:
    job = new_job(spec__restartPolicy={"mode": "InPlace"})
    before = uids(job.run())
    job.patch_pod("job-worker-1", {"metadata": {"labels": {f"tftraining.dev/{label}": "none"}}})
    wait_until(lambda: job.status()["restarts"].get("disruptions") == 1, "it is missed")
    if label == "attempt":
        wait_until(lambda: set(now := uids(job.pods())) == set(before) and now != before, "it is recreated")
        job.run_pod("job-worker-1")
    job.wait_for("Running", ready="2/2", attempt=1)
    assert uids(job.pods())["job-worker-0"] == before["job-worker-0"]
    assert (uids(job.pods()) == before) == (label != "attempt")


def test_a_service_without_its_labels_is_labelled_again(new_job: NewJob) -> None:
    job = new_job()
    job.run()
    uid = uids(job.objects("services"))["job"]
    bare = {"metadata": {"labels": {"tftraining.dev/job-name": None}}}
    path = f"/api/v1/namespaces/{job.namespace}/services/job"
    job.plane.request("PATCH", path, bare, "application/merge-patch+json")
    wait_until(lambda: "tftraining.dev/job-name" in job.objects("services")["job"]["metadata"]["labels"], "it is again")
    assert uids(job.objects("services"))["job"] == uid
    job.wait_for("Running", ready="2/2", attempt=1)


def uids(objects: dict[str, Manifest]) -> dict[str, str]:
    return {name: each["metadata"]["uid"] for name, each in objects.items()}
