"""What the API server makes of a TFTrainingJob: accepted, defaulted, rejected with a message, shown, scaled."""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.shell import LabError
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.dry_runs import APPLY, JOBS, dry_run, kubectl_dry_run
from tests.support.control_plane.installation import CRD
from tests.support.control_plane.jobs import UNTOUCHED
from tests.support.control_plane.manifests import REMOVED, Manifest, changed, full, minimal, template
from tests.support.control_plane.rejections import IMMUTABLE, MUTABLE, REJECTED, Bad
from tests.support.control_plane.validation_messages import SHAPES, local_problems, problems
from tests.support.repository import REPOSITORY

# These are settings of other programs, no objects; tests/unit/chart/test_gitops.py reads them.
OTHER_PROGRAMS = ("argocd", "k9s")
EXAMPLES = sorted(path for path in (REPOSITORY / "examples").rglob("*.yaml") if path.parent.name not in OTHER_PROGRAMS)


def assert_rejected(
    plane: ControlPlane, namespace: str, manifest: Manifest, row: Bad, before: Manifest | None = None
) -> str:
    """Fail unless the manifest is rejected for this field with these words; the whole message."""
    with pytest.raises(LabError) as rejection:
        dry_run(plane, namespace, manifest, before)
    message = str(rejection.value)
    # Each violation is on a line of its own: the words have to stand on the line of the field.
    assert any(row.field in line and row.words in line for line in message.splitlines()), message
    return message


@pytest.fixture(scope="module")
def stored(control_plane: ControlPlane) -> Iterator[dict[str, Manifest]]:
    """The full job in a namespace, once running and once suspended, by name."""
    name = f"immutable-{secrets.token_hex(3)}"
    control_plane.create_namespace(name)
    jobs = [full("running"), changed(full("suspended"), {"spec.runPolicy.suspend": True})]
    control_plane.kubectl(*APPLY, f"--namespace={name}", stdin=yaml.safe_dump_all(jobs))
    yield {each: control_plane.request("GET", f"{JOBS.format(name)}/{each}") for each in ("running", "suspended")}
    # An operator of another test would go on trying to make their PodGroup.
    control_plane.request("DELETE", f"/apis/tftraining.dev/v1/namespaces/{name}/tftrainingjobs")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_every_example_is_accepted(control_plane: ControlPlane, path: Path) -> None:
    control_plane.kubectl("apply", "--validate=strict", "--dry-run=server", "--filename", path)


def test_the_full_manifest_is_stored_as_it_was_written(control_plane: ControlPlane) -> None:
    assert dry_run(control_plane, "default", full())["spec"] == full()["spec"]
    assert kubectl_dry_run(control_plane, "default", full())["spec"] == full()["spec"]


def test_defaults(control_plane: ControlPlane) -> None:
    job = changed(minimal(), {"spec.replicaSpecs.worker": {}, "spec.storage.volume": {"hostPath": {"path": "/data"}}})
    assert dry_run(control_plane, "default", job)["spec"] == job["spec"] | {
        "replicaSpecs": {"worker": {"replicas": 1, "port": 2222}},
        "storage": {"volume": {"hostPath": {"path": "/data"}}, "mountPath": "/training", "saveDirs": ["."]},
        "restartPolicy": {
            "mode": "InPlace",
            "maxRestarts": 10,
            "sameFailureLimit": 3,
            "sameMemberLimit": 3,
            "onDivergence": "Report",
            "budgetReset": "OnProgress",
            "rules": [],
        },
        "launcher": {
            "warmStart": True,
            "terminationGraceSeconds": 5,
            "memberTimeoutSeconds": 3,
            "memoryBackup": {"mode": "Auto", "maxOverheadPercent": 1, "exactness": "Preferred"},
            "keras": "Auto",
        },
        "runPolicy": {
            "suspend": False,
            "startDeadlineSeconds": 600,
            "evaluatorGraceSeconds": 60,
            "nodeLostSeconds": 60,
            "cleanPodPolicy": "Running",
        },
        "successPolicy": "Chief",
    }


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"metadata.name": "d" * 51}, id="longest name"),
        pytest.param({"metadata.name": "d"}, id="shortest name"),
        pytest.param({"spec.replicaSpecs": {"chief": {}}}, id="chief alone"),
        pytest.param({"spec.replicaSpecs.worker.replicas": 10000}, id="as many workers as there may be"),
        pytest.param(
            {"spec.template": REMOVED, "spec.replicaSpecs.worker.template": template()}, id="template of the role"
        ),
        pytest.param({"spec.minReplicas": 2}, id="minReplicas equal to replicas"),
        pytest.param(
            {"spec.storage.volume": {"emptyDir": {}}, "spec.replicaSpecs.worker.replicas": 1}, id="one pod's own volume"
        ),
        pytest.param({"spec.runPolicy.managedBy": "kueue.x-k8s.io/multikueue"}, id="managed by Kueue"),
        pytest.param(
            {
                "spec.runPolicy.scheduling.podGroup": {
                    "apiVersion": "scheduling.x-k8s.io/v1alpha1",
                    "minAvailable": 2,
                    "timeoutSeconds": 60,
                }
            },
            id="PodGroup of scheduler-plugins",
        ),
        pytest.param({"spec.runPolicy.scheduling": {"gang": "Native"}}, id="gang"),
        pytest.param(
            {"spec.runPolicy.scheduling": {"gang": "Native"}, "spec.template.spec.schedulerName": "default-scheduler"},
            id="gang, and its scheduler by name",
        ),
        pytest.param(
            {"spec.runPolicy.scheduling": {"gang": "Native"}, "spec.template.spec.schedulerName": None},
            id="gang, and the scheduler null",
        ),
        pytest.param({"spec.template.spec.whatIsNewNextYear": {"a": 1}}, id="pod field that the schema does not know"),
    ],
)
def test_accepted(control_plane: ControlPlane, namespace: str, changes: dict[str, Any]) -> None:
    job = changed(minimal(), changes)
    assert dry_run(control_plane, namespace, job)["spec"][("template" in job["spec"] and "template") or "replicaSpecs"]


