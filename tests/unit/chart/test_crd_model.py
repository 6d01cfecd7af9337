"""The operator's types and the custom resource definition say the same: the same fields, the same defaults."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.support.crd import definition
from tftraining_api.model.goodput import WORDS
from tftraining_api.model.spec import JobSpec
from tftraining_api.model.status import Status

Schema = dict[str, Any]
CRD: Schema = definition()
ROOT: Schema = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]


def of_crd(schema: Schema, path: str) -> Iterator[tuple[str, Any]]:
    """Give every field of the definition with its default, None where it has none."""
    if "additionalProperties" in schema:  # a map: its keys are not fields
        return
    for name, child in schema.get("properties", {}).items():
        yield f"{path}.{name}", child.get("default")
        yield from of_crd(child, f"{path}.{name}")
    if "items" in schema:
        yield from of_crd(schema["items"], path)


def of_type(schema: Schema, named: Schema, path: str) -> Iterator[tuple[str, Any]]:
    """Give every field of a type with its default, None where it has none; `named` holds the types referred to."""
    for choice in schema.get("anyOf", [schema]):
        resolved = named[choice["$ref"].rpartition("/")[2]] if "$ref" in choice else choice
        for name, child in resolved.get("properties", {}).items():
            yield f"{path}.{name}", child.get("default")
            yield from of_type(child, named, f"{path}.{name}")
        if isinstance(resolved.get("items"), dict):
            yield from of_type(resolved["items"], named, path)


def compared(kind: type, path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields of the type and of the definition below `path`, without what the type leaves unparsed."""
    (schema,), named = msgspec.json.schema_components([kind])
    typed = dict(of_type(schema, named, path))
    unparsed = ("template.", "volume.", "status.replicas.", "goodput.seconds.")
    defined = {key: value for key, value in of_crd(ROOT[path], path) if not any(part in key for part in unparsed)}
    return typed, defined


def described(schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    """Give every field below `path` with its description; what is Kubernetes' own has none of our marks."""
    for name, child in schema.get("properties", {}).items():
        field = f"{path}.{name}"
        if not re.search(r"\.template\.(metadata|spec)|\.volume\.", field):
            yield field, child["description"]
            yield from described(child, field)
    if "items" in schema:
        yield from described(schema["items"], f"{path}[]")


def test_each_field_of_the_spec_is_alpha_beta_or_stable() -> None:
    fields = dict(described(ROOT["spec"], "spec"))
    assert len(fields) > 60
    wrong = [name for name, text in fields.items() if not re.search(r"[^.] ?\. (Alpha|Beta|Stable)\.$", text)]
    assert wrong == []
    # A part is at least as stable as all that is in it: a stable field of an alpha object promises nothing.
    order = ("Alpha", "Beta", "Stable")
    marks = {name: order.index(text.rstrip(".").rpartition(" ")[2]) for name, text in fields.items()}
    parents = {name: name.rpartition(".")[0].removesuffix("[]") for name in marks}
    assert [name for name, parent in parents.items() if parent in marks and marks[parent] < marks[name]] == []


@pytest.mark.parametrize(("kind", "path"), [(JobSpec, "spec"), (Status, "status")])
def test_the_same_fields(kind: type, path: str) -> None:
    typed, defined = compared(kind, path)
    assert len(typed) > 30
    assert set(typed) == set(defined)


def test_the_same_defaults() -> None:
    typed, defined = compared(JobSpec, "spec")
    # An object's default is {} in the definition, and what its own fields then get is compared field by field.
    differing = {key for key, value in defined.items() if value != {} and plain(typed[key]) != plain(value)}
    assert differing == set()


def plain(default: Any) -> Any:
    """Return a default such that tuples are lists, and a list that is empty is none at all."""
    return (list(default) or None) if isinstance(default, list | tuple) else default


def test_the_causes_of_goodput() -> None:
    assert list(ROOT["status"]["properties"]["goodput"]["properties"]["seconds"]["properties"]) == list(WORDS)


def test_the_counts_of_each_role() -> None:
    (_, named) = msgspec.json.schema_components([Status])
    for counts in ROOT["status"]["properties"]["replicas"]["properties"].values():
        assert set(counts["properties"]) == set(named["Counts"]["properties"])
