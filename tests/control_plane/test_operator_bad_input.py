"""What `kubectl apply` cannot reject: the job says what is wrong, its pods go, and the operator serves the others."""

import time
from contextlib import suppress

import pytest

from testbed.shell import LabError
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.jobs import NewJob, TrainingJob, wait_until
from tests.support.control_plane.manifests import template
from tests.support.control_plane.operator_process import OperatorProcess

# Less than LOOK_AGAIN, after which the operator looks by itself for room in a quota.
WOKEN = 25.0
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def requests(operator: OperatorProcess) -> float:
    """All requests that the operator has sent."""
    return sum(operator.metric(f'tftraining_api_requests_total{{method="{each}"}}') for each in METHODS)


def is_calm(operator: OperatorProcess) -> bool:
    """Whether it sends next to no request for two seconds; some watches may begin again."""
    before = requests(operator)
    time.sleep(2)
    return requests(operator) - before <= 4


@pytest.mark.parametrize(
    ("pod", "said"),
    [
        ({"spec": {**template()["spec"], "nodeSelectr": {"a": "b"}}}, 'unknown field "spec.nodeSelectr"'),
        (template(resources={"limits": {"cpu": "much"}}), "quantities must match the regular expression"),
        (template(imagePullPolicy=["Always"]), "containers.imagePullPolicy of type v1.PullPolicy"),
        (template(volumeMounts=[{"name": "none", "mountPath": "/none"}]), 'volumeMounts[0].name: Not found: "none"'),
        (template(resources={"limits": {"cpu": 1}, "requests": {"cpu": 2}}), "must be less than or equal to cpu limit"),
        ({"metadata": {"labels": {"a b": "c"}}, **template()}, "metadata.labels"),
    ],
)  # fmt: skip
def test_a_template_that_no_api_server_takes_fails_the_job(new_job: NewJob, pod: object, said: str) -> None:
    job = new_job(spec__template=pod)
    status = job.wait_for("Failed", reason="InvalidPodTemplate")
    assert "pod/job-worker-" in status["message"] and said in status["message"], status["message"]
    assert job.condition("Failed")["status"] == "True"
    wait_until(lambda: not job.pods() and not job.objects("services"), "nothing is left")
    wait_until(lambda: ("Warning", "Failed") in [event[:2] for event in job.events()], "the event")


def test_a_bad_template_of_one_role_takes_the_good_pods_down_too(new_job: NewJob) -> None:
    bad = template(volumeMounts=[{"name": "none", "mountPath": "/none"}])
    job = new_job(spec__replicaSpecs={"chief": {}, "worker": {"replicas": 3, "template": bad}})
    job.wait_for("Failed", reason="InvalidPodTemplate")
    wait_until(lambda: not job.pods() and not job.objects("services"), "nothing is left")


def test_a_restricted_namespace_takes_the_default_and_refuses_a_privileged_pod(
    control_plane: ControlPlane, new_job: NewJob, namespace: str
) -> None:
    label = "pod-security.kubernetes.io/enforce=restricted"
    control_plane.kubectl("label", "namespace", namespace, label)
    new_job("good").run()
    bad = new_job("bad", spec__template={"spec": {**template()["spec"], "hostNetwork": True}})
    status = bad.wait_for("Failed", reason="InvalidPodTemplate")
    assert 'violates PodSecurity "restricted:latest": host namespaces (hostNetwork=true)' in status["message"]


def test_a_quota_holds_a_job_up_until_it_is_raised(
    control_plane: ControlPlane, new_job: NewJob, namespace: str, operator: OperatorProcess
) -> None:
    set_quota(control_plane, namespace, pods=1)
    job = new_job(spec__replicaSpecs__worker__replicas=20, spec__restartPolicy={"mode": "InPlace"})
    status = job.wait_for("Starting", reason="WaitingForQuota")
    assert status["message"].startswith("20 pods never fit in the quota pods: they need pods=20 of 1")
    set_quota(control_plane, namespace, pods=30)
    job.wait_for_pods(attempt=1, count=20, seconds=WOKEN)
    assert job.status()["restarts"] == {"counted": 0}
    wait_until(lambda: [event[1] for event in job.events()].count("WaitingForQuota") == 1, "the event, once")


@pytest.mark.slow_fault  # as above, when it is raised
def test_a_job_is_woken_when_the_quota_that_held_it_is_deleted(
    control_plane: ControlPlane, new_job: NewJob, namespace: str, operator: OperatorProcess
) -> None:
    set_quota(control_plane, namespace, pods=0)
    job = new_job()
    job.wait_for("Starting", reason="WaitingForQuota")
    control_plane.request("DELETE", f"/api/v1/namespaces/{namespace}/resourcequotas/pods")
    job.wait_for_pods(attempt=1, seconds=WOKEN)


def set_quota(plane: ControlPlane, namespace: str, pods: int) -> None:
    """Allow so many pods; the quota controller's part (the status) is done by hand."""
    path, kind = f"/api/v1/namespaces/{namespace}/resourcequotas", "application/merge-patch+json"
    spec = {"hard": {"pods": str(pods)}}
    try:
        plane.request("POST", path, {"metadata": {"name": "pods"}, "spec": spec})
        used = "0"
    except LabError:
        used = plane.request("PATCH", f"{path}/pods", {"spec": spec}, kind)["status"]["used"]["pods"]
    plane.request("PATCH", f"{path}/pods/status", {"status": {**spec, "used": {"pods": used}}}, kind)


