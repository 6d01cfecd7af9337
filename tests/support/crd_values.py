"""Values that the schema of the custom resource allows, for hypothesis: every type, bound and enumeration is kept.

The keywords are those that the schema uses; another one is an error, so that a new one is not passed over. The library
for this, hypothesis-jsonschema 0.23.1 of 2024, its last version, fails with the hypothesis of 2026 on the first object:
"'many' object has no attribute 'more'". It also ignores the keywords of Kubernetes.
"""

import datetime
from typing import Any

from hypothesis import strategies as st

Schema = dict[str, Any]
FIELDS_AT_ONCE, ITEMS_AT_ONCE = 4, 3
INT32, INT64 = 2**31 - 1, 2**63 - 1
WORDS = ("", "x", "tensorflow", "worker", "worker-1", "a/b", "/", "/training", "..", ".", "1Gi", "250m", "8471", "$(X)")
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=2),
    max_leaves=4,
)
# Checked by the API server in other ways, or no restriction of values.
IGNORED = {"description", "default", "nullable", "x-kubernetes-validations", "x-kubernetes-list-map-keys"}
KNOWN = IGNORED | {
    *("type", "format", "enum", "minimum", "maximum", "minLength", "maxLength", "items", "minItems", "maxItems"),
    *("properties", "required", "additionalProperties", "minProperties", "maxProperties"),
    *("x-kubernetes-preserve-unknown-fields", "x-kubernetes-list-type", "x-kubernetes-int-or-string"),
}


def values(schema: Schema) -> st.SearchStrategy[Any]:
    """The values that the schema allows."""
    assert set(schema) <= KNOWN, f"unknown keywords: {set(schema) - KNOWN}"
    found = _values(schema)
    return found | st.none() if schema.get("nullable") else found


def _values(schema: Schema) -> st.SearchStrategy[Any]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kinds = {
        "integer": _integers,
        "number": _numbers,
        "string": _strings,
        "array": _lists,
        "object": _objects,
    }
    if schema.get("type") == "boolean":
        return st.booleans()
    return kinds[schema["type"]](schema) if "type" in schema else ANYTHING


def _integers(schema: Schema) -> st.SearchStrategy[Any]:
    limit = INT64 if schema.get("format") == "int64" else INT32
    least, most = int(schema.get("minimum", -limit - 1)), int(schema.get("maximum", limit))
    few = st.integers(max(least, min(0, most)), min(most, max(least, 0) + 3))
    return few | st.sampled_from([least, most]) | st.integers(least, most)


def _numbers(schema: Schema) -> st.SearchStrategy[Any]:
    return st.floats(schema.get("minimum"), schema.get("maximum"), allow_nan=False, allow_infinity=False)


def _strings(schema: Schema) -> st.SearchStrategy[Any]:
    if schema.get("format") == "date-time":
        times = st.datetimes(datetime.datetime(1970, 1, 1), datetime.datetime(2100, 1, 1))
        return times.map(lambda time: time.strftime("%Y-%m-%dT%H:%M:%SZ"))
    least, most = schema.get("minLength", 0), schema.get("maxLength", 300)
    words = [each for each in (*WORDS, "y" * most) if least <= len(each) <= most]
    return st.sampled_from(words) | st.text(min_size=least, max_size=min(most, least + 20))


def _lists(schema: Schema) -> st.SearchStrategy[Any]:
    least = schema.get("minItems", 0)
    most = min(schema.get("maxItems", INT32), least + ITEMS_AT_ONCE)
    unique = repr if schema.get("x-kubernetes-list-type") == "set" else None
    return st.lists(values(schema.get("items", {})), min_size=least, max_size=most, unique_by=unique)


@st.composite
def _objects(draw: st.DrawFn, schema: Schema) -> Schema:
    named, needed = schema.get("properties", {}), schema.get("required", [])
    others = sorted(set(named) - set(needed))
    chosen = draw(st.lists(st.sampled_from(others), unique=True, max_size=FIELDS_AT_ONCE)) if others else []
    found: Schema = {name: draw(values(named[name])) for name in (*needed, *chosen)}
    least, most = schema.get("minProperties", 0), schema.get("maxProperties", INT32)
    for name in others:
        if len(found) < least and name not in found:
            found[name] = draw(values(named[name]))
    of_any_name = schema.get("additionalProperties")
    if of_any_name is None and schema.get("x-kubernetes-preserve-unknown-fields"):
        of_any_name = {}
    if isinstance(of_any_name, dict):
        names = draw(st.lists(st.sampled_from(WORDS), unique=True, max_size=min(2, most)))
        found |= {name: draw(values(of_any_name)) for name in names if name not in found}
    return found
