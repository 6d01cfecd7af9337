"""The main road of a job on a real API server: start, training, success, cleanup, and what people see of it."""

import json
import time
from typing import Any

from tests.support.control_plane.jobs import NewJob, wait_until
from tests.support.control_plane.manifests import template
from tests.support.control_plane.operator_process import OperatorProcess

CLAIM = {"volume": {"persistentVolumeClaim": {"claimName": "data"}}}


def writes(operator: OperatorProcess) -> float:
    """Requests so far that changed something, or tried to."""
    methods = ("POST", "PUT", "PATCH", "DELETE")
    return sum(operator.metric(f'tftraining_api_requests_total{{method="{each}"}}') for each in methods)


def is_calm(operator: OperatorProcess) -> bool:
    """Whether it writes nothing for a second and a half."""
    before = writes(operator)
    time.sleep(1.5)
    return writes(operator) == before


def environment(pod: dict[str, Any]) -> dict[str, str]:
    """The environment of the training container."""
    return {each["name"]: each.get("value", "") for each in pod["spec"]["containers"][0]["env"]}


def test_a_job_starts_service_first_and_runs(new_job: NewJob) -> None:
    job = new_job()
    pods = job.wait_for_pods(attempt=1)
    service = job.objects("services")["job"]

    assert sorted(pods) == ["job-worker-0", "job-worker-1"]
    assert all(
        int(service["metadata"]["resourceVersion"]) < int(pod["metadata"]["resourceVersion"]) for pod in pods.values()
    )
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"] is True
    for index in range(2):
        pod = pods[f"job-worker-{index}"]
        config = json.loads(environment(pod)["TF_CONFIG"])
        assert config["task"] == {"type": "worker", "index": index}
        assert config["cluster"]["worker"] == [f"job-worker-{i}.job.{job.namespace}.svc:2222" for i in range(2)]
        assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == (f"job-worker-{index}", "job")
        owner = pod["metadata"]["ownerReferences"][0]
        assert owner["uid"] == job.raw()["metadata"]["uid"] and owner["controller"] is True
    status = job.wait_for("Starting", reason="PodsStarting")
    assert status["message"] == "waiting for worker-0, worker-1 to start"

    job.run_pod("job-worker-0")
    job.wait_for("Starting", ready="1/2")
    job.run_pod("job-worker-1")
    status = job.wait_for("Running", ready="2/2")
    assert job.condition("Ready")["status"] == "True"
    assert status["replicas"]["worker"] == {"desired": 2, "active": 2, "ready": 2, "highest": 1}
    wait_until(lambda: len(job.events()) == 2, "two events")
    assert [event[:2] for event in job.events()] == [("Normal", "Started"), ("Normal", "Training")]


def test_what_a_kubelet_says_of_an_image_is_in_the_status_at_once(new_job: NewJob) -> None:
    """First it says so in an event, and then in the pod's status: that is one cause, and one Warning."""
    job = new_job()
    pods = job.wait_for_pods(attempt=1)
    entry = {"name": "tensorflow", "image": "trainer:1", "imageID": "", "restartCount": 0, "ready": False}

    def say(reason: str, message: str = "") -> None:
        state = {"waiting": {"reason": reason, "message": message}}
        change = {"status": {"containerStatuses": [{**entry, "state": state}]}}
        job.patch_pod("job-worker-1", change, "/status")

    say("ContainerCreating")
    words = 'failed to pull and unpack image "trainer:1": not found'
    about = {
        "kind": "Pod",
        "namespace": job.namespace,
        "name": "job-worker-1",
        "fieldPath": "spec.containers{tensorflow}",
    }
    event = {
        "metadata": {"generateName": "job-worker-1.", "namespace": job.namespace},
        "involvedObject": {**about, "uid": pods["job-worker-1"]["metadata"]["uid"]},
        "type": "Warning", "reason": "Failed", "message": f'Failed to pull image "trainer:1": {words}',
    }  # fmt: skip
    job.plane.request("POST", f"/api/v1/namespaces/{job.namespace}/events", event)
    told = f"worker-1: container tensorflow: image pull failed (trainer:1): {words}"
    job.wait_for("Starting", reason="PodsNotReady", message=told)
    say("ErrImagePull", words)
    say("ImagePullBackOff", f'Back-off pulling image "trainer:1": ErrImagePull: {words}')
    say("ErrImagePull", words + " either")
    job.wait_for("Starting", message=told + " either")
    warnings = wait_until(lambda: [event[1:] for event in job.events() if event[0] == "Warning"], "the warning")
    assert warnings == [("PodsNotReady", told)]


