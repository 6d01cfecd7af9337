"""The names of a job and its children in the cluster, which are part of the public contract."""

import re
from typing import NamedTuple

import msgspec

from tftraining.launch.roles import WORKER, Role, RoleName, traits

GROUP = "tftraining.dev"
VERSION = "v1"
PLURAL = "tftrainingjobs"
KIND = "TFTrainingJob"
API_VERSION = f"{GROUP}/{VERSION}"

LABEL_JOB = f"{GROUP}/job-name"
LABEL_ROLE = f"{GROUP}/role"
LABEL_INDEX = f"{GROUP}/index"
LABEL_ATTEMPT = f"{GROUP}/attempt"
ANNOTATION_GANG = f"{GROUP}/gang"
ANNOTATION_SPEC = f"{GROUP}/spec"
ANNOTATION_ORDERS = f"{GROUP}/orders"
# Of a pod: status.keras of its job when the operator created the pod.
ANNOTATION_KERAS = f"{GROUP}/keras"
# Of a job: a new value asks for one restart of the gang, as `kubectl rollout restart` does for a Deployment. Of a pod:
# the value that its job had when the operator created the pod.
ANNOTATION_RESTARTED_AT = f"{GROUP}/restartedAt"
MANAGER = f"{GROUP}/operator"
# Kueue's labels of a job: the queue, and the priority in it.
QUEUE_LABELS = ("kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class")
# The pod label with the name of the pod's group, which is also the name of the group's Workload.
QUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
# The API of Kubernetes' own PodGroup (runPolicy.scheduling.gang).
NATIVE_GANG = "scheduling.k8s.io/v1beta1"

CONTAINER = "tensorflow"
CLEANUP = "cleanup"
# The volume for backups in memory, and its place in the training container.
MEMORY_VOLUME, MEMORY_DIRECTORY = "tftraining-memory-backup", "/opt/tftraining-memory-backup"
RENDEZVOUS_PORT = 8471
STATUS_PORT = 8472
_SUCCESSOR = re.compile(r"(?<=\d)-r([1-9]\d{0,8})$")


class Replica(msgspec.Struct, frozen=True, order=True):
    """One member of a job, such as worker 1."""

    role: RoleName
    index: int

    @property
    def traits(self) -> Role:
        """What the role does."""
        return traits(self.role)

    def __str__(self) -> str:
        return f"{self.role}-{self.index}"


class Key(NamedTuple):
    """The key of a job in caches and in the work queue."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def pod_name(job: str, replica: Replica | str, successor: int = 0) -> str:
    """The name of the pod: `<job>-<role>-<index>`, which is the hostname too. A successor under Kueue, which keeps the
    names of lost pods, has a name of its own, `<job>-<role>-<index>-r<number>`, and the same hostname."""
    return f"{job}-{replica}-r{successor}" if successor else f"{job}-{replica}"


def member_of(job: str, pod: str) -> str:
    """The replica, such as `worker-1`, in the name of a pod of the job."""
    return _SUCCESSOR.sub("", pod.removeprefix(f"{job}-"))


def successor_of(pod: str) -> int:
    """The number at the end of a successor's name; 0 for a first pod."""
    found = _SUCCESSOR.search(pod)
    return int(found[1]) if found else 0


def cleanup_pod_name(job: str) -> str:
    """The name of the pod that removes the temporary save directories."""
    return f"{job}-{CLEANUP}"


def secret_name(job: str, uid: str) -> str:
    """The name of the Secret with the launchers' shared key. The UID distinguishes successive jobs of one name."""
    return f"{job}-launcher-{uid[:8]}"


def auxiliary_object_name(job: str, uid: str) -> str:
    """The name of the job's NetworkPolicy and PodGroup. The UID prevents conflicts with the next job of the name and
    with objects of others."""
    return f"{job}-{uid[:8]}"


def address(key: Key, replica: Replica, port: int) -> str:
    """The replica's address for its peers: `<pod>.<service>.<namespace>.svc:<port>`."""
    return address_pattern(key, replica.role, port).replace("%d", str(replica.index))


def address_pattern(key: Key, role: RoleName, port: int) -> str:
    """The address of a role's replicas, with `%d` for the index; Kubernetes names have no percent sign."""
    return f"{pod_name(key.name, role)}-%d.{key.name}.{key.namespace}.svc:{port}"


def selector(job: str) -> str:
    """The label selector of the workers, which the scale subresource, and so an autoscaler, counts."""
    return f"{LABEL_JOB}={job},{LABEL_ROLE}={WORKER}"
