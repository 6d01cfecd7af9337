"""What a copy has beside the variables, kept with each backup that BackupAndRestore saves in the storage.

A backup has the variables alone. With this file a training that resumes from one also goes on with its callbacks, its
random numbers and its place in the input. `<backup>.tftraining.json` names the backup that it belongs to, so a backup
without a file of its own is restored as Keras does. JSON and NumPy's arrays, never pickle. Paths in a bucket too.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from typing import Any

_HEAD, _ARRAYS = ".tftraining.json", ".tftraining.npz"


def write(backup: str, head: dict[str, Any], arrays: list[list[Any] | None]) -> None:
    """Keep `head` and `arrays` with this backup. Any error if it cannot."""
    files = sys.modules["tensorflow"].io.gfile
    files.makedirs(os.path.dirname(backup))
    named = {f"{place}-{number}": each for place, some in enumerate(arrays) for number, each in enumerate(some or ())}
    if named:
        archive = io.BytesIO()  # a file of TensorFlow cannot be read while it is written
        sys.modules["numpy"].savez(archive, **named)
        with files.GFile(backup + _ARRAYS, "wb") as file:
            file.write(archive.getvalue())
    present = [None if some is None else len(some) for some in arrays]
    with files.GFile(backup + _HEAD + ".new", "w") as file:
        file.write(json.dumps({**head, "arrays": present, "file": _file(backup)}))
    files.rename(backup + _HEAD + ".new", backup + _HEAD, overwrite=True)


def prune(backup: str) -> None:
    """Remove what was kept with other backups than this one. Never raises."""
    files = sys.modules["tensorflow"].io.gfile
    with contextlib.suppress(Exception):
        for path in files.glob(f"{os.path.dirname(backup)}/*.tftraining.*"):
            if not path.startswith(f"{backup}."):
                files.remove(path)


def read(backup: str) -> tuple[dict[str, Any], list[list[Any] | None]] | None:
    """Head and arrays of this backup; None if it has none. Any error if they cannot be read."""
    files = sys.modules["tensorflow"].io.gfile
    if not backup or not files.exists(backup + _HEAD):
        return None
    with files.GFile(backup + _HEAD, "r") as file:
        head = json.loads(file.read())
    if head.get("file") != _file(backup):  # of an earlier backup, which this one has replaced
        return None
    counts, named = head["arrays"], {}
    if any(counts):
        with files.GFile(backup + _ARRAYS, "rb") as file:
            archive = io.BytesIO(file.read())
        with sys.modules["numpy"].load(archive, allow_pickle=False) as loaded:
            named = dict(loaded)
    arrays = [None if n is None else [named[f"{place}-{each}"] for each in range(n)] for place, n in enumerate(counts)]
    return head, arrays


def _file(backup: str) -> list[int] | None:
    """What tells a backup of Keras 3, which is one file, from the one that it replaces; None of tf_keras."""
    files = sys.modules["tensorflow"].io.gfile
    if not files.exists(backup):
        return None
    found = files.stat(backup)
    return [int(found.length), int(found.mtime_nsec)]
