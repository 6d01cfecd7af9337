"""The CustomResourceDefinition shipped with this package: the same file that is applied to clusters."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml

FILE = "tftrainingjobs.yaml"
METADATA = {
    *("annotations", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers"),
    *("generateName", "generation", "labels", "managedFields", "name", "namespace", "ownerReferences"),
    *("resourceVersion", "selfLink", "uid"),
}


@dataclass(frozen=True)
class CustomResource:
    """The names of the resource, and the schema of its only version."""

    group: str
    version: str
    kind: str
    schema: dict[str, Any]

    @property
    def api_version(self) -> str:
        """The apiVersion of a manifest: `tftraining.dev/v1`."""
        return f"{self.group}/{self.version}"


@cache
def custom_resource() -> CustomResource:
    """Read the CRD file (20 ms; cached in the process)."""
    text = (resources.files("tftraining_client") / FILE).read_text(encoding="utf-8")
    spec = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))["spec"]
    (version,) = spec["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    return CustomResource(spec["group"], version["name"], spec["names"]["kind"], schema)


def fields(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """The fields of a schema and of the schemas in it: `spec.restartPolicy.rules[].action`."""
    for name, child in (schema.get("properties") or {}).items():
        yield f"{path}.{name}".lstrip(".")
        yield from fields(child, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        yield from fields(schema["items"], f"{path}[]")
