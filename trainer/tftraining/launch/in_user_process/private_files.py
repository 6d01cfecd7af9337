"""Says where a member of a gang keeps files that only its own pod sees: a backup that a new pod does not find, a model
that is lost with the chief's pod.

Under `tftj run` all processes share one disk, and it works there. One line a directory, and nothing else changes. A
path on a volume of the pod that may be shared is never named.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from .import_hook import after_import
from .peers import names_trainer
from .surface import Part, Surface

LOST = "nothing says that a model is saved where only one pod sees it"
SURFACE = Surface(LOST, (Part("keras.src.models.model", "Model.save"),))
LEGACY = Surface(LOST, (Part("{package}.engine.training", "Model.save"),))
MODELS = {"keras.src.models.model": SURFACE, "tf_keras.src.engine.training": LEGACY}
BACKUP = "{0} keeps {1} outside the job's storage: on a cluster each pod has its own, which no new pod finds"
OUTPUT = "{0} writes {1} outside the job's storage: on a cluster the file is lost with the chief's pod"
BELOW = "use a directory below TFTRAINING_DIR (spec.storage)"
NETWORK = ("nfs", "cifs", "ceph", "fuse", "lustre", "gluster", "9p", "beegfs", "gpfs")
PATHS = {"BackupAndRestore": "backup_dir", "ModelCheckpoint": "filepath"}
HOSTS = ("127.0.0.1:", "localhost:", "[::1]:")  # of the members under `tftj run`


class PrivateFiles:
    """The paths that this process has named. `environment`: at its start."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._storage = environment.get("TFTRAINING_DIR", "")
        text = environment.get("TF_CONFIG", "")
        self._is_member = names_trainer(text)
        self._is_chief, self._is_local = _place(text) if self._is_member else (False, False)
        self._told: set[str] = set()

    def install(self) -> None:
        """Look at the models that the chief saves, now or when Keras is imported."""
        if self._is_chief:
            after_import(frozenset(MODELS), functools.partial(_extend, self._look_at_output))

    def look_at(self, callbacks: Iterable[Any]) -> None:
        """Look at where the callbacks of a `fit` write."""
        try:
            self._look_at_callbacks(callbacks if self._is_member else ())
        except Exception as error:
            sys.stderr.write(f"tftraining: cannot tell where callbacks write: {error!r}\n")

    def _look_at_callbacks(self, callbacks: Iterable[Any]) -> None:
        for each in callbacks:
            name = next((cls.__name__ for cls in type(each).__mro__ if cls.__name__ in PATHS), "")
            path = str(getattr(each, PATHS[name], "") or "") if name else ""
            if path and name == "BackupAndRestore":
                self._look(BACKUP, name, path, path)
            elif path and self._is_chief:
                self._look(OUTPUT, name, path, os.path.dirname(path))

    def _look_at_output(self, path: Any) -> None:
        if self._is_chief and isinstance(path, (str, os.PathLike)):
            self._look(OUTPUT, "model.save", os.fspath(path), os.path.dirname(os.fspath(path)))

    def _look(self, words: str, what: str, path: str, directory: str) -> None:
        if "://" in path or (key := os.path.abspath(directory)) in self._told or not self._is_private(Path(path)):
            return
        self._told.add(key)
        sys.stderr.write(f"tftraining: {words.format(what, path)}; {BELOW}\n")

    def _is_private(self, path: Path) -> bool:
        from .mounts import mount_of, read_mounts  # noqa: PLC0415  # most programs save below TFTRAINING_DIR

        place = path.absolute().resolve()
        storage = Path(self._storage).resolve() if self._storage and "://" not in self._storage else None
        if storage is not None and storage in (place, *place.parents):
            return False
        mount = mount_of(place, read_mounts())
        if mount is None:
            return False
        return mount.is_of_pod or (self._is_local and not mount.kind.startswith(NETWORK))


def _place(tf_config: str) -> tuple[bool, bool]:
    """Whether this member is the chief, and whether all members run on this machine."""
    config = json.loads(tf_config)
    role = "chief" if config["cluster"].get("chief") else "worker"
    addresses = [each for role in config["cluster"].values() for each in role]
    task = config["task"]
    return (task["type"], task["index"]) == (role, 0), all(each.startswith(HOSTS) for each in addresses)


def _extend(look: Callable[[Any], None], module: Any) -> None:
    if not MODELS[module.__name__].holds({module.__name__: module}, package="tf_keras.src"):
        return
    cls, save = module.Model, module.Model.save

    @functools.wraps(save)
    def looked_at(self: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            look(filepath)
        except Exception as error:
            sys.stderr.write(f"tftraining: cannot tell where a model is saved: {error!r}\n")
        return save(self, filepath, *args, **kwargs)

    cls.save = looked_at
