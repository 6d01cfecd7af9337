"""The storage that the pods of a job share, and where the job's own directory is in it."""

from posixpath import join

from tftraining_operator.model.job import Job
from tftraining_operator.model.spec import Manifest, Storage

VOLUME = "tftraining-storage"


def job_directory(job: Job, storage: Storage) -> str:
    """The job's directory as its containers see it: `<mountPath>/<directory>`, the directory being the job's name."""
    return join(storage.mount_path, storage.directory or job.key.name)


def storage_volume(storage: Storage) -> Manifest:
    """The pod volume."""
    return {"name": VOLUME, **storage.volume}


def storage_mount(storage: Storage) -> Manifest:
    """Where the whole volume is mounted; a subPath would be created by root, and escape a non-root user."""
    return {"name": VOLUME, "mountPath": storage.mount_path}
