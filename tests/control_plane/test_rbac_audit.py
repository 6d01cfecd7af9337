"""The operator's permissions are minimal: its requests, as the API server's audit log has them, take every one.

One scenario makes two operators do all that an operator ever asks of the API server, once with the whole cluster to
watch and once with one namespace. A permission of the chart that no request took fails the test, unless it is in
`UNUSED` with the reason; and so does a request that was forbidden. The other tests of the tiers with an API server of
their own add no use that this scenario lacks (RBAC would refuse it), and fail at a forbidden request themselves
(tests/support/control_plane/fixtures.py).
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from testbed.shell import LabError
from tests.control_plane.test_operator_leader_election import ELECTION
from tests.control_plane.test_operator_scheduling import COSCHEDULING, VOLCANO, of, scheduler
from tests.support.control_plane.audit import AuditedControlPlane, Permission, audit_events, granted
from tests.support.control_plane.chart import of_kind, render
from tests.support.control_plane.installation import (
    DEFINITION,
    OPERATOR_ACCOUNT,
    OPERATOR_NAMESPACE,
    install_crd,
    operator_kubeconfig,
    put_definition,
)
from tests.support.control_plane.jobs import TrainingJob, wait_until
from tests.support.control_plane.nodes import Node
from tests.support.control_plane.operator_process import OperatorProcess
from tests.support.control_plane.tenant import ACCOUNT, RULES, Tenant
from tftraining_api.model.names import LABEL_JOB

NAMESPACE = "red"
# Permissions that this scenario does not use, each with the reason why the chart grants it all the same.
UNUSED: dict[Permission, str] = {
    (
        "scheduling.k8s.io",
        "podgroups",
        verb,
    ): "served from 1.37 on, with a feature gate: tests/kwok/test_native_gangs.py"
    for verb in ("create", "delete", "patch")
}


@pytest.fixture(
    params=[
        pytest.param(True, id="the whole cluster"),
        pytest.param(False, id="one namespace", marks=pytest.mark.slow_fault),  # of the same rules
    ]
)
def whole(request: pytest.FixtureRequest) -> bool:
    """Whether the operators watch all namespaces."""
    return bool(request.param)


@pytest.fixture
def plane(whole: bool, control_plane: object, tmp_path: Path) -> Iterator[AuditedControlPlane]:
    """An API server of the test's own with an audit log, a node, and two operators of which one leads."""
    with ExitStack() as stack:
        plane = stack.enter_context(AuditedControlPlane())
        install_crd(plane)
        plane.create_namespace(NAMESPACE)
        Node(plane, "node-1").create()
        operators: list[OperatorProcess] = []
        watched = [] if whole else [NAMESPACE]
        kubeconfig = operator_kubeconfig(plane, watched)
        for name in ("one", "two"):
            own = tmp_path / name
            own.mkdir()
            environment = {**ELECTION, "POD_NAME": name, "TFTRAINING_NAMESPACES": ",".join(watched)}
            operators.append(stack.enter_context(OperatorProcess(kubeconfig, own, **environment)))
        yield plane
        for operator in operators:
            print(operator.log_text())


def new_job(plane: AuditedControlPlane, name: str, **changes: object) -> TrainingJob:
    job = TrainingJob(plane, NAMESPACE, name)
    job.create({path.replace("__", "."): value for path, value in changes.items()})
    return job


def a_job_ends_and_expires(plane: AuditedControlPlane) -> None:
    job = new_job(plane, "ends", spec__runPolicy={"ttlSecondsAfterFinished": 0})
    job.run()
    job.bind_pod("ends-worker-1")
    job.succeed_pod("ends-worker-0")
    wait_until(lambda: "deletionTimestamp" in str(job.pods().get("ends-worker-1", "deletionTimestamp")), "it goes")
    job.remove_pod("ends-worker-1")
    wait_until(job.is_gone, "the job has expired")


def children_lose_their_labels(plane: AuditedControlPlane) -> None:
    job = new_job(plane, "bare", spec__restartPolicy={"mode": "InPlace"})
    job.wait_for_pods(attempt=1)
    for kind, name in (("pods", "bare-worker-1"), ("services", "bare")):
        path = f"/api/v1/namespaces/{NAMESPACE}/{kind}/{name}"
        plane.request("PATCH", path, {"metadata": {"labels": {LABEL_JOB: None}}}, "application/merge-patch+json")

        def labelled(path: str = path) -> bool:
            return LABEL_JOB in plane.request("GET", path)["metadata"].get("labels", {})

        wait_until(labelled, f"the operator restores the labels of {name}")


def a_pod_is_on_a_node_that_nobody_knows(plane: AuditedControlPlane) -> None:
    job = new_job(plane, "lost")
    job.wait_for_pods(attempt=1)
    job.bind_pod("lost-worker-1", "node-2")
    job.delete()


