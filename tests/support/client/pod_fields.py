"""The fields of a pod template as an API server describes them (/openapi/v3/api/v1), in the form of pod-fields.json."""

from typing import Any

PREFIX = "#/components/schemas/"
ROOTS = ("io.k8s.api.core.v1.PodTemplateSpec", "io.k8s.api.core.v1.Volume")


def fields_of(document: dict[str, Any]) -> dict[str, dict[str, str]]:
    """The type of each field, by the name of its object: `Container: {args: [string], name: string!, …}`; with a "!"
    for a field that must be there."""
    schemas = document["components"]["schemas"]
    found: dict[str, dict[str, str]] = {}
    waiting = list(ROOTS)
    while waiting:
        name = waiting.pop()
        properties = schemas[name].get("properties", {})
        needed = schemas[name].get("required", ())
        types = {
            field: _type(schema, schemas, waiting) + "!" * (field in needed) for field, schema in properties.items()
        }
        found[_short(name)] = types
        waiting = [each for each in waiting if _short(each) not in found]
    return found


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _type(schema: dict[str, Any], schemas: dict[str, Any], waiting: list[str]) -> str:
    reference = schema.get("$ref") or next((each["$ref"] for each in schema.get("allOf", ())), None)
    if reference is not None:
        name = reference.removeprefix(PREFIX)
        if "properties" not in schemas[name]:
            return str(schemas[name].get("type", "any")).replace("object", "any")
        waiting.append(name)
        return _short(name)
    if schema.get("type") == "array":
        return f"[{_type(schema['items'], schemas, waiting)}]"
    if "additionalProperties" in schema:
        return f"{{{_type(schema['additionalProperties'], schemas, waiting)}}}"
    return "any" if "oneOf" in schema else str(schema.get("type", "any")).replace("object", "any")
