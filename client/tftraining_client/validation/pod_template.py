"""The names and types in the pod templates and the volume of a job, which the CRD keeps as they were written.

pod-fields.json has them from Kubernetes' own OpenAPI description; a test compares it with an API server. A cluster may
be newer than this file: a name that resembles no known one is not refused.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from tftraining_client.validation.problems import InvalidManifest, nearest

Json = dict[str, Any]
FILE = "pod-fields.json"
MISSPELT = 0.75  # similarity; of imgae and image 0.8
ROLES = "replicaSpecs"
# Objects whose required fields every API server asks for. Of others it takes some with their zero, such as `value` of
# a header, although its description says that they are required.
STRICT = frozenset({"Container", "ContainerPort", "EnvVar", "KeyToPath", "PodSpec", "Volume", "VolumeMount"})
# The description leaves it out for the sake of other kinds; no pod is created without it.
UNDESCRIBED = {"Container": ("image",)}
_WORDS = {"string": "a string: put it in quotes", "integer": "a number", "boolean": "true or false"}


@dataclass(frozen=True)
class Finding:
    """What is wrong with a field: its text, and whether every version of Kubernetes refuses it."""

    field: str
    text: str
    certain: bool

    def __str__(self) -> str:
        return f"{self.field}: {self.text}"


def check_templates(job: Json) -> list[str]:
    """InvalidManifest for what every API server refuses when the pods are created; messages about what one may."""
    found = template_findings(job)
    if certain := [str(each) for each in found if each.certain]:
        raise InvalidManifest("\n* ".join(["the pod template is invalid:", *certain]) if certain[1:] else certain[0])
    return [str(each) for each in found]


def template_findings(job: Json) -> list[Finding]:
    """What an API server refuses when the operator creates the pods of the job."""
    spec = job.get("spec")
    if not isinstance(spec, dict):
        return []
    roles = spec.get(ROLES) if isinstance(spec.get(ROLES), dict) else {}
    found = list(_findings(spec.get("template"), "PodTemplateSpec", "spec.template"))
    for name, role in (roles or {}).items():
        if isinstance(role, dict):
            found += _findings(role.get("template"), "PodTemplateSpec", f"spec.{ROLES}.{name}.template")
    storage = spec.get("storage")
    volume = storage.get("volume") if isinstance(storage, dict) else None
    # The operator names the volume.
    named = {"name": "", **volume} if isinstance(volume, dict) else volume
    return found + list(_findings(named, "Volume", "spec.storage.volume"))


def _findings(value: Any, kind: str, at: str) -> Iterator[Finding]:
    kind = kind.rstrip("!")
    if value is None or kind == "any":
        return
    if kind.startswith("["):
        if isinstance(value, list):
            for index, item in enumerate(value):
                yield from _findings(item, kind[1:-1], f"{at}[{index}]")
        else:
            yield Finding(at, "must be a list", certain=True)
    elif kind.startswith("{") or kind in _fields():
        yield from _object(value, kind, at)
    elif not _is(kind, value):
        yield Finding(at, f"must be {_WORDS.get(kind, kind)}", certain=True)


def _object(value: Any, kind: str, at: str) -> Iterator[Finding]:
    if not isinstance(value, dict):
        yield Finding(at, "must be an object", certain=True)
        return
    known = _fields().get(kind, {})
    yield from _missing(value, kind, known, at)
    for name, item in value.items():
        if kind.startswith("{"):
            yield from _findings(item, kind[1:-1], f"{at}[{name}]")
        elif name in known:
            yield from _findings(item, known[name], f"{at}.{name}")
        else:
            yield _unknown(str(name), list(known), at)


def _missing(value: Json, kind: str, known: dict[str, str], at: str) -> Iterator[Finding]:
    required = [name for name, type_ in known.items() if type_.endswith("!")]
    for name in (*required, *UNDESCRIBED.get(kind, ())):
        # A name that is misspelt is told of as such.
        written = [each for each in value if each not in known]
        if value.get(name) is None and nearest(name, written, MISSPELT) is None:
            yield Finding(f"{at}.{name}", "Required value", certain=kind in STRICT)


def _unknown(name: str, known: list[str], at: str) -> Finding:
    near = nearest(name, known, MISSPELT)
    if near is None:
        return Finding(f"{at}.{name}", "Kubernetes up to 1.37 has no such field", certain=False)
    return Finding(f"{at}.{name}", f"unknown field (did you mean {near}?)", certain=True)


def _is(kind: str, value: Any) -> bool:
    if kind == "integer":
        return not isinstance(value, bool) and isinstance(value, int | float)
    return isinstance(value, {"string": str, "boolean": bool}.get(kind, object))


@cache
def _fields() -> dict[str, dict[str, str]]:
    text = (resources.files(__package__) / FILE).read_text(encoding="utf-8")
    fields: dict[str, dict[str, str]] = json.loads(text)
    return fields
