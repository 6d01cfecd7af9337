"""Checks of the metadata that Kubernetes applies to every kind of object."""

import re
from typing import Any

from tftraining_client.validation.problems import Problem
from tftraining_client.validation.structure import Json

_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"


def metadata_problems(job: Json) -> list[Problem]:
    """The errors in name, namespace, labels and annotations; the CRD's own rules are checked elsewhere."""
    metadata = job["metadata"]
    texts = {f"metadata.{each}": metadata.get(each, "") for each in ("name", "namespace")}
    for each in ("labels", "annotations"):
        values = metadata.get(each) or {}
        if not isinstance(values, dict):
            return [Problem(f"metadata.{each}", "must be an object", blocks=True)]
        texts |= {f"metadata.{each}[{name}]": value for name, value in values.items()}
    wrong = [Problem(field, _not_text(value), True) for field, value in texts.items() if not isinstance(value, str)]
    return wrong or _name_problems(metadata.get("name", ""))


def _not_text(value: Any) -> str:
    return f"Invalid value: {value}: must be a string: put it in quotes"


def _name_problems(name: str) -> list[Problem]:
    if not name:
        return [Problem("metadata.name", "Required value: name or generateName is required", blocks=True)]
    if re.fullmatch(_SUBDOMAIN, name):
        return []
    words = (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
        f"and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
    )
    return [Problem("metadata.name", f'Invalid value: "{name}": {words}')]
