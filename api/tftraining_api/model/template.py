"""The types of those parts of a pod template that the operator reads or changes.

The CRD checks these types too, but a job may be older than the CRD's rules. The API server checks everything else when
the pods are created.
"""

from typing import Any

import msgspec

from tftraining_api.model.spec import Frozen

Object = dict[str, Any]


class _Mount(Frozen, frozen=True):
    mount_path: str = ""


class _Resources(Frozen, frozen=True):
    requests: Object | None = None
    limits: Object | None = None


class _Container(Frozen, frozen=True):
    name: str = ""
    command: tuple[str, ...] | None = None
    env: tuple[Object, ...] | None = None
    volume_mounts: tuple[_Mount, ...] | None = None
    security_context: Object | None = None
    resources: _Resources | None = None
    termination_message_path: str | None = None


class _PodSpec(Frozen, frozen=True):
    containers: tuple[_Container, ...] | None = None
    init_containers: tuple[_Container, ...] | None = None
    volumes: tuple[Object, ...] | None = None
    security_context: Object | None = None


class _Metadata(Frozen, frozen=True):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Template(Frozen, frozen=True):
    metadata: _Metadata | None = None
    spec: _PodSpec | None = None


def check_template(template: Object) -> None:
    """Raise msgspec.ValidationError, with the path, if a part that the operator uses has a wrong type."""
    msgspec.convert(template, _Template)
