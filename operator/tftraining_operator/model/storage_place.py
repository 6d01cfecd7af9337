"""The place that a job writes: a directory of a claim, of a bucket, or of another volume that pods share. Pure."""

from collections.abc import Iterator
from posixpath import normpath, relpath
from typing import NamedTuple

import msgspec

from tftraining_api.manifests.storage import VOLUME
from tftraining_api.model.names import Key
from tftraining_api.model.spec import Manifest

# Volumes that each pod has for itself.
PRIVATE = ("emptyDir", "ephemeral")
DIRECTORY = "TFTRAINING_DIR"


class StoragePlace(NamedTuple):
    """A directory, `path` from the root of the volume on. Only the job's namespace can name a claim; a bucket or a
    server of files is the same for every namespace."""

    namespace: str
    volume: str
    path: str

    @property
    def ancestors(self) -> Iterator[str]:
        """The directories above this one, up to the root."""
        path = self.path
        while path != "/":
            path = path.rpartition("/")[0] or "/"
            yield path

    def __str__(self) -> str:
        return f"{self.volume}{self.path}" if "://" in self.volume else f"{self.path.lstrip('/')} of {self.volume}"


def place_of_job(key: Key, raw: Manifest | None) -> StoragePlace | None:
    """The place that the job writes by its spec; None for a job without a storage that pods share, for one that cannot
    be read, on which nobody acts, and for no job."""
    try:
        storage = ((raw or {}).get("spec") or {}).get("storage") or {}
        directory = storage.get("directory") or key.name
        return _place(key.namespace, storage.get("uri"), storage.get("volume") or {}, directory)
    except (AttributeError, TypeError):
        return None


def place_of_pod(raw: Manifest) -> StoragePlace | None:
    """The place that a pod of the operator writes; None for one without a storage that pods share."""
    spec, namespace = raw.get("spec") or {}, raw["metadata"]["namespace"]
    volumes: list[Manifest] = spec.get("volumes") or []
    volume: Manifest = next((each for each in volumes if each.get("name") == VOLUME), {})
    for container in spec.get("containers") or ():
        mounts = container.get("volumeMounts") or ()
        mounted = next((each["mountPath"] for each in mounts if each.get("name") == VOLUME), "/")
        if directory := _directory(container):
            uri, path = (directory, "") if "://" in directory else (None, relpath(directory, mounted))
            source = {name: value for name, value in volume.items() if name != "name"}
            return _place(namespace, uri, source, path)
    return None


def _directory(container: Manifest) -> str:
    """The job's directory as the container has it: a variable in a training pod, an argument in a cleanup pod."""
    named = (each.get("value") for each in container.get("env") or () if each.get("name") == DIRECTORY)
    words = container.get("command") or []
    root = words[words.index("--root") + 1] if "--root" in words[:-1] and "tftraining.cleanup" in words else ""
    return root or next(named, "") or ""


def _place(namespace: str, uri: str | None, volume: Manifest, directory: str) -> StoragePlace | None:
    if uri:
        scheme, _, rest = f"{uri}/{directory}".partition("://")
        bucket, _, path = rest.partition("/")
        return StoragePlace(namespace, f"{scheme}://{bucket}", normpath(f"/{path}"))
    claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
    if not volume or any(each in volume for each in PRIVATE):
        return None
    name = f"the claim {namespace}/{claim}" if claim else msgspec.json.encode(volume, order="sorted").decode()
    return StoragePlace(namespace, name, normpath(f"/{directory}"))
