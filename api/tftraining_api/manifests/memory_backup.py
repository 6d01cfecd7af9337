"""The parts of a pod for backups in memory: a volume of the medium Memory, its mount, and the launcher's settings.

The volume is one of its own: /dev/shm belongs to the program, and a limit here does not limit the buffers there. Its
memory counts against the limit of the training container, which writes the files.
"""

from tftraining.launch.config.settings import MemoryBackupSettings
from tftraining.launch.config.settings_and_defaults import key_of, names
from tftraining_api.model.names import CONTAINER, MEMORY_DIRECTORY, MEMORY_VOLUME, Replica
from tftraining_api.model.quantity import in_bytes
from tftraining_api.model.spec import JobSpec, Manifest
from tftraining_api.model.status import Status

NO_LIMIT = (
    "the training container has no memory limit: set resources.limits.memory, or spec.launcher.memoryBackup.sizeLimit"
)


def settings(status: Status, spec: JobSpec, replica: Replica, container: Manifest) -> Manifest:
    """The fields of the launcher's settings; none for a replica that makes no steps."""
    if not replica.traits.makes_steps:
        return {}
    backup, size = spec.launcher.memory_backup, size_limit(status, spec, replica, container)
    fields = {
        **{key_of(name): getattr(backup, name, None) for name in names(MemoryBackupSettings)},
        "sizeLimit": size,
        "memoryLimit": memory_limit(container),
        "directory": None if size is None else MEMORY_DIRECTORY,
        "off": why_off(status, spec, container),
    }
    return {"memoryBackup": fields}


def why_off(status: Status, spec: JobSpec, container: Manifest) -> str:
    """Why a job that asks for backups in memory gets none; "" if it gets them, or does not ask."""
    backup = spec.launcher.memory_backup
    if backup.mode == "Off":
        return ""
    if status.no_more_backups:
        return status.no_more_backups
    return NO_LIMIT if backup.size_limit is None and memory_limit(container) is None else ""


def size_limit(status: Status, spec: JobSpec, replica: Replica, container: Manifest) -> int | None:
    """The size of the volume in bytes; None for a pod without the volume."""
    backup = spec.launcher.memory_backup
    if backup.mode == "Off" or not replica.traits.makes_steps or why_off(status, spec, container):
        return None
    if backup.size_limit is not None:
        return in_bytes(backup.size_limit)
    return ((memory_limit(container) or 0) + 1) // 2


def has_volume(status: Status, spec: JobSpec, replica: Replica) -> bool:
    """Whether the next pod of the replica gets the volume."""
    containers = (spec.template_of(replica.role).get("spec") or {}).get("containers") or ()
    return any(
        size_limit(status, spec, replica, each) is not None for each in containers if each.get("name") == CONTAINER
    )


def memory_limit(container: Manifest) -> int | None:
    """The memory limit of the container in bytes; None if it has none."""
    return in_bytes(((container.get("resources") or {}).get("limits") or {}).get("memory"))


def volumes(size: int | None) -> list[Manifest]:
    """The volume of that size in bytes; none for None."""
    return [] if size is None else [{"name": MEMORY_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": str(size)}}]


def mounts(size: int | None) -> list[Manifest]:
    """The mount of the volume; none for None."""
    return [] if size is None else [{"name": MEMORY_VOLUME, "mountPath": MEMORY_DIRECTORY}]
