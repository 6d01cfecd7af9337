"""Compares the schema of TFTrainingJob that the API server serves with the types of this version of the operator.

A definition of an older version lacks fields: the API server drops these from every job and status that is written.
"""

from collections.abc import Iterator

import msgspec

from tftraining_api.model.names import GROUP, KIND, VERSION
from tftraining_api.model.spec import JobSpec, Manifest
from tftraining_api.model.status import Status


def missing_fields(document: Manifest) -> list[str] | None:
    """The fields of spec and status that the served schema lacks, a parent in place of its children; None if the
    OpenAPI v3 `document` has no schema of TFTrainingJob."""
    served = _schema_of_job(document)
    if served is None:
        return None
    parts = (("spec", JobSpec), ("status", Status))
    return sorted(
        name
        for part, kind in parts
        for name in _within(part, served.get("properties", {}).get(part) or {}, msgspec.inspect.type_info(kind))
    )


def _schema_of_job(document: Manifest) -> Manifest | None:
    wanted = {"group": GROUP, "kind": KIND, "version": VERSION}
    for schema in ((document.get("components") or {}).get("schemas") or {}).values():
        if wanted in schema.get("x-kubernetes-group-version-kind", ()):
            found: Manifest = schema
            return found
    return None


def _of_struct(path: str, schema: Manifest, kind: msgspec.inspect.StructType) -> Iterator[str]:
    properties = schema.get("properties") or {}
    for field in kind.fields:
        name = f"{path}.{field.encode_name}"
        if field.encode_name not in properties:
            yield name
        else:
            yield from _within(name, properties[field.encode_name], field.type)


def _within(path: str, schema: Manifest, kind: msgspec.inspect.Type) -> Iterator[str]:
    if isinstance(kind, msgspec.inspect.StructType):
        yield from _of_struct(path, schema, kind)
    elif isinstance(kind, msgspec.inspect.UnionType):
        for each in kind.types:
            yield from _within(path, schema, each)
    elif isinstance(kind, msgspec.inspect.VarTupleType):
        yield from _within(path, schema.get("items") or {}, kind.item_type)
    elif isinstance(kind, msgspec.inspect.DictType) and isinstance(kind.value_type, msgspec.inspect.StructType):
        # A map of any keys, or the known keys of one, such as the roles.
        extra = schema.get("additionalProperties")
        children = {"*": extra} if isinstance(extra, dict) else schema.get("properties") or {}
        for name, child in children.items():
            yield from _within(f"{path}.{name}", child, kind.value_type)
