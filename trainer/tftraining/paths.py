"""The paths for a distributed save: where each process of a job may write.

A distributed save is collective: every process must write, and only the chief's copy counts. So each other worker
writes into a temporary directory of its own, `workertemp_<index>` beside the real one, as in TensorFlow's multi-worker
tutorial. On a cluster, the operator removes these directories after the job; this module must never remove another
process's directory.
"""

from __future__ import annotations

import posixpath
import shutil
from pathlib import Path

from tftraining.cluster import Task, task_from_environment

BUCKET = "gs://"


def write_filepath(path: str, task: Task | None = None) -> str:
    """The path for `task` of a save to `path`: `path` for the chief, else `<dirname>/workertemp_<index>/<basename>`.

    The default of `task` is this process's task in TF_CONFIG; TFConfigError if TF_CONFIG is invalid. The parent
    directory is created; a bucket (`gs://…`) has none. ValueError for any other URL: it could not be cleaned up.
    """
    if is_url(path) and not path.startswith(BUCKET):
        raise ValueError(f"{path} is a URL of a storage that is not supported: save to the job's storage instead")
    task = task_from_environment() if task is None else task
    directory, name = posixpath.split(path)
    directory = directory if task.is_chief else temporary_directory(directory, task)
    if directory and not is_url(path):
        Path(directory).mkdir(parents=True, exist_ok=True)
    return posixpath.join(directory, name)


def is_url(path: str) -> bool:
    """Whether the path names an object of a storage service (`gs://bucket/x`), not a file of this machine."""
    return "://" in path


def temporary_directory(directory: str, task: Task) -> str:
    """The temporary directory of a non-chief task below `directory`; the directory is not created."""
    return posixpath.join(directory, f"workertemp_{task.index}")


def remove_own_temporary_directory(directory: str, task: Task) -> None:
    """Remove this task's temporary directory below the local `directory`, for runs without the operator's cleanup."""
    if not task.is_chief:
        shutil.rmtree(temporary_directory(directory, task), ignore_errors=True)