def test_what_is_left_empty_is_stored_as_it_was_written(control_plane: ControlPlane) -> None:
    """kubectl apply and Helm leave it out, other clients do not. A definition that dropped it would change what running
    pods were made from."""
    empty = template(securityContext=None, resources={"limits": None}, volumeMounts=None)
    empty["metadata"] = {"labels": None, "annotations": None}
    empty["spec"] |= {"volumes": None, "securityContext": None, "schedulerName": None}
    path = "/apis/tftraining.dev/v1/namespaces/default/tftrainingjobs?dryRun=All"
    stored = control_plane.request("POST", path, changed(minimal(), {"spec.template": empty}))
    assert stored["spec"]["template"] == empty


def test_a_bare_off_is_read_as_false_and_refused(control_plane: ControlPlane) -> None:
    """YAML 1.1 has more words for false than people expect; kubectl goes by it."""
    text = yaml.safe_dump(changed(minimal(), {"spec.launcher.memoryBackup.mode": "Off"}))
    control_plane.kubectl("apply", "--dry-run=server", "--filename=-", stdin=text)
    with pytest.raises(LabError, match=r'memoryBackup.mode in body must be of type string: "boolean"'):
        control_plane.kubectl("apply", "--dry-run=server", "--filename=-", stdin=text.replace("'Off'", "Off"))


@pytest.mark.parametrize("row", REJECTED, ids=lambda row: row.name)
def test_rejected(control_plane: ControlPlane, row: Bad) -> None:
    manifest = changed(full(), row.changes)
    message = assert_rejected(control_plane, "default", manifest, row)
    assert local_problems(manifest) == problems(message)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_words_without_a_cluster(control_plane: ControlPlane, shape: str) -> None:
    manifest = changed(full(), SHAPES[shape])
    with pytest.raises(LabError) as rejection:
        kubectl_dry_run(control_plane, "default", manifest)
    assert local_problems(manifest) == problems(str(rejection.value))
    with pytest.raises(LabError) as same:
        dry_run(control_plane, "default", manifest)
    assert problems(str(same.value)) == problems(str(rejection.value))


@pytest.mark.parametrize("row", IMMUTABLE, ids=lambda row: row.name)
def test_unchangeable_while_running(control_plane: ControlPlane, stored: dict[str, Manifest], row: Bad) -> None:
    before = stored["running"]
    manifest = changed(full("running"), row.changes)
    assert_rejected(control_plane, before["metadata"]["namespace"], manifest, row, before)


@pytest.mark.parametrize("row", IMMUTABLE, ids=lambda row: row.name)
def test_changeable_while_suspended(control_plane: ControlPlane, stored: dict[str, Manifest], row: Bad) -> None:
    before = stored["suspended"]
    for suspend in (True, False):  # false: changed in the same request that resumes the job
        job = changed(full("suspended"), row.changes | {"spec.runPolicy.suspend": suspend})
        dry_run(control_plane, before["metadata"]["namespace"], job, before)


@pytest.mark.parametrize("path", MUTABLE)
def test_changeable_while_running(control_plane: ControlPlane, stored: dict[str, Manifest], path: str) -> None:
    before = stored["running"]
    manifest = changed(full("running"), {path: MUTABLE[path]})
    dry_run(control_plane, before["metadata"]["namespace"], manifest, before)


@pytest.mark.parametrize("verdict", ["accepted", "refused"])
def test_kubectl_is_told_the_same(control_plane: ControlPlane, stored: dict[str, Manifest], verdict: str) -> None:
    namespace = stored["running"]["metadata"]["namespace"]
    if verdict == "accepted":
        path = next(iter(MUTABLE))
        kubectl_dry_run(control_plane, namespace, changed(full("running"), {path: MUTABLE[path]}))
        return
    row = IMMUTABLE[0]
    with pytest.raises(LabError) as rejection:
        kubectl_dry_run(control_plane, namespace, changed(full("running"), row.changes))
    assert row.words in str(rejection.value)


