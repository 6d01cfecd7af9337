"""What a copy has beside the variables, kept with each backup that BackupAndRestore saves in the storage.

The backup itself has variables only, and that of Keras 3 not all of them. With these files a training that resumes
from it also goes on with the state of its callbacks, its random numbers and its place in the input.
`<backup>.tftraining.json`, the head, has digests of the backup and of the other files: a backup that does not match is
restored by Keras alone. The files are JSON and NumPy's arrays, never pickle. A path may be in a bucket.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import sys
from typing import Any

from .kept_variables import KeptVariables

_HEAD, _ARRAYS, _VARIABLES = ".tftraining.json", ".tftraining.npz", ".tftraining.variables.npz"
_CHUNK = 1 << 24  # bytes


def write(
    backup: str, head: dict[str, Any], arrays: list[list[Any] | None], variables: KeptVariables | None = None
) -> None:
    """Keep `head`, `arrays` and `variables` with this backup. Any error if it cannot."""
    files = sys.modules["tensorflow"].io.gfile
    files.makedirs(os.path.dirname(backup))
    told = {**head, "arrays": [None if some is None else len(some) for some in arrays], "file": _file(backup)}
    named = {f"{place}-{number}": each for place, some in enumerate(arrays) for number, each in enumerate(some or ())}
    if named:
        archive = io.BytesIO()  # a file of TensorFlow cannot be read while it is written
        sys.modules["numpy"].savez(archive, **named)
        _write(backup + _ARRAYS, archive)
    if variables:
        variables.write(archive := io.BytesIO())
        _write(backup + _VARIABLES, archive)
        told["variables"] = hashlib.sha256(archive.getvalue()).hexdigest()
    with files.GFile(backup + _HEAD + ".new", "w") as file:
        file.write(json.dumps(told))
    files.rename(backup + _HEAD + ".new", backup + _HEAD, overwrite=True)


def prune(backup: str) -> None:
    """Remove what was kept with other backups than this one. Never raises."""
    files = sys.modules["tensorflow"].io.gfile
    with contextlib.suppress(Exception):
        for path in files.glob(f"{os.path.dirname(backup)}/*.tftraining.*"):
            if not path.startswith(f"{backup}."):
                files.remove(path)


def head_of(backup: str) -> dict[str, Any] | None:
    """The head that lies beside this backup, perhaps of an earlier one; None without one. Any error."""
    files = sys.modules["tensorflow"].io.gfile
    if not backup or not files.exists(backup + _HEAD):
        return None
    with files.GFile(backup + _HEAD, "r") as file:
        head: dict[str, Any] = json.loads(file.read())
    return head


def is_of(backup: str, head: dict[str, Any]) -> bool:
    """Whether the head is of this backup. It reads the whole backup of Keras 3, which replaces the one before."""
    return bool(head.get("file") == _file(backup))


def read(backup: str) -> tuple[dict[str, Any], list[list[Any] | None], io.BytesIO | None] | None:
    """Head, arrays and variables of this backup; None if it has none. Any error if they cannot be read."""
    head = head_of(backup)
    if head is None or not is_of(backup, head):
        return None
    counts, named, variables = head["arrays"], {}, None
    if any(counts):
        with sys.modules["numpy"].load(_read(backup + _ARRAYS), allow_pickle=False) as loaded:
            named = dict(loaded)
    if told := head.get("variables"):
        variables = _read(backup + _VARIABLES)
        if hashlib.sha256(variables.getvalue()).hexdigest() != told:
            return None
    arrays = [None if n is None else [named[f"{place}-{each}"] for each in range(n)] for place, n in enumerate(counts)]
    return head, arrays, variables


def _write(path: str, content: io.BytesIO) -> None:
    with sys.modules["tensorflow"].io.gfile.GFile(path, "wb") as file:
        file.write(content.getvalue())


def _read(path: str) -> io.BytesIO:
    with sys.modules["tensorflow"].io.gfile.GFile(path, "rb") as file:
        return io.BytesIO(file.read())


def _file(backup: str) -> str | None:
    """What tells a backup of Keras 3, which is one file, from the one that it replaces; None of tf_keras."""
    files, digest = sys.modules["tensorflow"].io.gfile, hashlib.sha256()
    if not files.exists(backup):
        return None
    with files.GFile(backup, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
