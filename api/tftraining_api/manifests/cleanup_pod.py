"""The short-lived pod that removes the temporary save directories of a finished job.

The pod has the user, group, placement and tolerations of the workers: they own the directories, which a chief with
another user may not remove. `tftraining.cleanup`, which runs in the pod, decides what to remove.
"""

from typing import NamedTuple

from tftraining.launch.roles import WORKER
from tftraining_api.manifests.metadata import child_metadata
from tftraining_api.manifests.security import container_security, pod_security
from tftraining_api.manifests.storage import job_directory, storage_mount, storage_volume
from tftraining_api.model.job import Job
from tftraining_api.model.names import CLEANUP, CONTAINER, LABEL_ATTEMPT, LABEL_ROLE, cleanup_pod_name
from tftraining_api.model.spec import JobSpec, Manifest, Storage

SECONDS = 120
PLACEMENT = ("nodeSelector", "tolerations", "imagePullSecrets", "schedulerName", "runtimeClassName")


class CleanupTask(NamedTuple):
    """One attempt at the cleanup; `indices` are those of the workers whose `workertemp_<index>` it may remove."""

    storage: Storage
    indices: tuple[int, ...]
    image: str
    attempt: int


def cleanup_pod(job: Job, spec: JobSpec, task: CleanupTask) -> Manifest:
    """The manifest of the pod for the task."""
    template = spec.template_of(WORKER).get("spec") or {}
    labels = {LABEL_ROLE: CLEANUP, LABEL_ATTEMPT: str(task.attempt), "app.kubernetes.io/component": CLEANUP}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": child_metadata(job, cleanup_pod_name(job.key.name), labels),
        "spec": {
            **{field: template[field] for field in PLACEMENT if field in template},
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 1,
            "activeDeadlineSeconds": SECONDS,
            "securityContext": pod_security(user_of(template)),
            "containers": [_container(job, task)],
            "volumes": [storage_volume(task.storage)],
        },
    }


def user_of(template: Manifest) -> Manifest:
    """The security context of the training process; the container's user overrides the pod's."""
    containers = template.get("containers") or ()
    own = next((each.get("securityContext") or {} for each in containers if each.get("name") == CONTAINER), {})
    fields = ("runAsUser", "runAsGroup", "runAsNonRoot", "seLinuxOptions")
    return {**(template.get("securityContext") or {}), **{field: own[field] for field in fields if field in own}}


def _container(job: Job, task: CleanupTask) -> Manifest:
    command = ["python3", "-m", "tftraining.cleanup", "--root", job_directory(job, task.storage)]
    command += [f"--timeout={SECONDS - 20}"]
    command += [f"--save-dir={each}" for each in task.storage.save_dirs]
    command += [f"--index={each}" for each in task.indices]
    return {
        "name": CLEANUP,
        "image": task.image,
        "command": command,
        "securityContext": container_security({"readOnlyRootFilesystem": True}, {}),
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [storage_mount(task.storage)],
    }
