"""Writes that an admission policy of the real API server denies for a time: nothing ends by it, and the job says so."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from testbed.shell import LabError
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.installation import OPERATOR_NAMESPACE
from tests.support.control_plane.jobs import NewJob, TrainingJob, wait_until
from tests.support.control_plane.operator_process import OperatorProcess

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
OPERATOR = f"system:serviceaccount:{OPERATOR_NAMESPACE}:"
WORDS = "ValidatingAdmissionPolicy '{0}' with binding '{0}' denied request: maintenance window"


@contextmanager
def denied(job: TrainingJob, operation: str, resources: str, probe: Callable[[], object]) -> Iterator[str]:
    """Deny the operator that operation in the job's namespace while the block lasts; give the server's words.

    Dry runs are denied to everybody: `probe` is one, by which is seen when the API server knows of the policy.
    """
    plane, name = job.plane, f"deny-{operation.lower()}-{job.namespace}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [resources]}
    allowed = f"!(request.dryRun || request.userInfo.username.startsWith('{OPERATOR}'))"
    policy = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": allowed, "message": "maintenance window"}],
    }
    selected = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": job.namespace}}}
    binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": selected}
    kinds = {"validatingadmissionpolicies": policy, "validatingadmissionpolicybindings": binding}

    def in_force() -> bool:
        try:
            probe()
        except LabError as error:
            return "denied request" in str(error)
        return False

    with ExitStack() as stack:
        for kind, spec in kinds.items():
            plane.request("POST", f"{ADMISSION}/{kind}", {"metadata": {"name": name}, "spec": spec})
            stack.callback(plane.request, "DELETE", f"{ADMISSION}/{kind}/{name}")
        wait_until(in_force, "the policy is in force")
        yield WORDS.format(name)


def creations(job: TrainingJob) -> Callable[[], object]:
    """A dry run of the creation of a pod."""
    pod = {"metadata": {"name": "probe"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    return lambda: job.plane.request("POST", f"/api/v1/namespaces/{job.namespace}/pods?dryRun=All", pod)


def of_pods(job: TrainingJob, verb: str) -> Callable[[], object]:
    """A dry run of a change or a deletion of the first pod."""
    path = f"/api/v1/namespaces/{job.namespace}/pods/{job.name}-worker-0"
    if verb == "DELETE":
        return lambda: job.plane.request(verb, path, {"dryRun": ["All"]})
    return lambda: job.plane.request(verb, f"{path}?dryRun=All", {}, "application/merge-patch+json")


@pytest.mark.parametrize("restarted", [False, True], ids=["", "operator-restarted"])
def test_a_gang_that_was_accepted_before_outlasts_a_maintenance_window(
    new_job: NewJob, operator: OperatorProcess, restarted: bool
) -> None:
    job = new_job()
    job.run()
    with denied(job, "CREATE", "pods", creations(job)) as words:
        job.remove_pod("job-worker-1")
        assert words in job.wait_for("Restarting", reason="CreationRefused")["message"]
        if restarted:
            operator.kill()
            operator.start()
            assert words in job.wait_for("Restarting", reason="CreationRefused")["message"]
    job.run(attempt=2)
    assert job.status()["restarts"] == {"counted": 0, "disruptions": 1, "recreated": 1, "withoutProgress": 1}


def restrict(plane: ControlPlane, namespace: str, level: str | None) -> None:
    """Enforce this Pod Security Standard. Not by kubectl: the API server warns of the pods that are there already."""
    labels = {"labels": {"pod-security.kubernetes.io/enforce": level}}
    plane.request("PATCH", f"/api/v1/namespaces/{namespace}", {"metadata": labels}, "application/merge-patch+json")


def test_a_namespace_that_becomes_restricted_ends_no_job_that_it_has_accepted(
    control_plane: ControlPlane, new_job: NewJob, namespace: str
) -> None:
    privileged = {"containers": [{"name": "tensorflow", "image": "trainer", "command": ["train"]}], "hostNetwork": True}
    job = new_job(spec__template={"spec": privileged})
    job.run()
    restrict(control_plane, namespace, "restricted")
    job.remove_pod("job-worker-1")
    status = job.wait_for("Restarting", reason="CreationRefused")
    assert 'violates PodSecurity "restricted:latest"' in status["message"]
    restrict(control_plane, namespace, None)
    job.run(attempt=2)


def test_a_restart_that_waits_for_a_pod_that_may_not_be_deleted_says_so_and_goes_on_later(new_job: NewJob) -> None:
    job = new_job()
    job.run()
    with denied(job, "DELETE", "pods", of_pods(job, "DELETE")) as words:
        job.fail_pod("job-worker-1")
        said = told(job, "DELETE")
        assert "DELETE pod/job-worker-0 was refused: " in said and words in said and said.endswith(" (and 1 more)")
        wait_until(lambda: warned(job), "the event")
    job.run(attempt=2)
    assert not refusals(job)
    assert len(warned(job)) == 1


def test_a_new_worker_is_made_while_the_launchers_may_not_be_told_of_it(new_job: NewJob) -> None:
    job = new_job(spec__restartPolicy={"mode": "InPlace"})
    job.wait_for_pods(attempt=1)
    with denied(job, "UPDATE", "pods", of_pods(job, "PATCH")) as words:
        job.patch({"spec": {"replicas": 3}}, "/scale")
        job.wait_for_pods(attempt=1, count=3)
        said = told(job, "PATCH")
        assert "PATCH pod/job-worker-0 was refused: " in said and words in said
    wait_until(lambda: not refusals(job), "nothing is refused any more")


def told(job: TrainingJob, verb: str) -> str:
    """The message of the condition, once it tells of such a request."""
    return wait_until(lambda: next((each for each in refusals(job) if f"{verb} " in each), ""), f"{verb} in the status")


def refusals(job: TrainingJob) -> list[str]:
    """The message of the condition ChangeRefused, if the job has it."""
    return [each["message"] for each in job.status().get("conditions", ()) if each["type"] == "ChangeRefused"]


def warned(job: TrainingJob) -> list[str]:
    """The events of refused changes."""
    return [note for kind, reason, note in job.events() if (kind, reason) == ("Warning", "ChangeRefused")]
