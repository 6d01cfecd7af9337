"""What stands beside the pods, on a real API server: PodGroups by the schedulers' own definitions, the NetworkPolicy.

No gang scheduler runs here: what it would read is compared with what it is known to read.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from testbed.shell import LabError
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.jobs import UNTOUCHED, NewJob, TrainingJob, wait_until
from tests.support.control_plane.manifests import template
from tests.support.control_plane.operator_process import OPERATOR_PODS, PROMETHEUS, OperatorProcess

DEFINITIONS = Path(__file__).parent / "schedulers"
COSCHEDULING, VOLCANO = "scheduling.x-k8s.io/v1alpha1", "scheduling.volcano.sh/v1beta1"
FILES = {COSCHEDULING: "scheduler-plugins.yaml", VOLCANO: "volcano.yaml"}
CLAIM = {"volume": {"persistentVolumeClaim": {"claimName": "data"}}}


@contextmanager
def scheduler(plane: ControlPlane, api: str) -> Iterator[None]:
    """The definition of the scheduler's PodGroup is installed in the `with` block."""
    path = DEFINITIONS / FILES[api]
    plane.kubectl("apply", "--filename", path)
    try:
        wait_until(lambda: served(plane, f"/apis/{api}/podgroups"), f"{api} is served")
        yield
    finally:
        plane.kubectl("delete", "--filename", path)


def served(plane: ControlPlane, path: str) -> bool:
    """Whether the API server answers there."""
    try:
        plane.request("GET", path)
    except LabError:
        return False
    return True


def of(job: TrainingJob, collection: str) -> list[dict[str, Any]]:
    """The objects of a collection in the job's namespace."""
    group, _, name = collection.rpartition("/")
    items: list[dict[str, Any]] = job.plane.request("GET", f"/apis/{group}/namespaces/{job.namespace}/{name}")["items"]
    return items


def policies(job: TrainingJob) -> list[dict[str, Any]]:
    """The NetworkPolicies in the job's namespace."""
    return of(job, "networking.k8s.io/v1/networkpolicies")


def with_group(api: str, **fields: object) -> dict[str, object]:
    """A spec.runPolicy.scheduling that asks for a PodGroup."""
    return {"podGroup": {"apiVersion": api, **fields}, "priorityClassName": "high"}


@pytest.fixture
def high(control_plane: ControlPlane) -> Iterator[None]:
    """A PriorityClass `high`."""
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    high = {"metadata": {"name": "high"}, "value": 1000, "description": "of the tests"}
    control_plane.request("POST", path, high)
    yield
    control_plane.request("DELETE", f"{path}/high")


class Case(NamedTuple):
    """One kind of PodGroup: what is asked for, the spec that it gets, what pods carry, and who schedules them."""

    api: str
    asked: dict[str, object]
    spec: dict[str, object]
    carried: tuple[str, str]
    scheduler: str