def a_queued_pod_has_no_kubelet(plane: AuditedControlPlane) -> None:
    job = new_job(plane, "queued", metadata__labels={"kueue.x-k8s.io/queue-name": "research"})
    for name in job.wait_for_pods(attempt=1):
        job.patch_pod(name, {"metadata": {"finalizers": ["example.com/kept"]}})
    job.patch({"spec": {"runPolicy": {"suspend": True}}})
    wait_until(lambda: {pod["status"]["phase"] for pod in job.pods().values()} == {"Failed"}, "both have ended")
    for name in job.pods():
        job.patch_pod(name, {"metadata": {"finalizers": None}})


def gangs_are_scheduled(plane: AuditedControlPlane) -> None:
    for name, api in (("coscheduled", COSCHEDULING), ("volcano", VOLCANO)):
        with scheduler(plane, api):
            job = new_job(plane, name, spec__runPolicy={"scheduling": {"podGroup": {"apiVersion": api}}})
            job.run()
            job.succeed_pod(f"{name}-worker-0")
            job.wait_for("Succeeded")
            wait_until(lambda: not of(job, f"{api}/podgroups"), "the group is gone")  # noqa: B023


def a_quota_refuses_pods(plane: AuditedControlPlane) -> None:
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    path = f"/api/v1/namespaces/{NAMESPACE}/resourcequotas"
    plane.request("POST", path, quota)
    status = {"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}}  # no controller runs that would write it
    plane.request("PATCH", f"{path}/none/status", status, "application/merge-patch+json")
    job = new_job(plane, "refused")
    job.wait_for("Starting", reason="WaitingForQuota")
    wait_until(
        lambda: ("", "resourcequotas", "watch") in plane.requests_of(OPERATOR_ACCOUNT, "allow"), "it waits for room"
    )
    plane.request("DELETE", f"{path}/none")
    job.wait_for_pods(attempt=1)


def a_status_cannot_be_read(plane: AuditedControlPlane) -> None:
    job = new_job(plane, "newer", spec__runPolicy={"suspend": True})
    job.wait_for("Suspended")
    newer = plane.request("GET", DEFINITION)["spec"]
    status = newer["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    status["phase"]["enum"].append("Resizing")
    put_definition(plane, newer)

    def patched() -> bool:
        try:
            job.patch({"status": {"phase": "Resizing"}}, "/status")
        except Exception as error:
            assert "Unsupported value" in str(error)
            return False
        return True

    wait_until(patched, "the definition is served")
    wait_until(lambda: job.condition("Unreadable"), "it is said")


SCENES: tuple[Callable[[AuditedControlPlane], None], ...] = (
    a_job_ends_and_expires,
    children_lose_their_labels,
    a_pod_is_on_a_node_that_nobody_knows,
    a_queued_pod_has_no_kubelet,
    gangs_are_scheduled,
    a_quota_refuses_pods,
    a_status_cannot_be_read,
)


def roles(whole: bool) -> list[dict[str, Any]]:
    """The roles that the chart binds to the operator's account."""
    manifests = render({"watchNamespaces": [] if whole else [NAMESPACE]}, OPERATOR_NAMESPACE, "operator")
    bound = {
        (each["roleRef"]["kind"], each["roleRef"]["name"])
        for kind in ("ClusterRoleBinding", "RoleBinding")
        for each in of_kind(manifests, kind)
    }
    found = [each for kind in ("ClusterRole", "Role") for each in of_kind(manifests, kind)]
    return [each for each in found if (each["kind"], each["metadata"]["name"]) in bound]


def test_the_operator_uses_every_permission_that_it_has(plane: AuditedControlPlane, whole: bool) -> None:
    for scene in SCENES:
        scene(plane)
    may = granted(roles(whole))
    used = plane.requests_of(OPERATOR_ACCOUNT, "allow")
    assert used <= may, "a request that no role of the chart allows"
    assert may - used - set(UNUSED) == set(), "granted, and never used"
    assert used & set(UNUSED) == set(), "not unused any more"
    assert plane.requests_of(OPERATOR_ACCOUNT, "forbid") == set()


def test_an_audit_event_that_is_still_being_written_is_not_read(tmp_path: Path) -> None:
    event = '{"kind":"Event","apiVersion":"audit.k8s.io/v1","verb":"get"}\n'
    (tmp_path / "log").write_text(f"I1126 its own line\n{event}{event[:50]}")
    assert [each["verb"] for each in audit_events(tmp_path / "log")] == ["get"]


def test_a_request_for_a_deprecated_api_is_noticed(control_plane: AuditedControlPlane, namespace: str) -> None:
    """In the operator's requests each test looks for one (the fixture `operator`)."""
    tenant = Tenant(control_plane, namespace)
    tenant.send("GET", tenant.core("services"))
    account = f"system:serviceaccount:{namespace}:{ACCOUNT}"
    assert control_plane.deprecated(account) == set()
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles/{ACCOUNT}"
    rules = [*RULES, {"apiGroups": [""], "resources": ["endpoints"], "verbs": ["list"]}]
    control_plane.request("PATCH", roles, {"rules": rules}, "application/merge-patch+json")
    control_plane.wait_until_allowed(namespace, tenant.token, rules)
    with pytest.raises(LabError, match="is deprecated"):
        tenant.send("GET", tenant.core("endpoints"))
    assert control_plane.deprecated(account) == {("", "endpoints", "list")}
