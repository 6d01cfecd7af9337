"""The short-lived pod of `tftj tensorboard`: TensorBoard over the job's directory, which it cannot write.

TensorBoard listens on the pod's loopback only: a port-forward reaches it, and no other pod does. The pod lacks the
label of the job's pods, so it is no replica and in no gang.
"""

from tftraining.launch.roles import ROLES
from tftraining_api.manifests.cleanup_pod import PLACEMENT, user_of
from tftraining_api.manifests.security import container_security, pod_security
from tftraining_api.manifests.storage import job_directory, storage_mount, storage_volume
from tftraining_api.model.job import Job
from tftraining_api.model.names import API_VERSION, CONTAINER, KIND
from tftraining_api.model.spec import JobSpec, Manifest, Storage

NAME = "tensorboard"
PORT = 6006
PROBE = f"import socket; socket.create_connection(('127.0.0.1', {PORT})).close()"


def tensorboard_pod(job: Job, spec: JobSpec, storage: Storage, image: str, seconds: int) -> Manifest:
    """The manifest; the pod ends after so many seconds at the latest. Without `image` that of the job."""
    template = spec.template_of(next(role for role in ROLES if spec.role(role) is not None)).get("spec") or {}
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
            **{field: template[field] for field in PLACEMENT if field in template and field != "schedulerName"},
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 1,
            "activeDeadlineSeconds": seconds,
            "securityContext": pod_security(user_of(template)),
            "containers": [_container(job, storage, image or _image(template))],
            "volumes": [storage_volume(storage), {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}],
        },
    }


def _container(job: Job, storage: Storage, image: str) -> Manifest:
    return {
        "name": NAME,
        "image": image,
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
        "volumeMounts": [{**storage_mount(storage), "readOnly": True}, {"name": "tmp", "mountPath": "/tmp"}],
    }


def _image(template: Manifest) -> str:
    containers = template.get("containers") or ()
    return next((str(each.get("image", "")) for each in containers if each.get("name") == CONTAINER), "")