CASES = {
    "scheduler-plugins": Case(
        COSCHEDULING,
        {"timeoutSeconds": 30},
        {"minMember": 2, "scheduleTimeoutSeconds": 30},
        ("labels", "scheduling.x-k8s.io/pod-group"),
        "scheduler-plugins-scheduler",
    ),
    "volcano": Case(
        VOLCANO,
        {"queue": "research", "minAvailable": 1},
        {"minMember": 1, "queue": "research", "priorityClassName": "high"},
        ("annotations", "scheduling.k8s.io/group-name"),
        "volcano",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.usefixtures("high")
def test_a_group_waits_for_its_scheduler_goes_with_the_job_and_is_made_anew(new_job: NewJob, case: Case) -> None:
    api = case.api
    job = new_job(spec__runPolicy={"scheduling": with_group(api, **case.asked)})
    status = job.wait_for("Starting", reason="CreationRefused")
    assert status["message"].endswith(
        f": the cluster has no PodGroup of {api}: install its scheduler, or change spec.runPolicy.scheduling.podGroup"
    )
    assert job.pods() == {}
    with scheduler(job.plane, api):
        pods = job.run()
        (group,) = of(job, f"{api}/podgroups")
        assert group["spec"] == case.spec
        assert group["metadata"]["ownerReferences"][0]["uid"] == job.raw()["metadata"]["uid"]
        where, key = case.carried
        for pod in pods.values():
            assert pod["metadata"][where][key] == group["metadata"]["name"]
            assert (pod["spec"]["schedulerName"], pod["spec"]["priority"]) == (case.scheduler, 1000)

        job.patch({"spec": {"runPolicy": {"suspend": True}}})
        job.wait_for("Suspended")
        wait_until(lambda: not job.pods() and not of(job, f"{api}/podgroups"), "no pod and no group")
        job.patch({"spec": {"runPolicy": {"suspend": False}}})
        job.run(attempt=2)
        assert len(of(job, f"{api}/podgroups")) == 1

        job.succeed_pod("job-worker-0")
        job.wait_for("Succeeded")
        wait_until(lambda: not of(job, f"{api}/podgroups"), "the group is gone")


def test_a_gang_waits_for_a_cluster_whose_own_scheduler_places_gangs(new_job: NewJob) -> None:
    # No API server of this tier has the feature gate; tests/kwok/test_native_gangs.py has one.
    job = new_job(spec__runPolicy={"scheduling": {"gang": "Native"}, "startDeadlineSeconds": 8})
    status = job.wait_for("Starting", reason="CreationRefused")
    assert "the cluster has no PodGroup of scheduling.k8s.io/v1beta1: Kubernetes 1.37 or later" in status["message"]
    status = job.wait_for("Failed", reason="StartDeadlineExceeded")
    assert "feature gate GenericWorkload" in status["message"] and job.pods() == {}


def test_an_api_server_without_the_gate_drops_the_group_of_a_pod_as_the_operator_expects(
    control_plane: ControlPlane, namespace: str
) -> None:
    group = {"schedulingGroup": {"podGroupName": "g"}}
    body = {"metadata": {"name": "a"}, "spec": {**template()["spec"], **group}}
    answer = control_plane.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body)
    assert "containers" in answer["spec"] and "schedulingGroup" not in answer["spec"]


def test_the_group_grows_with_the_gang_and_loses_what_is_taken_out(
    new_job: NewJob, control_plane: ControlPlane
) -> None:
    with scheduler(control_plane, COSCHEDULING):
        scheduling = {"podGroup": {"apiVersion": COSCHEDULING, "timeoutSeconds": 30}}
        job = new_job(spec__runPolicy={"scheduling": scheduling})
        job.run()
        job.patch({"spec": {"replicaSpecs": {"worker": {"replicas": 3}}}})
        job.wait_for_pods(attempt=2, count=3)
        (group,) = of(job, f"{COSCHEDULING}/podgroups")
        assert group["spec"] == {"minMember": 3, "scheduleTimeoutSeconds": 30}


def test_a_job_has_a_network_policy_before_its_pods_and_none_at_its_end(new_job: NewJob) -> None:
    job = new_job()
    job.run()
    (policy,) = policies(job)
    (service,) = job.objects("services").values()
    (pod, *_) = job.pods().values()
    assert policy["spec"] == {
        "podSelector": {"matchLabels": service["spec"]["selector"]},
        "policyTypes": ["Ingress"],
        "ingress": [
            {"from": [{"podSelector": {"matchLabels": service["spec"]["selector"]}}]},
            {
                "from": [
                    {
                        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "tftraining-system"}},
                        "podSelector": {"matchLabels": OPERATOR_PODS},
                    },
                    PROMETHEUS,
                ],
                "ports": [{"protocol": "TCP", "port": 8472}],
            },
        ],
    }
    assert policy["metadata"]["creationTimestamp"] <= pod["metadata"]["creationTimestamp"]
    assert policy["metadata"]["ownerReferences"] == service["metadata"]["ownerReferences"]
    job.succeed_pod("job-worker-0")
    job.wait_for("Succeeded")
    wait_until(lambda: not policies(job) and not job.objects("services"), "both are gone")


def test_a_network_policy_that_somebody_deleted_is_back_with_the_next_pods(new_job: NewJob) -> None:
    job = new_job()
    job.run()
    job.plane.request("DELETE", f"/apis/networking.k8s.io/v1/namespaces/{job.namespace}/networkpolicies?labelSelector=")
    job.remove_pod("job-worker-1")
    job.run(attempt=2)
    assert len(policies(job)) == 1


QUEUE = {"kueue.x-k8s.io/queue-name": "research", "kueue.x-k8s.io/priority-class": "urgent"}
KEPT = {"metadata": {"finalizers": ["kueue.x-k8s.io/managed"]}}


