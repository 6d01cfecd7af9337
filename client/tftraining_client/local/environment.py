"""The environment of a pod's container, built as by the kubelet. Values that only a cluster has come from --env."""

import re
import socket
from collections.abc import Mapping
from typing import Any

from tftraining_client.config_maps import ConfigMaps
from tftraining_client.errors import UserError
from tftraining_client.local.expansion import expand

Manifest = Mapping[str, Any]
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]")
_KEY_REFS = {"secretKeyRef": "the Secret", "configMapKeyRef": "the ConfigMap"}


def container_environment(
    pod: Manifest, container: Manifest, given: Mapping[str, str], config_maps: ConfigMaps
) -> dict[str, str]:
    """The container's variables in their order; variables in `given` replace the container's own or follow them.

    UserError for a variable whose value only a cluster has.
    """
    values: dict[str, str] = {}
    for each in container.get("env") or ():
        name = str(each["name"])
        value = given[name] if name in given else _value(pod, each, values, config_maps)
        if value is not None:
            values[name] = value
    return {**values, **given}


def _value(pod: Manifest, variable: Manifest, known: Mapping[str, str], config_maps: ConfigMaps) -> str | None:
    """The value of the variable; None if its source is optional and missing."""
    source = variable.get("valueFrom")
    if not source:
        return expand(str(variable.get("value") or ""), known)
    name = variable["name"]
    if "fieldRef" in source:
        return _field(pod, name, str(source["fieldRef"].get("fieldPath")))
    reference = source.get("configMapKeyRef") or {}
    found = config_maps.get(str(reference.get("name")), {}).get(str(reference.get("key")))
    if found is not None:
        return found.decode("utf-8", "replace")
    for kind, words in _KEY_REFS.items():
        if kind in source:
            if source[kind].get("optional"):
                return None
            raise _needs_cluster(name, f"the key {source[kind].get('key')} of {words} {source[kind].get('name')}")
    raise _needs_cluster(name, next(iter(source)))


def _field(pod: Manifest, name: str, path: str) -> str:
    metadata = pod["metadata"]
    fields = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["name"],
        "spec.nodeName": socket.gethostname(),
        "spec.serviceAccountName": "default",
        "status.podIP": "127.0.0.1",
        "status.podIPs": "127.0.0.1",
        "status.hostIP": "127.0.0.1",
    }
    if path in fields:
        return str(fields[path])
    if found := _SUBSCRIPT.fullmatch(path):
        return str((metadata.get(found[1]) or {}).get(found[2], ""))
    raise _needs_cluster(name, f"the field {path}")


def _needs_cluster(name: str, source: str) -> UserError:
    return UserError(
        f"the variable {name} comes from {source}, which only a cluster has: set it with --env {name}=VALUE"
    )
