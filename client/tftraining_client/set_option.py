r"""`--set PATH=VALUE`: changes of fields of the manifest, made before its validation.

A path has names separated by dots, `[0]` (or `.0`) for a list item, and `\.` for a literal dot. A path may
name a field that the manifest lacks, if the CRD has the field or allows unknown fields there, as in most of a pod
template. Every other path is an error that names the nearest field: no change is ignored silently.
"""

import re
from collections.abc import Iterable
from typing import Any

from tftraining_client.errors import UserError
from tftraining_client.manifest import Notify, read_value
from tftraining_client.validation.crd import METADATA, custom_resource
from tftraining_client.validation.problems import SIMILAR, nearest
from tftraining_client.validation.structure import KEEP, Json, path_of, schema_of

Step = str | int

_NAME = r"(?:\\.|[^.\\\[])+"
_PATH = re.compile(rf"{_NAME}(?:\[\d+\])*(?:\.{_NAME}(?:\[\d+\])*)*")
_STEP = re.compile(rf"\[(?P<index>\d+)\]|(?P<name>{_NAME})")
_OPEN: Json = {KEEP: True}
_WORDS: Json = {"type": "object", "additionalProperties": {"type": "string"}}
_METADATA: Json = {"type": "object", "properties": dict.fromkeys(METADATA, _OPEN) | {"name": {"type": "string"}}}
_METADATA["properties"] |= {"labels": _WORDS, "annotations": _WORDS}
_MISSPELT = 0.85  # similarity to a known field from which on an unknown name is refused where the CRD allows them
_KINDS = {"boolean": "a boolean", "integer": "a number", "number": "a number", "string": "a string"}
_TYPES = {bool: "a boolean", int: "a number", float: "a number", str: "a string"}


class _LeadsNowhere(Exception):
    """The error of a path that leads to no field, as a message for the user."""


def with_set_options(job: Json, changes: Iterable[str], notify: Notify) -> Json:
    """Apply changes such as `spec.minReplicas=1` (values in YAML) in place; UserError for an impossible change.

    `notify` is called for fields that only a cluster can validate.
    """
    for change in changes:
        path, equals, text = change.partition("=")
        if not equals or not path:
            raise UserError(f"--set {change}: must be PATH=VALUE, such as spec.replicaSpecs.worker.replicas=1")
        try:
            unknown = _change(job, _steps(path), read_value(text))
        except (_LeadsNowhere, ValueError) as error:
            raise UserError(f"--set {change}: {error}") from error
        if unknown:
            notify(f"--set {change}: cannot validate the new field {path_of(unknown)} without a cluster; keeping it")
    return job


def _steps(path: str) -> list[Step]:
    if _PATH.fullmatch(path) is None:
        raise _LeadsNowhere(r"a path has names separated by dots, [0] for a list item, \. for a literal dot")
    found = _STEP.finditer(path)
    return [int(each["index"]) if each["index"] else re.sub(r"\\(.)", r"\1", each["name"]) for each in found]


def _change(job: Json, steps: list[Step], value: Any) -> list[Step]:
    """Set the field; the path of the first field on the way that neither the manifest nor the CRD has."""
    if steps[0] not in ("metadata", "spec"):
        raise _LeadsNowhere(f"only fields of metadata and of spec can be set, not {steps[0]}")
    spec = custom_resource().schema["properties"]["spec"]
    node: Any = job
    schema: Json = {"properties": {"metadata": _METADATA, "spec": spec}}
    new: list[Step] = []
    for number, step in enumerate(steps, 1):
        key, below = _find(node, schema, step, steps[: number - 1])
        if below is _OPEN and key not in node:
            new = new or steps[:number]
        if number == len(steps):
            node[key] = value
        elif isinstance(node, dict) and node.get(key) is None:
            node[key] = _empty(below, steps[:number])
        node, schema = node[key], below
    return new


def _find(node: Any, schema: Json, step: Step, at: list[Step]) -> tuple[Any, Json]:
    """The key of the step in the node, and the schema of the value at that key."""
    if isinstance(node, list):
        return _index(node, step, at), schema.get("items", _OPEN)
    if not isinstance(node, dict):
        raise _LeadsNowhere(f"{path_of(at)} is {_what(node)}, which has no fields")
    if isinstance(step, int):
        raise _LeadsNowhere(f"{path_of(at)} is not a list")
    return step, _field(node, schema, step, at)


def _index(items: list[Any], step: Step, at: list[Step]) -> int:
    if not str(step).isdecimal():
        raise _LeadsNowhere(f"{path_of(at)} is a list: write {path_of([*at, 0])}.{step} for its first item")
    if int(step) >= len(items):
        count = f"{len(items)} item{'s' * (len(items) != 1)}"
        last = f", the last is [{len(items) - 1}]" if items else ""
        raise _LeadsNowhere(f"{path_of(at)} has {count}{last}")
    return int(step)


def _field(node: Json, schema: Json, name: str, at: list[Step]) -> Json:
    """The schema of a field; an open schema for a field that only a cluster can validate."""
    below = schema_of(name, schema)
    if below is not None:
        return below
    known = schema.get("properties", {})
    near = nearest(name, known, _MISSPELT if schema.get(KEEP) else SIMILAR)
    if name in node or (schema.get(KEEP) and not near):
        return _OPEN
    proposal = f"did you mean {near}?" if near else f"it has {', '.join(sorted(known))}"
    raise _LeadsNowhere(f"{path_of(at)} has no field {name}; {proposal}")


def _empty(schema: Json, at: list[Step]) -> Json:
    """The value to create for a missing parent of the field: an empty object."""
    kind = schema.get("type")
    if kind == "array":
        raise _LeadsNowhere(f"{path_of(at)} is not in the manifest: set the whole list, {path_of(at)}=[…]")
    if kind in _KINDS:
        raise _LeadsNowhere(f"{path_of(at)} is {_KINDS[kind]}, which has no fields")
    return {}


def _what(value: Any) -> str:
    return next((word for kind, word in _TYPES.items() if isinstance(value, kind)), "empty")