@pytest.mark.parametrize(
    "garbage",
    [
        {"phase": "Running", "attempt": 7, "replicas": {"worker": {"desired": 9, "active": 9}}},
        {"phase": "Restarting", "attempt": -3, "restarts": {"counted": -5}},
        {"phase": "Starting", "lastRestart": {"time": "0001-01-01T00:00:00Z"}, "startTime": "9999-12-31T23:59:59Z"},
        {"selector": "x", "message": "m" * 30000, "conditions": []},
    ],
)
def test_a_status_that_somebody_else_wrote_does_not_stop_a_job(new_job: NewJob, garbage: dict[str, object]) -> None:
    job = new_job()
    job.wait_for_pods(attempt=1)
    job.wait_for("Starting", reason="PodsStarting")
    try:
        job.patch({"status": None}, "/status")
        job.patch({"status": garbage}, "/status")
    except LabError as error:
        assert ": 422 " in str(error)  # refused by the CRD: just as well

    def trains() -> bool:
        for name in job.pods():
            with suppress(LabError):  # replaced just now
                job.run_pod(name)
        return job.status().get("phase") == "Running" and job.status().get("ready") == "2/2"

    wait_until(trains, "the job trains")


@pytest.mark.parametrize(
    ("policy", "phase"), [({"suspend": True}, "Suspended"), ({"activeDeadlineSeconds": 1}, "Failed")], ids=str
)
def test_times_that_are_none_in_the_status_keep_no_job_from_its_end(
    new_job: NewJob, policy: dict[str, object], phase: str
) -> None:
    """The API server takes a year 0, and offsets of 99 hours."""
    job = new_job()
    job.run()
    condition = {"type": "Odd", "status": "True", "lastTransitionTime": "2026-03-01T12:00:00+99:99", "reason": "R"}
    same = {"key": "a", "count": -1, "since": "0001-01-01T00:00:00+23:59"}
    garbage = {
        "startTime": "0000-01-01T00:00:00Z", "lastRestart": {"time": "9999-12-31T23:59:59-23:59"},
        "restarts": {"counted": 2**31 - 1, "sameFailure": same},
        "conditions": [*job.status()["conditions"], {**condition, "message": ""}],
    }  # fmt: skip
    job.patch({"status": garbage}, "/status")
    job.patch({"spec": {"runPolicy": policy}})
    job.wait_for(phase)


def test_a_gang_cannot_be_scaled_to_nothing(new_job: NewJob) -> None:
    job = new_job()
    with pytest.raises(LabError, match=r"spec\.replicaSpecs\.worker\.replicas.*greater than or equal to 1"):
        job.patch({"spec": {"replicas": 0}}, "/scale")
    job.run()


def test_a_job_too_large_for_its_status_is_tried_ever_more_slowly_and_says_so(
    new_job: NewJob, operator: OperatorProcess
) -> None:
    """The API server takes the job, and no status that makes it larger: events and metrics are left to tell of it."""
    began = requests(operator)
    job = new_job(spec__template=template(args=["#" * 1_571_500]), spec__restartPolicy={"mode": "Recreate"})

    def told() -> list[str]:
        return [words for kind, reason, words in job.events() if (kind, reason) == ("Warning", "ServerError")]

    (words,) = wait_until(told, "an event after three failing passes")
    assert "request is too large" in words
    assert operator.metric('tftraining_failed_passes_total{reason="ServerError"}') >= 3
    wait_until(lambda: operator.metric("tftraining_failing_jobs") == 1, "those of earlier tests are gone")
    before = requests(operator)
    assert before - began < 40, "no pass in between counts as a success"
    time.sleep(4)
    assert requests(operator) - before <= 8, "the pauses grow"
    job.delete()


def test_huge_messages_fit_into_the_status(new_job: NewJob) -> None:
    job = new_job()
    job.run()
    job.fail_pod("job-worker-0", 1, "é" * 100_000 + " the end", reason="E" * 5000)
    status = job.wait_for("Restarting", attempt=2)
    assert status["failure"]["logTail"].endswith("é the end")
    job.run(attempt=2)
    wait_until(lambda: len(job.events()) == 4, "four events")


def test_labels_that_somebody_else_wrote_do_not_stop_a_job(new_job: NewJob) -> None:
    for label, value in (("attempt", "9" * 63), ("index", "nonsense")):
        job = new_job(label)
        job.run()
        job.patch_pod(f"{label}-worker-1", {"metadata": {"labels": {f"tftraining.dev/{label}": value}}})
    later = new_job("later")
    later.run()


def test_a_namespace_that_is_being_deleted_gets_nothing_new(
    control_plane: ControlPlane, operator: OperatorProcess, garbage_collection: None
) -> None:
    control_plane.create_namespace("leaving")
    job = TrainingJob(control_plane, "leaving")
    job.create()
    job.run()
    control_plane.request("DELETE", "/api/v1/namespaces/leaving")
    wait_until(job.is_gone, "the namespace's job is gone")
    wait_until(lambda: not job.pods(), "its pods are gone")
    wait_until(lambda: is_calm(operator), "the operator leaves it alone")


def test_fifty_bad_jobs_do_not_hold_up_a_good_one(new_job: NewJob, operator: OperatorProcess) -> None:
    bad = [
        new_job(f"bad-{index}", spec__template=template(volumeMounts=[{"name": "none", "mountPath": "/none"}]))
        for index in range(50)
    ]
    new_job("good").run()
    for job in bad:
        job.wait_for("Failed", reason="InvalidPodTemplate")
    wait_until(lambda: set(bad[0].objects("pods")) == {"good-worker-0", "good-worker-1"}, "nothing of them is left")
    wait_until(lambda: is_calm(operator), "a failed job costs nothing")
    assert operator.get("healthz")[0] == 200
