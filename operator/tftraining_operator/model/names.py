"""The names that a job and its children have in the cluster: they are part of the public contract."""

from typing import Literal, NamedTuple

import msgspec

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
MANAGER = f"{GROUP}/operator"
# Labels of a job that Kueue reads: the first asks for a queue, the second for a priority in it.
QUEUE_LABELS = ("kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class")
# The label of a pod that names its group, and the Workload that Kueue makes for the group.
QUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"

CONTAINER = "tensorflow"
CLEANUP = "cleanup"
RENDEZVOUS_PORT = 8471
STATUS_PORT = 8472

Role = Literal["chief", "worker", "ps", "evaluator"]
# Those that make steps; who meets at the rendezvous; and who is looked after.
TRAINER_ROLES: tuple[Role, ...] = ("chief", "worker")
GANG_ROLES: tuple[Role, ...] = (*TRAINER_ROLES, "ps")
ROLES: tuple[Role, ...] = (*GANG_ROLES, "evaluator")


class Replica(msgspec.Struct, frozen=True, order=True):
    """One member of a job, such as worker 1."""

    role: Role
    index: int

    def __str__(self) -> str:
        return f"{self.role}-{self.index}"


class Key(NamedTuple):
    """Which job: what the work queue holds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def pod_name(job: str, replica: Replica | str) -> str:
    """The pod's name, which is its hostname too: `<job>-<role>-<index>`."""
    return f"{job}-{replica}"


def cleanup_pod_name(job: str) -> str:
    """The name of the pod that removes the temporary save directories."""
    return f"{job}-{CLEANUP}"


def secret_name(job: str, uid: str) -> str:
    """The Secret by which the job's launchers know each other. The UID keeps apart jobs that follow each other."""
    return f"{job}-launcher-{uid[:8]}"


def companion_name(job: str, uid: str) -> str:
    """The name of what stands beside the pods (NetworkPolicy, PodGroup). By the UID nothing of it is in the way of the
    next job of that name, and nobody else's object is ever taken for it."""
    return f"{job}-{uid[:8]}"


def address(key: Key, replica: Replica, port: int) -> str:
    """Where the replica listens, as its peers resolve it: `<pod>.<service>.<namespace>.svc:<port>`."""
    return address_pattern(key, replica.role, port).replace("%d", str(replica.index))


def address_pattern(key: Key, role: Role, port: int) -> str:
    """The address of the replicas of a role, with `%d` for the index: no name can have a percent sign."""
    return f"{pod_name(key.name, role)}-%d.{key.name}.{key.namespace}.svc:{port}"


def selector(job: str) -> str:
    """The label selector of the workers: what the scale subresource, and so an autoscaler, counts."""
    return f"{LABEL_JOB}={job},{LABEL_ROLE}=worker"
