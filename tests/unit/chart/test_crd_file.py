"""The custom resource definition as documentation: every field is explained, every duration has its unit."""

from collections.abc import Iterator
from typing import Any

from tests.support.crd import definition

Schema = dict[str, Any]
CRD: Schema = definition()
(VERSION,) = CRD["spec"]["versions"]
SPEC: Schema = VERSION["schema"]["openAPIV3Schema"]["properties"]["spec"]


def fields(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """Give every field below this schema with its path."""
    for name, child in schema.get("properties", {}).items():
        yield f"{path}.{name}", child
        yield from fields(child, f"{path}.{name}")
    if "items" in schema:
        yield from fields(schema["items"], f"{path}[]")


def test_every_field_of_the_spec_is_explained() -> None:
    # The sources of a volume are the pod's: Kubernetes explains them.
    silent = [path for path, field in fields(SPEC, "spec") if not field.get("description") and ".volume." not in path]
    assert silent == []


def test_every_duration_names_its_unit() -> None:
    durations = [(path, field) for path, field in fields(SPEC, "spec") if "Seconds" in path]
    assert len(durations) == 9
    assert [path for path, field in durations if "Seconds" not in field["description"]] == []


def test_nothing_of_the_spec_is_kept_unchecked_but_pods_and_volume_sources() -> None:
    open_fields = [path for path, field in fields(SPEC, "spec") if field.get("x-kubernetes-preserve-unknown-fields")]
    assert [path for path in open_fields if "template" not in path and ".volume." not in path] == []


def test_the_names_are_the_public_contract() -> None:
    assert (CRD["metadata"]["name"], VERSION["name"]) == ("tftrainingjobs.tftraining.dev", "v1")
    assert CRD["spec"]["names"]["shortNames"] == ["tftj"]
    assert VERSION["subresources"]["scale"] == {
        "specReplicasPath": ".spec.replicaSpecs.worker.replicas",
        "statusReplicasPath": ".status.replicas.worker.active",
        "labelSelectorPath": ".status.selector",
    }
