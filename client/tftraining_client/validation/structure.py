"""The structural part of the CRD's schema: unknown fields, nulls, defaults, types, bounds, enums.

`jsonschema` finds the errors; the messages are the API server's. The module rules.py checks the CEL rules.
"""

import copy
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tftraining_client.validation.crd import METADATA
from tftraining_client.validation.problems import NotInstalled, Problem

if TYPE_CHECKING:
    from jsonschema import ValidationError

Json = dict[str, Any]

KEEP = "x-kubernetes-preserve-unknown-fields"
LIST_TYPE = "x-kubernetes-list-type"
INT64 = 2**63
_TYPES = {"boolean": bool, "integer": int, "number": float, "string": str, "array": list, "object": dict}


def path_of(parts: Any) -> str:
    """The steps to a value as text: `spec.rules[0].role`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return text.removeprefix(".")


def unknown_fields(job: Json, schema: Json) -> list[str]:
    """The fields missing from the schema, named and sorted as by the API server."""
    metadata = job.get("metadata")
    strange = [f"metadata.{name}" for name in metadata if name not in METADATA] if isinstance(metadata, dict) else []
    rest = {name: value for name, value in job.items() if name != "metadata"}
    return sorted(strange + [path_of(parts) for parts in _unknown(rest, schema, ())])


def _unknown(value: Any, schema: Json, at: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown(item, schema.get("items", {}), (*at, index))
    elif isinstance(value, dict):
        for name, item in value.items():
            below = schema_of(name, schema)
            if below is not None:
                yield from _unknown(item, below, (*at, name))
            elif not schema.get(KEEP):
                yield (*at, name)


def schema_of(name: str, schema: Json) -> Json | None:
    """The schema of a field of an object; None if the object's schema has no such field."""
    found: Json | None = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
    return found


def as_stored(job: Json, schema: Json) -> Json:
    """A copy as the API server stores it: defaults, no nulls, whole floats as integers, no status (a subresource)."""
    result: Json = _as_stored(job, schema)
    result.pop("status", None)
    if not isinstance(result.get("metadata"), dict):
        result["metadata"] = {}
    return result


def _as_stored(value: Any, schema: Json) -> Any:
    if isinstance(value, dict):
        return _stored_object(value, schema)
    if isinstance(value, list):
        return [_as_stored(item, schema.get("items", {})) for item in value]
    if schema.get("type") == "integer" and isinstance(value, float) and value.is_integer() and abs(value) < INT64:
        return int(value)
    if type(value) is int and abs(value) >= INT64:
        return float(value)  # as JSON decoders do
    return value


def _stored_object(value: Json, schema: Json) -> Json:
    present = {name: item for name, item in value.items() if item is not None}
    for name, below in schema.get("properties", {}).items():
        if "default" in below and name not in present:
            present[name] = copy.deepcopy(below["default"])
    return {name: _as_stored(item, schema_of(name, schema) or {}) for name, item in present.items()}


def structural_problems(job: Json, schema: Json) -> list[Problem]:
    """The violations of the structural schema, sorted by field; then the duplicate members of sets."""
    try:
        from jsonschema import Draft202012Validator  # noqa: PLC0415  of an extra
    except ImportError as error:
        raise NotInstalled("jsonschema") from error
    found = [problem for error in Draft202012Validator(schema).iter_errors(job) for problem in _problems(error)]
    return sorted(found, key=str) + list(_duplicates(job, schema, ()))


def _problems(error: "ValidationError") -> list[Problem]:
    field = path_of(error.absolute_path)
    limit: Any = error.validator_value
    value: Any = error.instance
    return {  # a test checks that the CRD uses no other keywords
        "required": lambda: _required(field, limit, value, error.message),
        "type": lambda: [_wrong_type(field, limit, value)],
        "enum": lambda: [_unsupported(field, limit, value)],
        "minimum": lambda: [_out_of_bounds(field, value, f"should be greater than or equal to {limit}")],
        "maximum": lambda: [_out_of_bounds(field, value, f"should be less than or equal to {limit}")],
        "minLength": lambda: [_out_of_bounds(field, value, f"should be at least {limit} chars long")],
        "minItems": lambda: [_out_of_bounds(field, len(value), f"should have at least {limit} items")],
        "minProperties": lambda: [_out_of_bounds(field, len(value), f"should have at least {limit} properties")],
        "maxLength": lambda: [Problem(field, f"Too long: may not be more than {limit} bytes", blocks=True)],
        "maxItems": lambda: [_too_many(field, limit, value)],
        "maxProperties": lambda: [_too_many(field, limit, value)],
    }[str(error.validator)]()


def _required(field: str, names: Any, value: Mapping[str, Any], message: str) -> list[Problem]:
    """jsonschema raises one error per missing name, and gives the name only in the message."""
    missing = next(name for name in names if name not in value and message.startswith(repr(name)))
    return [Problem(f"{field}.{missing}" if field else missing, "Required value", blocks=True)]


def _wrong_type(field: str, wanted: str, value: Any) -> Problem:
    found = "null" if value is None else next(name for name, kind in _TYPES.items() if type(value) is kind)
    text = f'Invalid value: "{found}": {field} in body must be of type {wanted}: "{found}"'
    return Problem(field, text, blocks=True)


def _unsupported(field: str, values: list[str], value: Any) -> Problem:
    supported = ", ".join(json.dumps(each) for each in values)
    return Problem(field, f"Unsupported value: {json.dumps(value)}: supported values: {supported}", blocks=True)


def _out_of_bounds(field: str, value: Any, words: str) -> Problem:
    return Problem(field, f"Invalid value: {json.dumps(value)}: {field} in body {words}")


def _too_many(field: str, limit: int, value: Any) -> Problem:
    noun = "item" if limit == 1 else "items"
    return Problem(field, f"Too many: {len(value)}: must have at most {limit} {noun}", blocks=True)


def _duplicates(value: Any, schema: Json, at: tuple[str | int, ...]) -> Iterator[Problem]:
    """The members that occur more than once in a set, one problem each."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _duplicates(item, schema_of(name, schema) or {}, (*at, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if schema.get(LIST_TYPE) == "set" and value[:index].count(item) == 1:
                yield Problem(path_of((*at, index)), f"Duplicate value: {json.dumps(item)}")
            yield from _duplicates(item, schema.get("items", {}), (*at, index))
