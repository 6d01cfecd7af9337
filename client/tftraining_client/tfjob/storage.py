"""The volume of a TFJob that becomes the job's storage: one that all replicas mount at the same path. Pure.

Of several it is the one that the program's options, or the names, give its results to. It must never be a guess: the
operator writes into the storage, so without such a sign the user is asked.
"""

import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tftraining_client.errors import UserError
from tftraining_client.tfjob.notes import Json, Notes, mapping
from tftraining_client.tfjob.templates import RoleTemplate, training_container

SOURCES = ("persistentVolumeClaim", "nfs")
# As the definition of the resource allows.
_MOUNT_PATH = re.compile(r"(/[-A-Za-z0-9._=+@]+)+")
# Words of options, variables, paths and claims.
_INPUTS = re.compile(r"data|input|corpus|record|image|pretrain|source|\bsrc", re.IGNORECASE)
_OUTPUTS = re.compile(
    r"out|result|model|log|sav|ckpt|checkpoint|export|runs?(?![a-z])|summar|backup|artifact|weight|train(?:ing)?s?$",
    re.IGNORECASE,
)


def take_storage(
    templates: Sequence[RoleTemplate], name: str, asked: str | None, notes: Notes
) -> tuple[Json | None, Sequence[RoleTemplate]]:
    """The job's storage and the templates without its mount; None if no volume can be the storage.

    `asked` is the path that the user names. UserError if none is there, or if the user has to name one.
    """
    shared = [each for each in _mounted(templates[0].template) if all(each in _mounted(t.template) for t in templates)]
    if not shared:
        notes.add(
            "volumes",
            "no volume is mounted for writing at one path in all roles, so the job has no spec.storage: a "
            "restarted training starts over",
        )
        return None, templates
    chosen = _choose(shared, templates, asked)
    source, path = chosen
    rest = ", ".join(_words(each) for each in shared if each != chosen)
    others = f", and {rest} stays a volume" if rest else ""
    notes.add(
        f"volumes[] at {path}",
        f"is spec.storage{others}: the program backs up below $(TFTRAINING_DIR), {path}/{name}; for another directory "
        "set spec.storage.directory, and name the program's save directories in spec.storage.saveDirs",
    )
    storage = {"volume": copy.deepcopy(dict(source)), "mountPath": path}
    return storage, [replace(each, template=_without(each.template, chosen)) for each in templates]


Mounted = tuple["_Source", str]


class _Source(dict[str, Json]):
    """The source of a volume, such as {persistentVolumeClaim: {claimName: data}}."""


def _mounted(template: Json) -> list[Mounted]:
    """The sources and paths of the volumes that the training container mounts whole and for writing."""
    volumes = {str(each.get("name")): each for each in template["spec"].get("volumes") or ()}
    found: list[Mounted] = []
    for mount in training_container(template).get("volumeMounts") or ():
        volume = volumes.get(str(mount.get("name")), {})
        source = _Source({kind: mapping(volume[kind], f"volumes[].{kind}") for kind in SOURCES if kind in volume})
        path = str(mount.get("mountPath", "")).rstrip("/")
        whole = not {"subPath", "subPathExpr", "mountPropagation"} & set(mount)
        writable = not mount.get("readOnly") and not any(value.get("readOnly") for value in source.values())
        if source and whole and writable and _MOUNT_PATH.fullmatch(path):
            found.append((source, path))
    return found


def _choose(shared: Sequence[Mounted], templates: Sequence[RoleTemplate], asked: str | None) -> Mounted:
    """The volume for the results: the one at the path that the user names, otherwise the only likeliest one."""
    told = ", ".join(_words(each) for each in shared)
    if asked is not None:
        found = [each for each in shared if each[1] == asked.rstrip("/")]
        problem = f"no volume at --storage {asked} is mounted for writing in all roles: there is {told}"
    else:
        names = list(_named(templates))
        likely = [_likelihood(each, names) for each in shared]
        found = [each for each, value in zip(shared, likely, strict=True) if value == max(likely)]
        problem = f"several volumes may hold the results, {told}: name the path of one with --storage {shared[0][1]}"
    if len(found) != 1:
        raise UserError(problem)
    return found[0]


def _words(mounted: Mounted) -> str:
    source, path = mounted
    name = source.get("persistentVolumeClaim", {}).get("claimName") or source.get("nfs", {}).get("path")
    return f"{name} at {path}"


def _likelihood(mounted: Mounted, names: Sequence[tuple[str, str]]) -> int:
    """How likely a volume holds results. `names` are the options and variables with their values."""
    of_path = [name for name, value in names if value == mounted[1] or value.startswith(f"{mounted[1]}/")]
    if any(_OUTPUTS.search(name) and not _INPUTS.search(name) for name in of_path):
        return 4
    words = _words(mounted)
    if any(_INPUTS.search(name) for name in of_path) or _INPUTS.search(words):
        return 0
    return 3 if _OUTPUTS.search(words) else 2 if of_path else 1


def _named(templates: Sequence[RoleTemplate]) -> Iterator[tuple[str, str]]:
    """The options and variables of the programs with their values; a value without an option has the name ""."""
    for each in templates:
        container = training_container(each.template)
        line = " ".join(map(str, (*container["command"], *(container.get("args") or ()))))
        words = re.split(r"[\s;&|'\"]+", line)
        for before, word in zip(["", *words], words, strict=False):
            name, _, value = word.rpartition("=")
            yield name or (before if before.startswith("-") else ""), value
        for variable in container.get("env") or ():
            yield str(variable.get("name")), str(variable.get("value"))


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
