"""A manifest is judged here as the API server judges it; the control-plane tier compares the very messages."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.control_plane.manifests import REMOVED, changed, full, minimal, template
from tests.support.control_plane.rejections import REJECTED, Bad
from tests.support.repository import REPOSITORY
from tftraining_client.__main__ import main
from tftraining_client.manifest import read_manifest
from tftraining_client.validation import InvalidManifest, check_templates, validate
from tftraining_client.validation.crd import FILE, custom_resource
from tftraining_client.validation.rules import compiled

CRD = REPOSITORY / "crds" / "tftrainingjobs.yaml"
KNOWN_RULE_KEYS = {"rule", "message", "fieldPath", "reason"}
KNOWN_KEYWORDS = {
    *("type", "format", "description", "default", "properties", "items", "additionalProperties", "required", "enum"),
    *("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
    *("x-kubernetes-validations", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-list-type"),
    *("x-kubernetes-list-map-keys", "nullable"),  # nulls are left out before anything is looked at
}


@pytest.mark.parametrize("row", REJECTED, ids=lambda row: row.name)
def test_rejected(row: Bad, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(changed(full(), row.changes)))
    assert main(["run", str(file), "--workdir", str(tmp_path / "training")]) == 2
    out, said = capsys.readouterr()
    assert any(row.field in line and row.words in line for line in said.splitlines()), said
    assert (out, list(tmp_path.iterdir())) == ("", [file]), "nothing was begun"


def test_one_problem_is_one_line_and_several_are_a_list() -> None:
    with pytest.raises(InvalidManifest) as one:
        validate(changed(full(), {"spec.minReplicas": 4}))
    assert str(one.value) == (
        'The TFTrainingJob "full" is invalid: spec.minReplicas: Invalid value: "object": must not exceed '
        "spec.replicaSpecs.worker.replicas; lower it, or raise the replicas"
    )
    with pytest.raises(InvalidManifest) as two:
        validate(changed(full(), {"spec.minReplicas": 4, "spec.replicaSpecs.ps.port": 0}))
    assert [line[:15] for line in str(two.value).splitlines()] == [
        "The TFTrainingJ",
        "* spec.replicaS",
        "* spec.minRepli",
    ]


def test_defaults() -> None:
    job = changed(minimal(), {"spec.replicaSpecs.worker": {}, "spec.storage.volume": {"hostPath": {"path": "/data"}}})
    spec = validate(job)["spec"]
    assert spec["replicaSpecs"] == {"worker": {"replicas": 1, "port": 2222}}
    assert spec["storage"] == {"volume": {"hostPath": {"path": "/data"}}, "mountPath": "/training", "saveDirs": ["."]}
    limits = {
        "maxRestarts": 10,
        "sameFailureLimit": 3,
        "sameMemberLimit": 3,
        "onDivergence": "Report",
        "budgetReset": "OnProgress",
    }
    assert spec["restartPolicy"] == {"mode": "InPlace", **limits, "rules": []}
    assert spec["launcher"]["warmStart"] is True
    assert spec["successPolicy"] == "Chief"
    assert "storage" not in validate(minimal())["spec"]


def test_what_is_complete_is_left_as_it_is() -> None:
    assert validate(full()) == full()


EXAMPLES = [*(REPOSITORY / "examples").glob("*.yaml"), *(REPOSITORY / "examples" / "lessons").glob("*.yaml")]


@pytest.mark.parametrize("path", sorted(EXAMPLES), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_example_is_accepted(path: Path) -> None:
    job, _ = read_manifest(str(path), None, fail)
    assert validate(job)["kind"] == "TFTrainingJob"


def fail(note: str) -> None:
    """A claim is the one object that an example may bring along and `tftj run` does not need."""
    if not note.endswith("skipped: PersistentVolumeClaim"):
        pytest.fail(note)


@pytest.mark.parametrize("path", [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))], ids=str)
def test_every_manifest_of_the_documentation_is_accepted(path: Path) -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)
    # Of other programs: tests/unit/chart renders the chart with its values.
    others = ("# values of the chart", "# prometheus.yml")
    manifests = [each for block in blocks if not block.startswith(others) for each in yaml.safe_load_all(block)]
    for manifest in manifests:
        if "tftraining.dev" in manifest.get("apiVersion", "tftraining.dev"):
            validate(manifest if "kind" in manifest else merged(minimal(), manifest))
    needed = ("README.md", "docs/migration.md", "docs/scheduling.md")
    assert manifests or path not in [REPOSITORY / name for name in needed]


def merged(manifest: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """The manifest with what a part of one says."""
    both = {name: merged(manifest[name], part[name]) for name in part if isinstance(manifest.get(name), dict)}
    return {**manifest, **part, **both}


@pytest.mark.parametrize(
    "changes",
    [
        {"spec.replicaSpecs": {"chief": {}}},
        {"spec.template": REMOVED, "spec.replicaSpecs.worker.template": template()},
        {"spec.storage.volume": {"emptyDir": {}}, "spec.replicaSpecs.worker.replicas": 1},
        {"spec.template.spec.whatIsNewNextYear": {"a": 1}},
        {"spec.storage": None, "spec.restartPolicy": {"mode": None}},
        {"spec.replicaSpecs.worker.replicas": 2.0},
        {"status": {"phase": "anything"}},
        {"metadata.annotations": {"a": "b"}},
    ],
    ids=str,
)
def test_accepted(changes: dict[str, Any]) -> None:
    validate(changed(minimal(), changes))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"metadata.name": REMOVED}, "metadata.name: Required value"),
        ({"metadata": None}, "metadata.name: Required value"),
        ({"metadata": "digits"}, "metadata.name: Required value"),
        ({"metadata.name": 7}, "metadata.name: Invalid value: 7: must be a string: put it in quotes"),
        ({"metadata.labels": {"a": True}}, "metadata.labels[a]: Invalid value: True: must be a string"),
        ({"metadata.labels": ["a"]}, "metadata.labels: must be an object"),
        ({"metadata.foo": 1}, 'unknown field "metadata.foo"'),
        ({"spec": "x"}, 'spec: Invalid value: "string": spec in body must be of type object'),
        ({"spec.replicaSpecs.worker": []}, '"array": spec.replicaSpecs.worker in body must be of type object: "array"'),
        ({"spec.replicaSpecs.worker.replicas": 2**70}, "should be less than or equal to 10000"),
        ({"spec.template.spec.containers.0": None}, 'spec.template.spec.containers[0]: Invalid value: "null"'),
    ],
    ids=str,
)
def test_shapes_that_are_no_manifest_at_all(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(InvalidManifest) as rejection:
        validate(changed(minimal(), changes))
    assert line in str(rejection.value)


CONTAINER = "spec.template.spec.containers.0"
SHOWN = "spec.template.spec.containers[0]"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({f"{CONTAINER}.imgae": "x"}, f"{SHOWN}.imgae: unknown field (did you mean image?)"),
        ({f"{CONTAINER}.workingdir": "/"}, f"{SHOWN}.workingdir: unknown field (did you mean workingDir?)"),
        (
            {f"{CONTAINER}.env": [{"name": "A", "value": 1}]},
            f"{SHOWN}.env[0].value: must be a string",
        ),
        ({f"{CONTAINER}.ports": [{"containerPort": "80"}]}, f"{SHOWN}.ports[0].containerPort: must be a number"),
        ({f"{CONTAINER}.resources": {"limts": {"cpu": 1}}}, f"{SHOWN}.resources.limts: unknown field"),
        ({"spec.template.spec.nodeSelecter": {"a": "b"}}, "nodeSelecter: unknown field (did you mean nodeSelector?)"),
        ({"spec.template.spec.tolerations": {"key": "a"}}, "spec.template.spec.tolerations: must be a list"),
        ({f"{CONTAINER}.image": None}, f"{SHOWN}.image: Required value"),
        ({"spec.template.spec.initContainers": [{"image": "x"}]}, "spec.initContainers[0].name: Required value"),
        ({f"{CONTAINER}.volumeMounts": [{"name": "a"}]}, f"{SHOWN}.volumeMounts[0].mountPath: Required value"),
        ({f"{CONTAINER}.env": [{"value": "1"}]}, f"{SHOWN}.env[0].name: Required value"),
        ({"spec.template.spec.volumes": [{"emptyDir": {}}]}, "spec.template.spec.volumes[0].name: Required value"),
        ({"spec.storage.volume": {"hostPath": {"paht": "/a", "path": "/a"}}}, "spec.storage.volume.hostPath.paht:"),
    ],
    ids=str,
)
def test_a_pod_template_that_no_cluster_takes_does_not_run(
    changes: dict[str, Any], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(changed(minimal(), changes)))
    assert main(["run", str(file), "--workdir", str(tmp_path / "training")]) == 2
    assert line in capsys.readouterr().err


def test_a_pod_template_of_a_newer_kubernetes_is_only_told_of() -> None:
    resources = {"limits": {"cpu": 1, "memory": "1Gi"}}
    job = changed(minimal(), {"spec.template.spec.whatIsNewNextYear": {"a": 1}, f"{CONTAINER}.resources": resources})
    assert check_templates(job) == ["spec.template.spec.whatIsNewNextYear: Kubernetes up to 1.37 has no such field"]
    assert check_templates(full()) == []


@pytest.mark.parametrize(
    ("changes", "end"),
    [
        ({"spec.replicaSpecs.worker.replica": 2}, "; did you mean spec.replicaSpecs.worker.replicas?"),
        ({"spec.replicaSpecs.wroker": {}}, "; did you mean spec.replicaSpecs.worker?"),
        ({"metadata.lables": {}}, "; did you mean metadata.labels?"),
        ({"spec.xyz": 1}, 'unknown field "spec.xyz"'),
    ],
    ids=str,
)
def test_an_unknown_field_is_told_with_the_nearest_one(changes: dict[str, Any], end: str) -> None:
    with pytest.raises(InvalidManifest) as rejection:
        validate(changed(minimal(), changes))
    assert str(rejection.value).endswith(end)


def test_the_definition_that_is_shipped_is_the_one_that_is_applied() -> None:
    assert (REPOSITORY / "client" / "tftraining_client" / FILE).read_bytes() == CRD.read_bytes()
    assert custom_resource().api_version == "tftraining.dev/v1"


def schemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give the schema and all below it."""
    yield schema
    below = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
    for each in below:
        if each is not None:
            yield from schemas(each)


def test_the_definition_says_nothing_that_is_not_understood_here() -> None:
    for schema in schemas(custom_resource().schema):
        assert set(schema) <= KNOWN_KEYWORDS
        assert schema.get("x-kubernetes-list-type") in (None, "set", "map")
        for rule in schema.get("x-kubernetes-validations", ()):
            assert set(rule) <= KNOWN_RULE_KEYS
            assert rule.get("reason") in (None, "FieldValueRequired")
            compiled(rule["rule"])