def groups(job: TrainingJob) -> set[str]:
    """The pod groups of the job's pods, which all ask for the same."""
    for pod in job.pods().values():
        assert QUEUE.items() <= pod["metadata"]["labels"].items()
        assert pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] == "2"
        assert pod["metadata"]["annotations"]["kueue.x-k8s.io/retriable-in-group"] == "false"
    return {pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] for pod in job.pods().values()}


def pod_of(job: TrainingJob, name: str) -> dict[str, Any]:
    """The pod of that name; empty if there is none."""
    return job.pods().get(name, {})


def test_a_lost_pod_that_its_queue_keeps_has_a_successor_of_another_name(new_job: NewJob) -> None:
    job = new_job(metadata__labels=QUEUE, spec__restartPolicy={"mode": "InPlace"})
    before = job.run()
    (first,) = groups(job)
    for number in (1, 2):
        lost = "job-worker-1" if number == 1 else "job-worker-1-r1"
        job.patch_pod(lost, KEPT)  # as Kueue's webhook does
        job.bind_pod(lost)
        job.delete_pod(lost)
        job.wait_for("Restarting")
        assert f"job-worker-1-r{number}" not in job.pods(), "the lost pod has not ended"
        job.fail_pod(lost, 143)
        successor = wait_until(partial(pod_of, job, f"job-worker-1-r{number}"), "its successor is there")
        assert (successor["spec"]["hostname"], successor["spec"]["subdomain"]) == ("job-worker-1", "job")
        assert groups(job) == {first}
        job.patch_pod(lost, {"metadata": {"finalizers": None}})  # and lets go of it
        job.remove_pod(lost)
        job.run()
    assert job.pods()["job-worker-0"]["metadata"]["uid"] == before["job-worker-0"]["metadata"]["uid"]
    status = job.status()
    assert (status["successors"], status["attempt"], status["restarts"]["disruptions"]) == ({"worker-1": 2}, 1, 2)


def test_a_queued_job_of_which_no_pod_is_left_is_another_group(new_job: NewJob, operator: OperatorProcess) -> None:
    job = new_job(metadata__labels=QUEUE, spec__restartPolicy={"mode": "InPlace"})
    job.run()
    (first,) = groups(job)
    with operator.frozen():  # else it may replace the first before the second has gone
        for name in job.pods():
            job.remove_pod(name)
    job.run(attempt=2)
    assert groups(job) != {first} and "successors" not in job.status()


def test_queued_pods_that_were_never_placed_are_said_to_have_ended(new_job: NewJob) -> None:
    # With the operator's own rights; what Kueue makes of it is in tests/kwok/test_kueue.py.
    job = new_job(metadata__labels={"kueue.x-k8s.io/queue-name": "research"})
    for name in job.wait_for_pods(attempt=1):
        job.patch_pod(name, {"metadata": {"finalizers": ["kueue.x-k8s.io/managed"]}})
    job.patch({"spec": {"runPolicy": {"suspend": True}}})
    wait_until(lambda: {pod["status"]["phase"] for pod in job.pods().values()} == {"Failed"}, "both have ended")
    for name, pod in job.pods().items():
        assert pod["status"]["message"] == "deleted before scheduling"
        job.patch_pod(name, {"metadata": {"finalizers": None}})
    job.wait_for("Suspended", message="spec.runPolicy.suspend is true; set it to false to resume")


def test_a_job_that_another_controller_runs_is_left_alone_whatever_it_says(new_job: NewJob) -> None:
    other = new_job("other", spec__runPolicy={"managedBy": "kueue.x-k8s.io/multikueue", "suspend": True})
    other.patch({"status": {"phase": "Running", "reason": "Elsewhere", "attempt": 3}}, "/status")
    other.patch({"spec": {"runPolicy": {"suspend": False}}})
    with pytest.raises(LabError, match="cannot be changed while the job runs"):
        other.patch({"spec": {"runPolicy": {"managedBy": "tftraining.dev/operator"}}})
    ours = new_job("ours")
    ours.run()
    assert other.status() == UNTOUCHED | {"phase": "Running", "reason": "Elsewhere", "attempt": 3}
    assert other.pods() == {} and set(other.objects("services")) == {"ours"} and len(policies(ours)) == 1
    assert other.events() == []
