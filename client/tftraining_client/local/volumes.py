"""The ConfigMap volumes of a pod as directories of this machine. Pure, but for `write`.

A process cannot have a volume mounted at the container's path. So the directory lies elsewhere, and its path replaces
the mounted path in the pod's command, arguments and values of variables.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from tftraining_client.config_maps import ConfigMap, ConfigMaps
from tftraining_client.errors import UserError
from tftraining_client.local.expansion import escape

Manifest = Mapping[str, Any]
READABLE = 0o644


@dataclass(frozen=True)
class File:
    """A file of a volume."""

    content: bytes
    mode: int


@dataclass(frozen=True)
class Volumes:
    """The ConfigMap volumes of one container: the files to write, and where each mounted path lies on this machine."""

    files: dict[Path, File] = field(default_factory=dict)
    local_paths: dict[str, Path] = field(default_factory=dict)

    def localised(self, text: str) -> str:
        """The text with this machine's path for each mounted path, escaped for `expand`."""
        if not self.local_paths:
            return text
        paths = "|".join(re.escape(path) for path in sorted(self.local_paths, key=len, reverse=True))
        # Match whole paths only: not inside a longer path, and only up to the end of a file name.
        return re.sub(
            rf"(?<![\w.~/)}}-])({paths})(?![\w.-])", lambda found: escape(str(self.local_paths[found[1]])), text
        )


def volumes_of(pod: Manifest, container: Manifest, config_maps: ConfigMaps, root: Path) -> Volumes:
    """The volumes that the container mounts from the ConfigMaps, below `root`. UserError for a missing key."""
    sources = {volume.get("name"): source for volume, source in _sources(pod["spec"]) if source["name"] in config_maps}
    volumes = Volumes()
    for mount in _objects(container.get("volumeMounts")):
        source, path = sources.get(mount.get("name")), str(PurePosixPath(str(mount.get("mountPath") or "/")))
        if source is not None and path != "/":
            directory = root / _directory(source)
            files = _files(str(mount["name"]), source, config_maps[source["name"]])
            volumes.files.update({directory / name: file for name, file in files.items()})
            volumes.local_paths[path] = directory / str(mount.get("subPath") or "")
    return volumes


def missing_config_maps(pod_spec: Manifest, config_maps: ConfigMaps) -> list[str]:
    """The ConfigMaps that the pod's volumes name but `config_maps` lacks."""
    return sorted({source["name"] for _, source in _sources(pod_spec) if source["name"] not in config_maps})


def write(files: Mapping[Path, File]) -> None:
    """Write the files, and the directories around them."""
    for path, file in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
        path.chmod(file.mode)


def _sources(pod_spec: Manifest) -> list[tuple[Manifest, Manifest]]:
    """The volumes of ConfigMaps, each with its `configMap`."""
    volumes = [(volume, volume.get("configMap")) for volume in _objects(pod_spec.get("volumes"))]
    return [(volume, source) for volume, source in volumes if isinstance(source, dict) and _is_text(source, "name")]


def _objects(value: Any) -> list[Manifest]:
    """The objects of a list. The CRD does not validate these fields of a pod."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _is_text(source: Manifest, *names: str) -> bool:
    return all(isinstance(source.get(name), str) for name in names)


def _directory(source: Manifest) -> str:
    """The directory of a volume, the same for all replicas that have it, so that all of them run the same script."""
    others = {name: value for name, value in source.items() if name != "name"}
    digest = hashlib.sha256(json.dumps(others, sort_keys=True).encode()).hexdigest()[:8]
    return f"{source['name']}-{digest}" if others else str(source["name"])


def _files(volume: str, source: Manifest, config_map: ConfigMap) -> dict[str, File]:
    """The files of a volume, by their path inside the volume."""
    whole = [{"key": key, "path": key} for key in config_map]
    items = [each for each in _objects(source.get("items")) if _is_text(each, "key", "path")] or whole
    absent = [item["key"] for item in items if item["key"] not in config_map]
    if absent and not source.get("optional"):
        raise UserError(f"the volume {volume} uses the key {absent[0]}, missing in the ConfigMap {source['name']}")
    return {
        _inside(volume, item["path"]): File(config_map[item["key"]], _mode(item.get("mode", source.get("defaultMode"))))
        for item in items
        if item["key"] in config_map
    }


def _inside(volume: str, path: str) -> str:
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts:
        raise UserError(f"the volume {volume} has an item with the path {path}: it must be relative, without '..'")
    return path


def _mode(mode: Any) -> int:
    return mode & 0o777 if isinstance(mode, int) else READABLE
