"""Permissions that come after the operator's start: what the API server has refused is watched without a restart."""

import copy
import re
from pathlib import Path

from tests.control_plane.test_operator_bad_input import WOKEN, set_quota
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.installation import operator_kubeconfig
from tests.support.control_plane.jobs import UNTOUCHED, TrainingJob, wait_until
from tests.support.control_plane.operator_process import OperatorProcess

MERGE = "application/merge-patch+json"
LATE = ("events", "nodes", "resourcequotas")


def refused(operator: OperatorProcess) -> set[str]:
    """The watches that the API server refuses, by the metric."""
    return {*re.findall(r'^tftraining_refused_watches\{watch="(.*)"\} 1\.0$', operator.get("metrics")[1], re.M)}


def without(rules: list[dict[str, list[str]]], resources: tuple[str, ...]) -> list[dict[str, list[str]]]:
    """The rules without the right to read these resources of the core group."""
    left = copy.deepcopy(rules)
    for rule in left:
        if "" in rule["apiGroups"]:
            rule["resources"] = [each for each in rule["resources"] if each not in resources]
    return [rule for rule in left if rule["resources"]]


def test_a_namespace_whose_role_comes_late_is_served_then_and_holds_up_no_other(
    control_plane: ControlPlane, namespace: str, operator: OperatorProcess, tmp_path: Path
) -> None:
    operator.kill()
    first = f"{namespace}-first"
    control_plane.create_namespace(first)
    kubeconfig = operator_kubeconfig(control_plane, [first], release="late")
    served, waiting = TrainingJob(control_plane, first), TrainingJob(control_plane, namespace)
    with OperatorProcess(kubeconfig, tmp_path, TFTRAINING_NAMESPACES=f"{namespace},{first}") as late:
        served.create()
        waiting.create()
        served.run()
        assert waiting.status() == UNTOUCHED
        assert refused(late) == {f"{kind} in {namespace}" for kind in ("pods", "services")}
        said = f"ok, but this account may not list and watch pods in {namespace}, services in {namespace}"
        assert late.get("readyz") == (200, said) and late.get("healthz")[0] == 200
        pid = late.pid
        operator_kubeconfig(control_plane, [first, namespace], release="late")
        wait_until(lambda: len(waiting.pods(attempt=1)) == 2, "the pods of the job in the late namespace")
        waiting.run()
        waiting.fail_pod("job-worker-1")
        waiting.run(attempt=2)
        assert (late.get("readyz"), refused(late), late.pid) == ((200, "ok"), set(), pid)
        served.fail_pod("job-worker-0")
        served.run(attempt=2)


def test_an_operator_that_may_watch_no_namespace_yet_is_not_ready_and_waits(
    control_plane: ControlPlane, namespace: str, operator: OperatorProcess, tmp_path: Path
) -> None:
    operator.kill()
    elsewhere = f"{namespace}-elsewhere"
    control_plane.create_namespace(elsewhere)
    kubeconfig = operator_kubeconfig(control_plane, [elsewhere], release="none")
    none = OperatorProcess(kubeconfig, tmp_path, TFTRAINING_NAMESPACES=namespace)
    none.start(wait=False)
    try:
        wait_until(lambda: len(refused(none)) == 2, "the watches are refused")
        said = f"no namespace is served yet: this account may not list and watch pods in {namespace}"
        code, text = none.get("readyz")
        assert code == 500 and text.startswith(said) and none.get("healthz") == (200, "ok")
        job = TrainingJob(control_plane, namespace)
        job.create()
        operator_kubeconfig(control_plane, [namespace], release="none")
        wait_until(lambda: none.get("readyz") == (200, "ok"), "the operator is ready")
        job.run()
    finally:
        none.kill()


def test_events_quotas_and_nodes_are_watched_once_they_may_be(
    control_plane: ControlPlane, namespace: str, operator: OperatorProcess, tmp_path: Path
) -> None:
    operator.kill()
    kubeconfig = operator_kubeconfig(control_plane, release="narrow")
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/narrow-tftraining-operator"
    rules = control_plane.request("GET", path)["rules"]
    control_plane.request("PATCH", path, {"rules": without(rules, LATE)}, MERGE)
    with OperatorProcess(kubeconfig, tmp_path) as narrow:
        warned, held = TrainingJob(control_plane, namespace, "warned"), TrainingJob(control_plane, namespace, "held")
        warned.create()
        pods = warned.wait_for_pods(attempt=1)
        set_quota(control_plane, namespace, pods=0)
        held.create()
        everything = {"nodes", *(f"{kind} in all namespaces" for kind in ("events", "resourcequotas"))}
        wait_until(lambda: refused(narrow) == everything, "all three watches are wanted and refused")
        assert all(each in narrow.get("readyz")[1] for each in everything) and narrow.get("readyz")[0] == 200
        control_plane.request("PATCH", path, {"rules": rules}, MERGE)
        wait_until(lambda: narrow.get("readyz") == (200, "ok"), "nothing is refused any more")
        assert refused(narrow) == set() and 'watch_age_seconds{watch="nodes"}' in narrow.get("metrics")[1]
        set_quota(control_plane, namespace, pods=2)
        wait_until(lambda: len(held.pods()) == 2, "the change of the quota has woken the job", WOKEN)
        entry = {"name": "tensorflow", "image": "trainer:1", "imageID": "", "restartCount": 0, "ready": False}
        creating = {**entry, "state": {"waiting": {"reason": "ContainerCreating"}}}
        warned.patch_pod("warned-worker-1", {"status": {"containerStatuses": [creating]}}, "/status")
        about = {"kind": "Pod", "namespace": namespace, "name": "warned-worker-1"}
        about |= {"uid": pods["warned-worker-1"]["metadata"]["uid"], "fieldPath": "spec.containers{tensorflow}"}
        event = {
            "metadata": {"generateName": "warned-worker-1.", "namespace": namespace},
            "involvedObject": about,
            "type": "Warning",
            "reason": "Failed",
            "message": 'Failed to pull image "trainer:1": no such image',
        }
        control_plane.request("POST", f"/api/v1/namespaces/{namespace}/events", event)
        wait_until(lambda: "no such image" in warned.status().get("message", ""), "the kubelet's warning shows")
