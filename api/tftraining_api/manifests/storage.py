"""The storage that the pods of a job share, and the job's directory in it."""

from posixpath import join

from tftraining_api.model.job import Job
from tftraining_api.model.spec import Manifest, Storage

VOLUME = "tftraining-storage"


def job_directory(job: Job, storage: Storage) -> str:
    """The job's directory in its containers: `<mountPath>/<directory>`; the default directory is the job's name."""
    return join(storage.mount_path, storage.directory or job.key.name)


def storage_volume(storage: Storage) -> Manifest:
    """The pod volume."""
    return {"name": VOLUME, **storage.volume}


def storage_mount(storage: Storage) -> Manifest:
    """The mount of the whole volume: the kubelet would create a subPath as root, not writable by other users."""
    return {"name": VOLUME, "mountPath": storage.mount_path}
