"""Where a process may write what all processes of a job save together.

A distributed save is a collective act: every process must write, and only the chief's copy counts. So each other worker
writes into a temporary directory of its own, `workertemp_<index>` beside the real one, as the multi-worker tutorial of
TensorFlow does. On a cluster the operator removes those directories once the job is done; this module must never
remove another process's.
"""

from __future__ import annotations

import posixpath
import shutil
from pathlib import Path

from tftraining.cluster import Task, task_from_environment


def write_filepath(path: str, task: Task | None = None) -> str:
    """Where `task` saves what the job saves at `path`: there if chief, else `<dirname>/workertemp_<index>/<basename>`.

    Without `task` it is this process's, as TF_CONFIG has it; TFConfigError if that is not usable. The directory that
    will hold it is made. ValueError if `path` is a URL (`gs://…`): the operator could not clean up there.
    """
    if is_url(path):
        raise ValueError(f"{path} is a URL, and object storage is not supported: save into the job's storage instead")
    task = task_from_environment() if task is None else task
    directory, name = posixpath.split(path)
    directory = directory if task.is_chief else temporary_directory(directory, task)
    if directory:
        Path(directory).mkdir(parents=True, exist_ok=True)
    return posixpath.join(directory, name)


def is_url(path: str) -> bool:
    """Whether the path names an object of a storage service (`gs://bucket/x`), not a file of this machine."""
    return "://" in path


def temporary_directory(directory: str, task: Task) -> str:
    """The directory below `directory` for what a task that is not the chief saves; nothing is made."""
    return posixpath.join(directory, f"workertemp_{task.index}")


def remove_own_temporary_directory(directory: str, task: Task) -> None:
    """Remove this task's temporary directory below the local `directory`, for runs that no operator cleans up after."""
    if not task.is_chief:
        shutil.rmtree(temporary_directory(directory, task), ignore_errors=True)