def rules(schema: Manifest, path: str = "") -> Iterator[tuple[str, str]]:
    """Give the field and the message of every CEL rule below this schema."""
    for rule in schema.get("x-kubernetes-validations", []):
        yield path + rule.get("fieldPath", ""), rule["message"]
    for name, child in schema.get("properties", {}).items():
        yield from rules(child, f"{path}.{name}" if path else name)
    if "items" in schema:
        yield from rules(schema["items"], path + "[]")


def test_every_rule_has_a_row() -> None:
    version = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]
    rows = REJECTED + IMMUTABLE
    for field, message in rules(version["schema"]["openAPIV3Schema"]):
        # Rules of the spec itself are told apart by their field, those of the repeated template by their message.
        of_spec = field.startswith("spec") and "template.spec" not in field and "[]" not in field
        assert any(row.words in message and (not of_spec or row.field == field) for row in rows), (field, message)


STATUS = {
    "phase": "Restarting",
    "reason": "PodFailed",
    "ready": "1/2",
    "restarts": {"counted": 3},
    "progress": {"display": "epoch 3/10", "metrics": {"loss": 0.25}},
    "selector": "tftraining.dev/job-name=shown,tftraining.dev/role=worker",
    "replicas": {"worker": {"desired": 2, "active": 2, "ready": 1}},
}


@pytest.fixture
def shown(control_plane: ControlPlane, namespace: str) -> str:
    """A namespace with the job `shown`, which has a status; an operator of other tests leaves it alone."""
    job = minimal("shown") | {"status": {"phase": "Succeeded"}}
    job["spec"]["runPolicy"] = {"managedBy": "example.com/nobody"}
    control_plane.kubectl(*APPLY, "--namespace", namespace, stdin=json.dumps(job))
    job = control_plane.get("tftj/shown", "--namespace", namespace)
    assert job["status"] == UNTOUCHED, "apply must not set the status"
    patch(control_plane, namespace, {"status": STATUS, "spec": {"successPolicy": "AllWorkers"}})
    return namespace


def patch(plane: ControlPlane, namespace: str, body: Manifest) -> None:
    """Write the status of the job `shown`, as the operator does."""
    flags = ("--namespace", namespace, "--subresource=status", "--type=merge", "--patch", json.dumps(body))
    plane.kubectl("patch", "tftj/shown", *flags)


def test_the_status_is_a_subresource(control_plane: ControlPlane, shown: str) -> None:
    job: Any = control_plane.get("tftj/shown", "--namespace", shown)
    assert job["status"] == STATUS | {"observedGeneration": -1}
    assert job["spec"]["successPolicy"] == "Chief"
    assert job["metadata"]["generation"] == 1


def test_a_status_of_no_known_phase_is_rejected(control_plane: ControlPlane, shown: str) -> None:
    with pytest.raises(LabError, match="Unsupported value"):
        patch(control_plane, shown, {"status": {"phase": "Resting"}})


def test_printer_columns(control_plane: ControlPlane, shown: str) -> None:
    heads, cells = control_plane.kubectl("get", "tftj", "--namespace", shown, "--output=wide").splitlines()
    assert heads.split() == ["NAME", "PHASE", "READY", "RESTARTS", "PROGRESS", "AGE", "REASON"]
    assert cells.split()[:6] == ["shown", "Restarting", "1/2", "3", "epoch", "3/10"]
    assert cells.split()[-1] == "PodFailed"
    assert "REASON" not in control_plane.kubectl("get", "tftj", "--namespace", shown)


def test_kubectl_scale_changes_the_workers(control_plane: ControlPlane, shown: str) -> None:
    control_plane.kubectl("scale", "tftj/shown", "--namespace", shown, "--replicas=3")
    scale = control_plane.get("tftj/shown", "--namespace", shown, "--subresource=scale")
    assert (scale["spec"], scale["status"]) == ({"replicas": 3}, {"replicas": 2, "selector": STATUS["selector"]})
    with pytest.raises(LabError, match="should be greater than or equal to 1"):
        control_plane.kubectl("scale", "tftj/shown", "--namespace", shown, "--replicas=0")


def test_explain_shows_the_units(control_plane: ControlPlane) -> None:
    text = control_plane.kubectl("explain", "tftrainingjob.spec.runPolicy")
    assert "Seconds until the whole gang must train, at the start and after each restart" in " ".join(text.split())
    text = control_plane.kubectl("explain", "tftrainingjob.spec.restartPolicy.mode")
    assert "InPlace: the launchers restart the programs inside the running pods" in " ".join(text.split())
