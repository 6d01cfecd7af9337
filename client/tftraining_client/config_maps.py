"""The ConfigMaps in the file of the job. Pure.

A ConfigMap that the API server would reject is a UserError of one line.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping

from tftraining_client.errors import UserError
from tftraining_client.validation.structure import Json

KIND = "ConfigMap"
LIMIT = 1024 * 1024  # bytes of all values of one ConfigMap, as the API server counts them
_KEY = re.compile(r"(?!\.\.)[-._a-zA-Z0-9]{1,253}")

ConfigMap = Mapping[str, bytes]
ConfigMaps = Mapping[str, ConfigMap]


def namespace_of(document: Json) -> str:
    """The namespace of an object, `default` where its metadata names none."""
    return str(_metadata(document).get("namespace") or "default")


def parse_config_maps(documents: Iterable[Json], namespace: str) -> dict[str, ConfigMap]:
    """The values of each ConfigMap of the namespace, by name and key. Of two with one name, the last one counts."""
    return {
        _name(document): _values(document)
        for document in documents
        if is_config_map(document) and namespace_of(document) == namespace
    }


def is_config_map(document: Json) -> bool:
    """Whether the object is a ConfigMap."""
    return document.get("kind") == KIND and document.get("apiVersion") == "v1"


def _metadata(document: Json) -> Json:
    metadata = document.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _name(document: Json) -> str:
    name = _metadata(document).get("name")
    if not isinstance(name, str) or not name:
        raise UserError("a ConfigMap has no metadata.name")
    return name


def _values(document: Json) -> ConfigMap:
    name = _name(document)
    text, binary = _part(document, name, "data"), _part(document, name, "binaryData")
    if both := sorted(text.keys() & binary.keys()):
        raise UserError(f"the ConfigMap {name} has the key {both[0]} in data and in binaryData")
    values = {key: value.encode() for key, value in text.items()}
    values |= {key: _decoded(name, key, value) for key, value in binary.items()}
    if (size := sum(map(len, values.values()))) > LIMIT:
        raise UserError(f"the ConfigMap {name} has {size} bytes: the limit of Kubernetes is {LIMIT}")
    return values


def _part(document: Json, name: str, field: str) -> dict[str, str]:
    part = document.get(field)
    if part is not None and not isinstance(part, dict):
        raise UserError(f"{field} of the ConfigMap {name} must be an object")
    for key, value in (part or {}).items():
        if not isinstance(key, str) or not _KEY.fullmatch(key) or key == ".":
            raise UserError(f"the ConfigMap {name} has the key {key!r}: a key has letters, digits, '-', '_' and '.'")
        if not isinstance(value, str):
            raise UserError(f"{field}.{key} of the ConfigMap {name} must be a string: put it in quotes")
    return part or {}


def _decoded(name: str, key: str, value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UserError(f"binaryData.{key} of the ConfigMap {name} is not base64: {error}") from error
