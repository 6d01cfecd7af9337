"""The parts of a pod template that the operator reads or adds to, by their types.

The CRD has them too; a job may be older than its rules. All else is for the API server to judge when the pods are made.
"""

from typing import Any

import msgspec

from tftraining_operator.model.spec import Frozen

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
    """Raise msgspec.ValidationError, which says where, if a part that the operator works on is of another type."""
    msgspec.convert(template, _Template)
