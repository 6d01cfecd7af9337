"""The short-lived pod beside the storage of a job that serves its files to `tftj cp` and `tftj ls`, and takes a large
program from `tftj submit --code` for a job which is not created yet.

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

NAME = "files"
SECONDS = 24 * 3600  # a large copy takes hours
GRACE_SECONDS = 5
RESOURCES = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}}


def files_pod(job: str, spec: JobSpec, storage: Storage, script: str) -> Manifest:
    """The manifest for the job of that name; its Python runs the script. It does not go with the job, whose files
    outlive it."""
    template = spec.template_of(next(role for role in ROLES if spec.role(role) is not None)).get("spec") or {}
    container = {
        "name": NAME,
        **training_image(template),
        "command": [python_of(training_container(template)), "-c", script, storage.mount_path],
        "securityContext": container_security({"readOnlyRootFilesystem": True}, {}),
        "resources": RESOURCES,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": storage_mounts(storage),
    }
    pod = storage_pod_spec(template, storage, container, SECONDS, PLACEMENT)
    pod["terminationGracePeriodSeconds"] = GRACE_SECONDS
    # A volume that waits for its first consumer is bound near this pod: the nodes of the training count as well. Not
    # its pods: an affinity to the job's own pods keeps this one waiting, which has other labels.
    if nodes := (template.get("affinity") or {}).get("nodeAffinity"):
        pod["affinity"] = {"nodeAffinity": nodes}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{job}-{NAME}-",
            "labels": {"app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": job},
        },
        "spec": pod,
    }