def test_success_cleans_up_with_the_trainings_own_user(new_job: NewJob) -> None:
    user = {"spec": {**template()["spec"], "securityContext": {"runAsUser": 1234, "runAsGroup": 4321}}}
    job = new_job(spec__storage=CLAIM, spec__template=user)
    job.run()
    job.succeed_pod("job-worker-0")
    status = job.wait_for("Succeeded", ready="2/2")
    assert status["completionTime"] and status["reason"] == "ChiefSucceeded"

    cleanup = wait_until(lambda: job.pods().get("job-cleanup"), "the cleanup pod")
    assert cleanup is not None
    assert set(job.pods()) == {"job-worker-0", "job-cleanup"}, "it waits for the pods that can still write"
    container = cleanup["spec"]["containers"][0]
    assert container["image"] == "operator-image"
    assert container["command"][:5] == ["python3", "-m", "tftraining.cleanup", "--root", "/training/job"]
    assert container["command"][-2:] == ["--save-dir=.", "--index=1"]
    assert cleanup["spec"]["securityContext"]["runAsUser"] == 1234
    assert cleanup["spec"]["securityContext"]["runAsGroup"] == 4321
    assert cleanup["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "data"}

    job.succeed_pod("job-cleanup", '{"removed": 1, "failed": []}')
    status = job.wait_for("Succeeded", cleanup={"removed": 1, "message": "removed 1 temporary save directory"})
    assert job.condition("Cleaned")["status"] == "True"
    wait_until(
        lambda: not job.objects("services") and set(job.pods()) == {"job-worker-0"}, "Service and cleanup pod gone"
    )
    wait_until(lambda: ("Normal", "Succeeded") in [event[:2] for event in job.events()], "the event")


def test_an_idle_job_costs_no_request(new_job: NewJob, operator: OperatorProcess) -> None:
    job = new_job()
    job.run()
    wait_until(lambda: job.status()["replicas"]["worker"].get("ready") == 2, "the counts are written")
    waiting = new_job("waiting")
    waiting.wait_for("Starting", reason="PodsStarting")
    wait_until(lambda: waiting.status()["replicas"]["worker"].get("active") == 2, "the counts are written")
    wait_until(lambda: is_calm(operator), "nothing is on its way any more")
    before, read = writes(operator), operator.metric('tftraining_api_requests_total{method="GET"}')
    time.sleep(4)
    assert writes(operator) == before
    # A watch may end and begin again just now, nothing else.
    assert operator.metric('tftraining_api_requests_total{method="GET"}') <= read + 2


def test_the_metrics_tell_of_phases_restarts_and_recoveries(new_job: NewJob, operator: OperatorProcess) -> None:
    name = 'tftraining_restarts_total{charged="true",mode="Recreate",reason="OOMKilled"}'
    before = operator.metric(name), operator.metric("tftraining_recovery_seconds_count")
    job = new_job()
    job.run()
    # The API server has the status before the operator has its answer.
    wait_until(lambda: operator.metric('tftraining_jobs{phase="Running"}') >= 1, "the metric knows the job")
    job.fail_pod("job-worker-1", 137, reason="OOMKilled")
    job.run(attempt=2)
    wait_until(lambda: operator.metric("tftraining_recovery_seconds_count") > before[1], "the metric of the recovery")
    assert operator.metric(name) == before[0] + 1
    assert operator.metric("tftraining_recovery_seconds_count") == before[1] + 1
    assert operator.metric("tftraining_reconcile_seconds_count") > 0
    assert operator.get("healthz") == (200, "ok")
