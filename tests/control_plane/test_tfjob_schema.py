"""Each field of a TFJob is converted, or a note names it: shown with the published definition of kubeflow.org/v1."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from testbed import binaries
from testbed.shell import LabError
from tests.support.needed import skip_unless_in_ci
from tftraining_api.manifests.pod import PodManifests
from tftraining_api.model.job import parse_job
from tftraining_api.model.names import Replica
from tftraining_client.errors import UserError
from tftraining_client.tfjob import convert
from tftraining_client.validation.crd import METADATA

Json = dict[str, Any]
Path = tuple[str, ...]
TEMPLATE = ("spec", "tfReplicaSpecs", "Worker", "template")
# Fields of other versions than the definition's, and of nobody.
FURTHER = [
    *(("metadata", name) for name in METADATA),
    ("spec", "runPolicy", "managedBy"),
    ("spec", "runPolicy", "schedulingPolicy", "mode"),
    ("spec", "tfReplicaSpecs", "Worker", "scaleConfig"),
    (*TEMPLATE, "extra"),
    (*TEMPLATE, "metadata", "generateName"),
    ("extra",),
]
SENTINEL = "731"
VALUES: dict[str, Any] = {
    "cleanPodPolicy": "All",
    "restartPolicy": "Always",
    "successPolicy": "AllWorkers",
    "annotations": {"key": SENTINEL},
    "labels": {"key": SENTINEL},
    "runAsNonRoot": False,  # true is the operator's own
}


def base() -> Json:
    container: Json = {"name": "tensorflow", "image": "i", "command": ["python", "t.py"]}
    container |= {"ports": [{"name": "tfjob-port", "containerPort": 2222}]}
    worker = {"replicas": 2, "restartPolicy": "OnFailure", "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "x"},
        "spec": {"tfReplicaSpecs": {"Worker": worker}},
    }


def leaves(schema: Json, path: Path = ()) -> Iterator[tuple[Path, Json]]:
    """The paths of the fields without fields of their own; an item of a list is "[]", and any role is Worker."""
    if properties := schema.get("properties"):
        for name, below in properties.items():
            yield from leaves(below, (*path, name))
    elif isinstance(schema.get("items"), dict):
        yield from leaves(schema["items"], (*path, "[]"))
    elif (below := schema.get("additionalProperties")) and "properties" in below:
        yield from leaves(below, (*path, "Worker"))
    else:
        yield path, schema


def value_of(path: Path, schema: Json) -> Any:
    """A value that occurs nowhere else, or one that is not the default."""
    of_type = {"integer": int(SENTINEL), "boolean": True, "object": {"key": SENTINEL}}
    return VALUES.get(path[-1], of_type.get(str(schema.get("type")), SENTINEL))


def with_field(path: Path, value: Any) -> Json:
    """The base with one field more."""
    tfjob = base()
    at: Any = tfjob
    for step, after in zip(path, [*path[1:], None], strict=True):
        new = value if after is None else [] if after == "[]" else {}
        if step != "[]":
            at = at.setdefault(step, new) if after is not None else at.update({step: value})
        elif after is None:
            at.append(value)
        else:
            at = at[0] if at else at.append(new) or at[0]
    return tfjob


def outcome(tfjob: Json) -> tuple[Json, Json, list[str]]:
    """The job, the pod that the operator makes of it, and the notes."""
    found = convert(tfjob)
    job = parse_job({**found.job, "metadata": {"namespace": "ns", "uid": "u", **found.job["metadata"]}})
    assert job.spec is not None, job.unreadable
    (pod,) = PodManifests(job, job.spec, [Replica("worker", 0)], "launcher")
    return found.job, pod, [str(each) for each in found.notes]


@pytest.fixture(scope="module")
def found() -> dict[Path, Json]:
    """The fields of the definition, and some of other versions."""
    try:
        folder = binaries.module_files("tfjob-crds")
    except LabError as error:
        skip_unless_in_ci(error, "no definition of TFJob: ")
    file = folder / "manifests/base/crds/kubeflow.org_tfjobs.yaml"
    (version,) = yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]["versions"]
    every = dict(leaves(version["schema"]["openAPIV3Schema"])) | {path: {"type": "string"} for path in FURTHER}
    return {path: schema for path, schema in every.items() if path not in {("apiVersion",), ("kind",), ("metadata",)}}


def silent(path: Path, schema: Json, before: tuple[Json, Json, list[str]]) -> bool:
    """Whether the field is lost without a word."""
    value = value_of(path, schema)
    job, pod, notes = outcome(with_field(path, value))
    name = "status" if path[0] == "status" else [name for name in path if name != "[]"][-1]
    if any(name in note or SENTINEL in note for note in notes if note not in before[2]):
        return False
    if path[: len(TEMPLATE)] != TEMPLATE:
        return job == before[0]
    words = f'"{name}": {json.dumps(value)}' if SENTINEL not in json.dumps(value) else SENTINEL
    return json.dumps(pod).count(words) <= json.dumps(before[1]).count(words)


def test_no_field_is_lost_without_a_word(found: dict[Path, Json]) -> None:
    before = outcome(base())
    assert len(found) > 700
    assert [".".join(path) for path, schema in found.items() if silent(path, schema, before)] == []


@pytest.mark.parametrize("value", ["x", 5, [5], {"x": 5}], ids=str)
def test_a_field_of_a_wrong_type_is_one_line(found: dict[Path, Json], value: Any) -> None:
    for path in found:
        try:
            convert(with_field(path, value))
        except UserError as told:
            assert "\n" not in str(told), path
