"""What the planner answers with: the next step, and nothing about how it is carried out."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal

from tftraining_operator.model.job import Job
from tftraining_operator.model.observed import Observed
from tftraining_operator.model.spec import Frozen, Manifest
from tftraining_operator.model.status import Condition, Status


class Note(Frozen, frozen=True):
    """A Kubernetes Event to publish once the status is written."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class Deletion(Frozen, frozen=True):
    """A pod to delete. The UID keeps a new pod of the same name safe; `grace` is in seconds, None for the pod's own."""

    name: str
    uid: str
    grace: int | None


class Ending(Frozen, frozen=True):
    """A pod to be declared Failed, and why. The UID keeps a new pod of the same name safe, `version` (its
    resourceVersion) one that has changed since it was seen."""

    name: str
    uid: str
    version: str
    message: str


class Annotation(Frozen, frozen=True):
    """Annotations to give to a pod. The UID keeps a new pod of the same name safe, `version` (its resourceVersion) what
    another operator has told it since."""

    name: str
    uid: str
    version: str
    values: dict[str, str]


class Plan(Frozen, frozen=True):
    """The next step of a job: the status first (so that the intent survives a crash), then the children.

    `delete_job` comes alone, without a change of the status.
    `patch_condition` comes alone too: of the status only that condition is to be written (see plan/unreadable.py).
    `companions` (see plan/companions.py) are to be there, as they are here, before the pods.
    The manifests of `create_pods` may be made only when they are asked for: look at one at a time.
    `create_secret` comes without its key, and with all pods that need it: nobody may look whether it is there. That
    `expect_secret` is there is to be made sure of instead where pods have its key already (see plan/lost_key.py).
    `held` are the writes that the API server has refused and whose next try is not due (see plan/refused_changes.py).
    """

    status: Status
    create_secret: Manifest | None = None
    expect_secret: Manifest | None = None
    create_service: Manifest | None = None
    delete_service: bool = False
    delete_job: bool = False
    patch_condition: Condition | None = None
    companions: tuple[Manifest, ...] = ()
    delete_companions: tuple[Manifest, ...] = ()
    create_pods: Sequence[Manifest] = ()
    delete_pods: tuple[Deletion, ...] = ()
    end_pods: tuple[Ending, ...] = ()
    annotate_pod: Annotation | None = None
    held: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    again_at: datetime | None = None

    @property
    def creates(self) -> bool:
        """Whether children are to be made."""
        return bool(self.create_pods) or self.create_service is not None

    @property
    def touches_children(self) -> bool:
        """Whether anything is to be written to a child."""
        removals = (self.delete_pods, self.end_pods, self.delete_companions, self.delete_service)
        others = (self.create_secret, self.expect_secret, self.companions, self.annotate_pod)
        return self.creates or any(removals) or any(others)


# The planner once it knows the operator's own surroundings: the next step of a job, as it is observed at that time.
Planner = Callable[[Job, Observed, datetime], Plan]
