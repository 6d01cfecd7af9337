"""What people apply is what an API server takes: install.yaml of a release, and each manifest of pages and examples."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import binaries, release_files
from testbed.shell import LabError
from tests.support.client.pod_fields import fields_of
from tests.support.control_plane.apiserver import ControlPlane, WriteRefused
from tests.support.control_plane.jobs import wait_until
from tests.support.page_commands import blocks
from tests.support.repository import REPOSITORY
from tests.unit.docs.test_paths import PAGES
from tftraining_client.validation.pod_template import FILE, STRICT, UNDESCRIBED

EXAMPLES = sorted((REPOSITORY / "examples").rglob("*.yaml"))
# Kinds of others: the module that has the definition, and its file there.
OF_OTHERS = {
    "Experiment": ("katib-crds", "manifests/v1beta1/components/crd/experiment.yaml"),
    "Kustomization": ("flux-kustomize-crds", "config/crd/bases/kustomize.toolkit.fluxcd.io_kustomizations.yaml"),
    "OCIRepository": ("flux-source-crds", "config/crd/bases/source.toolkit.fluxcd.io_ocirepositories.yaml"),
    "TFJob": ("tfjob-crds", "manifests/base/crds/kubeflow.org_tfjobs.yaml"),
    "Workflow": ("argo-workflows-crds", "manifests/base/crds/full/argoproj.io_workflows.yaml"),
}
WITHOUT_DEFINITION = {"HelmRelease"}  # the Go module proxy does not have helm-controller: docs/support.md says so
Manifest = dict[str, Any]
FIELDS = json.loads((REPOSITORY / "client" / "tftraining_client" / "validation" / FILE).read_text())
REQUIRED = {kind: [name for name, of in fields.items() if of.endswith("!")] for kind, fields in FIELDS.items()}


def versions(plane: ControlPlane, file: Path) -> dict[tuple[str, str], str]:
    """The resource version of each object of a file."""
    items = json.loads(plane.kubectl("get", "--filename", file, "--output=json"))["items"]
    return {(each["kind"], each["metadata"]["name"]): each["metadata"]["resourceVersion"] for each in items}


def test_install_yaml_installs_and_a_second_time_changes_nothing(tmp_path: Path) -> None:
    release_files.make_chart(REPOSITORY, tmp_path, release_files.Release(), "")
    file = tmp_path / "install.yaml"
    with ControlPlane() as plane:
        plane.kubectl("apply", "--server-side", "--filename", file)
        definition = "crd/tftrainingjobs.tftraining.dev"
        plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", definition)
        first = versions(plane, file)
        plane.kubectl("apply", "--server-side", "--filename", file)
        assert versions(plane, file) == first
        assert {"Namespace", "Deployment", "CustomResourceDefinition", "ServiceAccount"} <= {kind for kind, _ in first}
        deployment = plane.get("deployment/tftraining-tftraining-operator", "--namespace", "tftraining-system")
        assert deployment["kind"] == "Deployment"


def documents() -> Iterator[Manifest]:
    """Each complete manifest of the pages and of the examples."""
    pages = (block.text for page in PAGES for block in blocks(page) if block.language == "yaml")
    for text in (*pages, *(path.read_text(encoding="utf-8") for path in EXAMPLES)):
        for document in yaml.safe_load_all(text):
            if isinstance(document, dict) and {"apiVersion", "kind", "metadata"} <= document.keys():
                yield document


def dry_run(plane: ControlPlane, manifests: list[Manifest]) -> str:
    """Have the API server judge them all, without keeping any; LabError with what it says of each refused one."""
    flags = ("--server-side", "--validate=strict", "--dry-run=server", "--filename=-")
    return plane.kubectl("apply", *flags, stdin=yaml.safe_dump_all(manifests))


def test_an_api_server_takes_each_manifest_of_the_pages_and_examples(
    control_plane: ControlPlane,
) -> None:
    others = {*OF_OTHERS, *WITHOUT_DEFINITION}
    known = [each for each in documents() if each["kind"] not in others]
    assert {each["kind"] for each in documents()} - {each["kind"] for each in known} == others
    for name in {each["metadata"].get("namespace") for each in known} - {None, "default"}:
        control_plane.create_namespace(name)
    taken = dry_run(control_plane, known).splitlines()
    assert len(taken) == len(known)
    assert sum(line.startswith("tftrainingjob.") for line in taken) >= 20


def definitions(plane: ControlPlane) -> list[Manifest]:
    """All definitions of custom resources. `kubectl wait` fails where their status has no condition yet."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    found: list[Manifest] = plane.request("GET", path)["items"]
    return found


def established(definition: Manifest) -> bool:
    conditions = definition["status"].get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


@pytest.mark.slow_fault
def test_the_definitions_of_others_take_their_manifests() -> None:
    theirs = [each for each in documents() if each["kind"] in OF_OTHERS]
    with ControlPlane() as plane:
        for module, path in OF_OTHERS.values():
            plane.kubectl("create", "--filename", binaries.module_files(module) / path)
        wait_until(lambda: all(map(established, definitions(plane))), "the definitions are established")
        for name in {each["metadata"].get("namespace") for each in theirs} - {None, "default"}:
            plane.create_namespace(name)
        for each in theirs:  # server-side apply takes no generateName
            each["metadata"] = {"name": "made", **each["metadata"]}
        assert len(dry_run(plane, theirs).splitlines()) == len(theirs)
        workflow = next(each for each in theirs if each["kind"] == "Workflow")
        workflow["spec"]["entrypiont"] = workflow["spec"].pop("entrypoint")
        with pytest.raises(LabError, match="entrypiont"):
            dry_run(plane, [workflow])


@pytest.mark.parametrize(
    ("kind", "field"),
    [(kind, field) for kind in sorted(STRICT) for field in (*REQUIRED[kind], *UNDESCRIBED.get(kind, ()))],
)
def test_the_api_server_refuses_a_pod_without_what_we_require(
    control_plane: ControlPlane, namespace: str, kind: str, field: str
) -> None:
    source = {"configMap": {"name": "a", "items": [{"key": "a", "path": "b"}]}}
    container: Manifest = {"name": "a", "image": "x", "env": [{"name": "A"}], "ports": [{"containerPort": 80}]}
    container["volumeMounts"] = [{"name": "a", "mountPath": "/a"}]
    spec: Manifest = {"containers": [container], "volumes": [{"name": "a", **source}]}
    objects: dict[str, Manifest] = {
        "PodSpec": spec,
        "Container": container,
        "EnvVar": container["env"][0],
        "ContainerPort": container["ports"][0],
        "VolumeMount": container["volumeMounts"][0],
        "Volume": spec["volumes"][0],
        "KeyToPath": spec["volumes"][0]["configMap"]["items"][0],
    }

    def create() -> None:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
        control_plane.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)

    create()
    del objects[kind][field]
    with pytest.raises(WriteRefused, match=rf"{field}.*Required value"):
        create()


def test_the_fields_of_a_pod_are_those_of_the_api_server(control_plane: ControlPlane) -> None:
    for kind, fields in fields_of(control_plane.request("GET", "/openapi/v3/api/v1")).items():
        lacking = {name: type_ for name, type_ in fields.items() if FIELDS.get(kind, {}).get(name) != type_}
        assert not lacking, f"{kind} of {FILE} lacks {lacking}"


def test_a_misspelt_field_of_a_manifest_is_refused(control_plane: ControlPlane) -> None:
    job = next(each for each in documents() if each["kind"] == "TFTrainingJob")
    job["spec"]["replicaSpec"] = job["spec"].pop("replicaSpecs")
    with pytest.raises(LabError, match="replicaSpec"):
        dry_run(control_plane, [job])
