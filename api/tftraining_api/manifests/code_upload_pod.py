"""The short-lived pod that runs a program of `tftj` beside the storage of a job: that of `tftj submit --code` takes an
archive for a job which is not created yet, that of `tftj cp` and `tftj ls` serves the files of a job.

Its image is that of the training, because each node that trains pulls it anyway, and it has Python. It listens on the
pod's loopback only: a port-forward reaches it, and no other pod does. It mounts the whole volume, as the training pods
do: the kubelet would create a subPath as root, not writable by the user of the pods.
"""

from tftraining.launch.roles import ROLES
from tftraining_api.manifests.interpreter import python_of
from tftraining_api.manifests.security import container_security
from tftraining_api.manifests.storage import storage_mounts
from tftraining_api.manifests.storage_pod import PLACEMENT, storage_pod_spec, training_container, training_image
from tftraining_api.model.spec import JobSpec, Manifest, Storage

NAME = "code-upload"
SECONDS = 3600
FILES_NAME = "files"
FILES_SECONDS = 24 * 3600  # a large copy takes hours
GRACE_SECONDS = 5
RESOURCES = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}}


def code_upload_pod(name: str, spec: JobSpec, storage: Storage, script: str, arguments: list[str]) -> Manifest:
    """The manifest for the job of that name; its Python runs the script."""
    return _pod((name, NAME), spec, storage, [script, *arguments], SECONDS)


def files_pod(name: str, spec: JobSpec, storage: Storage, script: str) -> Manifest:
    """The same, for the files of that job. It does not go with the job, whose files outlive it."""
    return _pod((name, FILES_NAME), spec, storage, [script, storage.mount_path], FILES_SECONDS)


def _pod(names: tuple[str, str], spec: JobSpec, storage: Storage, program: list[str], seconds: int) -> Manifest:
    job, name = names
    template = spec.template_of(next(role for role in ROLES if spec.role(role) is not None)).get("spec") or {}
    container = {
        "name": name,
        **training_image(template),
        "command": [python_of(training_container(template)), "-c", *program],
        "securityContext": container_security({"readOnlyRootFilesystem": True}, {}),
        "resources": RESOURCES,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": storage_mounts(storage),
    }
    pod = storage_pod_spec(template, storage, container, seconds, PLACEMENT)
    # After Ctrl-C the program removes what it has written so far, also from a slow volume.
    pod["terminationGracePeriodSeconds"] = GRACE_SECONDS
    # A volume that waits for its first consumer is bound near this pod: the nodes of the training count as well. Not
    # its pods: an affinity to the job's own pods keeps this one waiting, which has other labels.
    if nodes := (template.get("affinity") or {}).get("nodeAffinity"):
        pod["affinity"] = {"nodeAffinity": nodes}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{job}-{name}-",
            "labels": {"app.kubernetes.io/name": name, "app.kubernetes.io/instance": job},
        },
        "spec": pod,
    }
