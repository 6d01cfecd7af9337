"""The cleanup of a job whose storage is a bucket: TensorFlow opens it, as it does for the programs of the job.

A bucket has no links and no directories, only names: `workertemp_1/` is the beginning of the names of its objects.
"""

from __future__ import annotations

import posixpath
import time
from collections.abc import Callable, Sequence

import tensorflow as tf


def remove_temporary(
    paths: Sequence[str], deadline: float, removed: Callable[[str], None], failed: Callable[[str, str], None]
) -> None:
    """Remove the directories at these URIs, and call `removed` or `failed` for each; one that is missing is clean.

    `deadline` is in monotonic seconds: none begins after it.
    """
    for path in paths:
        if time.monotonic() >= deadline:
            failed(path, "not finished in time")
            return
        try:
            if not _is_directory(path):
                continue
            tf.io.gfile.rmtree(path)
        except tf.errors.OpError as error:
            failed(path, " ".join(error.message.split()))
        else:
            removed(path)


def join(root: str, *parts: str) -> str:
    """The URI of a path below the root; '.' is the root itself."""
    return posixpath.join(root, *(part for part in parts if part != "."))


def _is_directory(path: str) -> bool:
    """Whether objects have names below the path. Not `isdir`, which takes a refused access for a missing directory."""
    try:
        return bool(tf.io.gfile.stat(path).is_directory)
    except tf.errors.NotFoundError:
        return False
