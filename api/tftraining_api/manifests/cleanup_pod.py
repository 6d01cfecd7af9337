"""The short-lived pod that removes the temporary save directories of a finished job.

The pod has the user, group, placement and tolerations of the workers: they own the directories, which a chief with
another user may not remove. The operator (plan/workertemp_cleanup.py) chooses the workers whose directories go;
`tftraining.cleanup` removes them in the pod.

In a bucket (storage.uri) the pod works as a training pod does: with the TensorFlow of the job's image, the service
account of the template, and the variables and credentials of the training container.
"""

from typing import NamedTuple

from tftraining.launch.roles import WORKER
from tftraining_api.manifests import launcher
from tftraining_api.manifests.interpreter import python_of
from tftraining_api.manifests.metadata import child_metadata
from tftraining_api.manifests.security import container_security
from tftraining_api.manifests.storage import job_directory, storage_mounts
from tftraining_api.manifests.storage_pod import PLACEMENT, storage_pod_spec, training_container, training_image
from tftraining_api.model.job import Job
from tftraining_api.model.names import CLEANUP, LABEL_ATTEMPT, LABEL_ROLE, cleanup_pod_name
from tftraining_api.model.spec import JobSpec, Manifest, Storage

SECONDS = 120
# For a bucket: an import of TensorFlow, and pulling the image of the job on a node that has not trained.
BUCKET_SECONDS = 300
BUCKET_RESOURCES = {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}}
BUCKET_ACCOUNT = ("serviceAccountName", "serviceAccount", "automountServiceAccountToken")
BUCKET_NAMES = ("hostAliases", "dnsPolicy", "dnsConfig")  # how the training pods find the bucket's server
BUCKET_PLACEMENT = (*PLACEMENT, "schedulerName", *BUCKET_ACCOUNT, *BUCKET_NAMES)
# The sources of volumes that hold credentials and certificates. Other volumes hold data, and may be of one node.
CREDENTIALS = ("secret", "configMap", "projected")


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
        "spec": _pod_spec(job, task, template)
        if task.storage.uri is None
        else _bucket_pod_spec(job, spec, task, template),
    }


def _pod_spec(job: Job, task: CleanupTask, template: Manifest) -> Manifest:
    return storage_pod_spec(template, task.storage, _container(job, task), SECONDS, (*PLACEMENT, "schedulerName"))


def _bucket_pod_spec(job: Job, spec: JobSpec, task: CleanupTask, template: Manifest) -> Manifest:
    own = training_container(template)
    volumes = [each for each in template.get("volumes") or () if any(source in each for source in CREDENTIALS)]
    named = {each.get("name") for each in volumes}
    mounts = [each for each in own.get("volumeMounts") or () if each.get("name") in named]
    path = {"name": "PYTHONPATH", "value": launcher.LAUNCHER_DIRECTORY}
    # Without GPUs TensorFlow would otherwise warn in the termination message.
    quiet = {"name": "TF_CPP_MIN_LOG_LEVEL", "value": "3"}
    container = {
        "name": CLEANUP,
        **training_image(template),
        "command": [python_of(own), *_arguments(job, task, BUCKET_SECONDS)],
        "env": [quiet, *(each for each in own.get("env") or () if each.get("name") != path["name"]), path],
        **({"envFrom": own["envFrom"]} if own.get("envFrom") else {}),
        "securityContext": container_security({}, {}),
        "resources": BUCKET_RESOURCES,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [*mounts, {"name": launcher.LAUNCHER_VOLUME, "mountPath": launcher.LAUNCHER_DIRECTORY}],
    }
    pod = storage_pod_spec(template, task.storage, container, BUCKET_SECONDS, BUCKET_PLACEMENT)
    init = {
        **launcher.copying_container(spec, task.image, {}),
        "resources": {"requests": launcher.RESOURCES, "limits": launcher.RESOURCES},
    }
    volumes = [*volumes, {"name": launcher.LAUNCHER_VOLUME, "emptyDir": {}}]
    return {**pod, "initContainers": [init], "volumes": volumes}


def _arguments(job: Job, task: CleanupTask, seconds: int) -> list[str]:
    arguments = ["-m", "tftraining.cleanup", "--root", job_directory(job, task.storage), f"--timeout={seconds - 20}"]
    arguments += [f"--save-dir={each}" for each in task.storage.save_dirs]
    return arguments + [f"--index={each}" for each in task.indices]


def _container(job: Job, task: CleanupTask) -> Manifest:
    return {
        "name": CLEANUP,
        "image": task.image,
        "command": ["python3", *_arguments(job, task, SECONDS)],
        "securityContext": container_security({"readOnlyRootFilesystem": True}, {}),
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": storage_mounts(task.storage),
    }
