"""The volume of a TFJob that becomes the job's storage: one that all replicas mount at the same path. Pure."""

import copy
import re
from collections.abc import Sequence
from dataclasses import replace

from tftraining_client.tfjob.notes import Json, Notes
from tftraining_client.tfjob.templates import RoleTemplate, training_container

SOURCES = ("persistentVolumeClaim", "nfs")
# As the definition of the resource allows.
_MOUNT_PATH = re.compile(r"(/[-A-Za-z0-9._=+@]+)+")


def take_storage(
    templates: Sequence[RoleTemplate], name: str, notes: Notes
) -> tuple[Json | None, Sequence[RoleTemplate]]:
    """The job's storage and the templates without its mount; None if no volume can be the storage."""
    shared = [each for each in _mounted(templates[0].template) if all(each in _mounted(t.template) for t in templates)]
    if not shared:
        notes.add(
            "volumes",
            "no volume is mounted for writing at one path in all roles, so the job has no spec.storage: a "
            "restarted training starts over",
        )
        return None, templates
    chosen = next((each for each in shared if _is_used(each[1], templates)), shared[0])
    source, path = chosen
    notes.add(
        f"volumes[] at {path}",
        f"is spec.storage: the program backs up below $(TFTRAINING_DIR), {path}/{name}; for another directory set "
        "spec.storage.directory, and name the program's save directories in spec.storage.saveDirs",
    )
    storage = {"volume": copy.deepcopy(dict(source)), "mountPath": path}
    return storage, [replace(each, template=_without(each.template, chosen)) for each in templates]


Mounted = tuple["_Source", str]


class _Source(dict[str, Json]):
    """The source of a volume, such as {persistentVolumeClaim: {claimName: data}}."""


def _mounted(template: Json) -> list[Mounted]:
    """The sources and paths of the volumes that the training container mounts whole and for writing."""
    volumes = {each.get("name"): each for each in template["spec"].get("volumes") or ()}
    found: list[Mounted] = []
    for mount in training_container(template).get("volumeMounts") or ():
        volume = volumes.get(mount.get("name"), {})
        source = _Source({kind: volume[kind] for kind in SOURCES if kind in volume})
        path = str(mount.get("mountPath", "")).rstrip("/")
        whole = not {"subPath", "subPathExpr", "mountPropagation"} & set(mount)
        writable = not mount.get("readOnly") and not any(value.get("readOnly") for value in source.values())
        if source and whole and writable and _MOUNT_PATH.fullmatch(path):
            found.append((source, path))
    return found


def _is_used(path: str, templates: Sequence[RoleTemplate]) -> bool:
    """Whether a program is told of the path."""
    containers = [training_container(each.template) for each in templates]
    words = [str(word) for each in containers for word in (*each.get("command", ()), *(each.get("args") or ()))]
    return any(path in word for word in words)


def _without(template: Json, storage: Mounted) -> Json:
    """The template without the mount, and without the volume if no other container mounts it."""
    source, path = storage
    result = copy.deepcopy(template)
    spec, container = result["spec"], training_container(result)
    volumes = {each.get("name"): each for each in spec.get("volumes") or ()}
    gone = [
        mount
        for mount in container["volumeMounts"]
        if str(mount.get("mountPath", "")).rstrip("/") == path
        and {kind: volumes.get(mount.get("name"), {}).get(kind) for kind in source} == source
    ]
    _set(container, "volumeMounts", [each for each in container["volumeMounts"] if each not in gone])
    others = [*spec["containers"], *(spec.get("initContainers") or ())]
    used = {mount.get("name") for each in others for mount in each.get("volumeMounts") or ()}
    names = {each.get("name") for each in gone} - used
    _set(spec, "volumes", [each for each in spec["volumes"] if each.get("name") not in names])
    return result


def _set(target: Json, name: str, value: list[Json]) -> None:
    if value:
        target[name] = value
    else:
        del target[name]
