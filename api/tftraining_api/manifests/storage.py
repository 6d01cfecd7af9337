"""The storage that the pods of a job share, and the job's directory in it."""

from posixpath import join

from tftraining_api.model.job import Job
from tftraining_api.model.spec import Manifest, Storage

VOLUME = "tftraining-storage"


def job_directory(job: Job, storage: Storage) -> str:
    """The job's directory for its programs: `<mountPath>/<directory>`, or `<uri>/<directory>`; the default directory is
    the job's name."""
    return join(storage.uri or storage.mount_path, storage.directory or job.key.name)


def mounted_directory(job: Job, storage: Storage | None) -> str | None:
    """The job's directory, if every program can open it as a path: None for a URI, which only TensorFlow can open."""
    return job_directory(job, storage) if storage and storage.volume is not None else None


def storage_volumes(storage: Storage | None) -> list[Manifest]:
    """The pod volume, if the storage is one."""
    return [{"name": VOLUME, **storage.volume}] if storage and storage.volume is not None else []


def storage_mounts(storage: Storage | None) -> list[Manifest]:
    """The mount of the whole volume: the kubelet would create a subPath as root, not writable by other users."""
    return [{"name": VOLUME, "mountPath": storage.mount_path}] if storage and storage.volume is not None else []
