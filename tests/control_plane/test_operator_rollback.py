"""An older version of the operator takes over on a real API server, together with its older definition of the resource:
what it cannot read is left alone, and said so by nothing but one condition."""

import copy
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from tests.support.control_plane.apiserver import ControlPlane, WriteRefused
from tests.support.control_plane.installation import DEFINITION, put_definition
from tests.support.control_plane.jobs import NewJob, TrainingJob, wait_until
from tests.support.control_plane.manifests import Manifest
from tests.support.control_plane.operator_process import OperatorProcess


@pytest.fixture
def define(control_plane: ControlPlane) -> Iterator[Callable[[bool], None]]:
    """Give a function that puts a newer definition of the resource in the place of this one, or takes it back."""
    own: Manifest = control_plane.request("GET", DEFINITION)["spec"]
    newer = copy.deepcopy(own)
    fields = newer["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    fields["spec"]["properties"]["successPolicy"]["enum"].append("AnyWorker")
    fields["status"]["properties"]["phase"]["enum"].append("Resizing")
    fields["status"]["properties"]["topology"] = {"type": "string"}

    def put(is_newer: bool) -> None:
        put_definition(control_plane, newer if is_newer else own)

    yield put
    put(False)


def accepted(job: TrainingJob, change: Manifest, subresource: str = "") -> None:
    """Merge the change into the job, as soon as the API server takes the definition for it."""

    def patched() -> bool:
        try:
            job.patch(change, subresource)
        except WriteRefused as error:
            assert "Unsupported value" in str(error)
            return False
        return True

    wait_until(patched, "the definition is served")


def said(job: TrainingJob, reason: str) -> None:
    """Wait until the job says that it cannot be read, and why."""
    condition = wait_until(lambda: job.condition("Unreadable"), "it is said")
    assert (condition["status"], condition["reason"]) == ("True", reason)
    wait_until(lambda: ("Warning", reason) in [each[:2] for each in job.events()], "it is told")


def test_what_only_a_newer_version_can_read_is_left_alone(
    new_job: NewJob, operator: OperatorProcess, define: Callable[[bool], None]
) -> None:
    training, fresh = new_job("training"), new_job("fresh", spec__runPolicy={"suspend": True})
    training.run()
    fresh.wait_for("Suspended")
    pods = {name: each["metadata"]["uid"] for name, each in training.pods().items()}
    operator.kill()
    define(True)
    accepted(training, {"status": {"phase": "Resizing", "topology": "ring"}}, "/status")
    accepted(fresh, {"spec": {"successPolicy": "AnyWorker"}})
    before = training.status()
    define(False)
    operator.start()
    for job, reason in ((training, "StatusUnreadable"), (fresh, "SpecUnreadable")):
        said(job, reason)
    training.remove_pod("training-worker-1")
    time.sleep(1.5)
    after = training.status()
    after["conditions"] = [each for each in after["conditions"] if each["type"] != "Unreadable"]
    assert after == {name: value for name, value in before.items() if name != "topology"}
    assert {name: each["metadata"]["uid"] for name, each in training.pods().items()} == {
        "training-worker-0": pods["training-worker-0"]
    }
    training.patch({"status": {"phase": "Running"}}, "/status")
    wait_until(lambda: len(training.pods()) == 2, "the job goes on, and its lost pod is noticed")
    wait_until(lambda: not training.condition("Unreadable"), "nothing is unreadable any more")


REQUEST = "tftraining.dev/restartedAt"


def test_a_requested_restart_is_repeated_by_no_rollback(
    new_job: NewJob, operator: OperatorProcess, control_plane: ControlPlane
) -> None:
    """The answer stands at the pods: a status that keeps nothing of it, and pods that a version without the feature
    has created, restart no job."""
    job, new = new_job("asked"), new_job("new", metadata__annotations={REQUEST: "2026-01-02T03:04:05Z"})
    job.run()
    new.run()
    job.patch({"metadata": {"annotations": {REQUEST: datetime.now(UTC).isoformat()}}})
    job.run(attempt=2)
    operator.kill()
    for each in (job, new):
        name = f"{each.name}-worker-1"
        path = f"/api/v1/namespaces/{each.namespace}/pods/{name}"
        change = {"metadata": {"annotations": {REQUEST: None}}}
        control_plane.request("PATCH", path, change, "application/merge-patch+json")
    operator.start()
    new.patch({"spec": {"restartPolicy": {"maxRestarts": 3}}})
    wait_until(lambda: operator.metric("tftraining_reconcile_seconds_count") > 1, "the operator has looked")
    time.sleep(2)
    assert [each.status()["attempt"] for each in (job, new)] == [2, 1]
    assert [len(each.pods(attempt)) for each, attempt in ((job, 2), (new, 1))] == [2, 2]
