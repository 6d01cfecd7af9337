"""What the operator tells of its own work, on a real API server: metrics, the condition of a failing job, JSON logs."""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.installation import install_crd, operator_kubeconfig
from tests.support.control_plane.jobs import NewJob, wait_until
from tests.support.control_plane.operator_process import OperatorProcess
from tests.support.crd import definition

ROLE = "operator-tftraining-operator"


def total(operator: OperatorProcess, name: str, **labels: str) -> float:
    """The sum of the samples of that metric that have these labels, whatever other labels they have."""
    found = 0.0
    for line in operator.get("metrics")[1].splitlines():
        sample = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
        given = dict(re.findall(r'(\w+)="([^"]*)"', sample[1] or "")) if sample else {}
        if sample and labels.items() <= given.items():
            found += float(sample[2])
    return found


def watch_ages(operator: OperatorProcess) -> dict[str, float]:
    """The age of each watch, by its description."""
    found = re.findall(r'^tftraining_watch_age_seconds\{watch="(.*)"\} (\S+)$', operator.get("metrics")[1], re.M)
    return {name: float(age) for name, age in found}


def test_requests_waits_watches_and_lag_are_on_the_page(new_job: NewJob, operator: OperatorProcess) -> None:
    new_job().run()
    for method, code in (("POST", "201"), ("PUT", "200"), ("WATCH", "200"), ("GET", "200")):
        count = total(operator, "tftraining_api_request_seconds_count", method=method, code=code)
        assert count > 0, (method, code)
        assert 0 < total(operator, "tftraining_api_request_seconds_sum", method=method, code=code) / count < 10
    assert total(operator, "tftraining_queue_seconds_count") >= 3
    assert total(operator, "tftraining_queue_depth") < 10
    wait_until(lambda: total(operator, "tftraining_failing_jobs") == 0, "the failing jobs of earlier tests are gone")
    assert total(operator, "tftraining_reconciled_jobs") >= 1
    wait_until(lambda: total(operator, "tftraining_event_loop_lag_seconds_count") > 2, "the event loop is probed")
    expected = {f"{each} in all namespaces" for each in ("jobs", "pods", "services", "events")} | {"nodes"}
    wait_until(lambda: set(watch_ages(operator)) == expected, "the watch of quotas of an earlier test is closed")
    assert all(0 <= age < 100 for age in watch_ages(operator).values())


def test_refusals_are_counted_by_code(control_plane: ControlPlane, new_job: NewJob, operator: OperatorProcess) -> None:
    before = total(operator, "tftraining_refused_writes_total", method="POST", code="403")
    namespace = new_job("first").namespace
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"services": "0"}}, "status": {"hard": {"services": "0"}}}
    made = control_plane.request("POST", f"/api/v1/namespaces/{namespace}/resourcequotas", quota)
    made["status"] = {"hard": {"services": "0"}, "used": {"services": "0"}}
    control_plane.request("PUT", f"/api/v1/namespaces/{namespace}/resourcequotas/none/status", made)
    job = new_job("held")
    job.wait_for("Starting", reason="CreationRefused")
    assert total(operator, "tftraining_refused_writes_total", method="POST", code="403") > before


@pytest.fixture
def role(control_plane: ControlPlane, operator: OperatorProcess) -> Iterator[str]:
    """Give the path of the operator's ClusterRole, which is restored at the end."""
    path = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{ROLE}"
    rules = control_plane.request("GET", path)["rules"]
    yield path
    restore(control_plane, path, rules)


def restore(control_plane: ControlPlane, path: str, rules: list[dict[str, object]]) -> None:
    control_plane.request("PATCH", path, {"rules": rules}, "application/merge-patch+json")


@pytest.mark.takes_permissions
@pytest.mark.slow_fault
def test_failing_passes_are_counted_and_show_as_a_condition(
    control_plane: ControlPlane, new_job: NewJob, operator: OperatorProcess, role: str
) -> None:
    """The account may not PUT the status any more; PATCH, which writes the condition, stays allowed."""
    job = new_job()
    job.run()
    rules = control_plane.request("GET", role)["rules"]
    without = copy.deepcopy(rules)
    for rule in without:
        if "tftrainingjobs/status" in rule["resources"]:
            rule["verbs"] = ["patch"]
    restore(control_plane, role, without)
    job.fail_pod("job-worker-1")
    condition = wait_until(lambda: job.condition("ReconcileError"), "the condition ReconcileError")
    assert condition["status"] == "True" and condition["reason"] == "Forbidden"
    assert "cannot update resource" in condition["message"]
    assert total(operator, "tftraining_failed_passes_total", reason="Forbidden") >= 3
    wait_until(lambda: total(operator, "tftraining_failing_jobs") == 1, "those of earlier tests are gone")
    failed = total(operator, "tftraining_failed_passes_total", reason="Forbidden")
    restore(control_plane, role, rules)
    job.run(attempt=2)
    wait_until(lambda: job.condition("ReconcileError") == {}, "the condition is gone")
    assert total(operator, "tftraining_failing_jobs") == 0
    assert failed < 12, "the pauses between failing passes grow, though the condition wakes the watch"


@pytest.mark.takes_permissions
def test_events_that_are_not_accepted_are_counted_and_hold_up_no_job(
    control_plane: ControlPlane, new_job: NewJob, operator: OperatorProcess, role: str
) -> None:
    """The account may not create events any more."""
    rules = control_plane.request("GET", role)["rules"]
    restore(control_plane, role, [each for each in rules if "events.k8s.io" not in each["apiGroups"]])
    before = total(operator, "tftraining_dropped_events_total", cause="NotAccepted")
    job = new_job()
    job.run()
    job.fail_pod("job-worker-1")
    job.run(attempt=2)
    wait_until(
        lambda: total(operator, "tftraining_dropped_events_total", cause="NotAccepted") > before, "it is counted"
    )


@pytest.mark.slow_fault
def test_an_older_definition_is_named_and_the_log_is_json_on_demand(
    control_plane: ControlPlane, operator: OperatorProcess, tmp_path: Path, new_job: NewJob
) -> None:
    operator.kill()
    older = definition()
    (version,) = older["spec"]["versions"]
    del version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["history"]
    (tmp_path / "older.yaml").write_text(yaml.safe_dump(older))
    install_crd(control_plane, tmp_path / "older.yaml")
    try:
        wait_until(
            lambda: '"history"' not in control_plane.kubectl("get", "--raw", "/openapi/v3/apis/tftraining.dev/v1"),
            "the older schema is served",
        )
        with OperatorProcess(operator_kubeconfig(control_plane), tmp_path, TFTRAINING_LOG_FORMAT="json") as one:
            job = new_job()
            job.run()
            job.fail_pod("job-worker-0")
            job.run(attempt=2)
            written = one.log_text().rpartition("\n")[0]  # the operator may still be writing the line behind it
            lines = [json.loads(line) for line in written.splitlines()]
    finally:
        install_crd(control_plane)
    (warning,) = [each["message"] for each in lines if "is older than this operator" in each["message"]]
    assert "it lacks status.history; update it: kubectl apply" in warning
    passes = [each for each in lines if each.get("job") == "job"]
    assert {each["namespace"] for each in passes} == {job.namespace}
    assert {each["attempt"] for each in passes if "attempt" in each} >= {0, 1}
    assert all({"time", "level", "logger", "message"} <= set(each) for each in lines)
