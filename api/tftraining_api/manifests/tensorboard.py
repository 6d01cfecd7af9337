"""The short-lived pod of `tftj tensorboard`: TensorBoard over the job's directory, which it cannot write.

TensorBoard listens on the pod's loopback only: a port-forward reaches it, and no other pod does. The pod lacks the
label of the job's pods, so it is no replica and in no gang.
"""

from tftraining.launch.roles import ROLES
from tftraining_api.manifests.security import container_security
from tftraining_api.manifests.storage import job_directory, storage_mounts
from tftraining_api.manifests.storage_pod import storage_pod_spec, training_image
from tftraining_api.model.job import Job
from tftraining_api.model.names import API_VERSION, KIND
from tftraining_api.model.spec import JobSpec, Manifest, Storage

NAME = "tensorboard"
PORT = 6006
PROBE = f"import socket; socket.create_connection(('127.0.0.1', {PORT})).close()"


def tensorboard_pod(job: Job, spec: JobSpec, storage: Storage, image: str, seconds: int) -> Manifest:
    """The manifest; the pod ends after so many seconds at the latest. Without `image` that of the job."""
    template = spec.template_of(next(role for role in ROLES if spec.role(role) is not None)).get("spec") or {}
    container = {**_container(job, storage), **({"image": image} if image else training_image(template))}
    spec_of_pod = storage_pod_spec(template, storage, container, seconds)
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": job.key.name, "uid": job.uid}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{job.key.name}-{NAME}-",
            "labels": {"app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": job.key.name},
            "ownerReferences": [owner],
        },
        "spec": {
            **spec_of_pod,
            "volumes": [*spec_of_pod["volumes"], {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}],
        },
    }


def _container(job: Job, storage: Storage) -> Manifest:
    return {
        "name": NAME,
        "command": [
            *("python3", "-m", "tensorboard.main", "--logdir", job_directory(job, storage)),
            *("--host", "127.0.0.1", "--port", str(PORT)),
        ],
        "env": [{"name": "HOME", "value": "/tmp"}],
        "securityContext": container_security({"readOnlyRootFilesystem": True}, {}),
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        # The kubelet cannot probe the loopback from outside.
        "readinessProbe": {"exec": {"command": ["python3", "-c", PROBE]}, "periodSeconds": 2, "timeoutSeconds": 10},
        "volumeMounts": [
            *({**each, "readOnly": True} for each in storage_mounts(storage)),
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }
