"""The result of the planner: the next step of a job, and nothing about how the step is carried out."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal

from tftraining_api.model.job import Job
from tftraining_api.model.names import Replica
from tftraining_api.model.spec import Frozen, Manifest
from tftraining_api.model.status import Condition, Status
from tftraining_operator.model.observed import Observed


class Event(Frozen, frozen=True):
    """A Kubernetes Event to publish after the status is written."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class PodDeletion(Frozen, frozen=True):
    """A pod to delete. The UID protects a new pod of the same name. `grace` is in seconds; None stands for the pod's
    own terminationGracePeriodSeconds. `version`, set for a deletion by force, protects a pod that has changed since the
    operator read it."""

    name: str
    uid: str
    grace: int | None
    version: str = ""


class PodFailure(Frozen, frozen=True):
    """A pod whose phase is to be set to Failed, and the reason. The UID protects a new pod of the same name, `version`
    (its resourceVersion) a pod that has changed since the operator read it."""

    name: str
    uid: str
    version: str
    message: str


class PodAnnotation(Frozen, frozen=True):
    """Annotations to set on a pod. The UID protects a new pod of the same name, `version` (its resourceVersion) the
    annotations that another operator has set since."""

    name: str
    uid: str
    version: str
    values: dict[str, str]


class QuotaAsk(Frozen, frozen=True):
    """The replicas whose pods need room in the quotas together. `begins`: no program of the attempt has begun; `holds`:
    pods of it are there already."""

    replicas: tuple[Replica, ...]
    begins: bool
    holds: bool


class Step(Frozen, frozen=True):
    """The writes of one pass: the status first, so that the decision survives a crash, then the children.

    `delete_job` and `patch_condition` each come alone: the first without a change of the status, the second as the
    only condition of the status to write (see plan/unreadable.py).
    `auxiliary_objects` (NetworkPolicy, PodGroup) must exist, with this content, before the pods.
    `create_pods` may build its manifests lazily: a caller takes one manifest at a time.
    `create_secret` lacks its key and accompanies every pod that needs the key: the operator may not read Secrets.
    `verify_secret` must exist, because running pods hold its key already (see plan/auxiliary_objects.py).
    `held_writes` are writes that the API server has refused and whose next try is not due (plan/refused_writes.py).
    `departs`: a pod leaves its node for a condition, if it is its turn in the cluster (plan/node_conditions.py).
    `quota` is the room that has to be there before pods are created (plan/quota_request.py).
    `requeue_at` is the time of the next pass if nothing changes before.
    """

    status: Status
    create_secret: Manifest | None = None
    verify_secret: Manifest | None = None
    create_service: Manifest | None = None
    delete_service: bool = False
    delete_job: bool = False
    patch_condition: Condition | None = None
    auxiliary_objects: tuple[Manifest, ...] = ()
    delete_auxiliary_objects: tuple[Manifest, ...] = ()
    create_pods: Sequence[Manifest] = ()
    delete_pods: tuple[PodDeletion, ...] = ()
    fail_pods: tuple[PodFailure, ...] = ()
    annotate_pod: PodAnnotation | None = None
    held_writes: tuple[str, ...] = ()
    quota: QuotaAsk | None = None
    departs: bool = False
    events: tuple[Event, ...] = ()
    requeue_at: datetime | None = None

    @property
    def forces(self) -> bool:
        """Whether the step deletes a pod by force."""
        return any(each.version for each in self.delete_pods)

    @property
    def creates(self) -> bool:
        """Whether the step creates children."""
        return bool(self.create_pods) or self.create_service is not None

    @property
    def touches_children(self) -> bool:
        """Whether the step writes anything but the job itself."""
        removals = (self.delete_pods, self.fail_pods, self.delete_auxiliary_objects, self.delete_service)
        others = (self.create_secret, self.verify_secret, self.auxiliary_objects, self.annotate_pod)
        return self.creates or any(removals) or any(others)


# The planner with its configuration bound: the next step of a job, from the job, its children and the time.
Planner = Callable[[Job, Observed, datetime], Step]
