"""What is observed of a job's children, parsed once from the API's objects into the facts that policies ask for."""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import cached_property

import msgspec

from tftraining_operator.model.names import (
    ANNOTATION_GANG,
    ANNOTATION_ORDERS,
    ANNOTATION_SPEC,
    CLEANUP,
    CONTAINER,
    KIND,
    LABEL_ATTEMPT,
    LABEL_INDEX,
    LABEL_ROLE,
    QUEUE_GROUP,
    QUEUE_LABELS,
    ROLES,
    Replica,
)
from tftraining_operator.model.node import Nodes
from tftraining_operator.model.report import Report, Verdict, split_verdict
from tftraining_operator.model.spec import Frozen, Manifest

# Reasons that the kubelet or a controller gives for ending, or not admitting, a pod that did nothing wrong.
# `Evicted` is none of them: where the node was short of something the kubelet adds the condition DisruptionTarget;
# without it the pod was over its own limit of ephemeral storage, and would be again.
DISRUPTIONS = frozenset(
    {
        "Preempting", "Preempted", "NodeLost", "NodeShutdown", "Shutdown", "Terminated",
        "InvalidNodeInfo", "NodeAffinity", "NodeName", "NodePorts", "NodeUnschedulable", "TaintToleration",
        "TopologyAffinityError", "UnexpectedAdmissionError", "UnexpectedPredicateFailureType",
    }
)  # fmt: skip
# The kubelet has no room for the pod: OutOfcpu, OutOfpods, OutOfnvidia.com/gpu.
NO_ROOM = "OutOf"
# The conditions that announce a pod's end: Kubernetes' own, and the one of Kueue when it takes a group's quota back.
DISRUPTION_TARGET, TERMINATION_TARGET = "DisruptionTarget", "TerminationTarget"
GATED = "SchedulingGated"
# What the kubelet and containerd report of a container that they find dead after its node has rebooted.
LOST_WITH_NODE = frozenset({"ContainerStatusUnknown", "Unknown"})
# What the kubelet says of a container whose image it does not have (pkg/kubelet/images).
NO_IMAGE = frozenset(
    {
        "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
        "RegistryUnavailable", "SignatureValidationFailed",
    }
)  # fmt: skip


# The label of an attempt.
ATTEMPT = r"\d{1,9}"
# The status and the events that repeat these words have limits of their own; a kubelet keeps to these by itself.
LONGEST_REASON, LONGEST_MESSAGE = 128, 4096


class Exit(Frozen, frozen=True):
    """How a container ended. The times have a resolution of one second; `message` is without the verdict."""

    code: int
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    verdict: Verdict | None = None

    @property
    def signal(self) -> int | None:
        """The signal that ended it: runtimes report 128 + signal as the exit code."""
        return self.code - 128 if 128 < self.code < 128 + 65 else None

    @property
    def ran(self) -> timedelta | None:
        """For how long it ran; None for one that never did."""
        return self.finished_at - self.started_at if self.started_at and self.finished_at else None


class Pod(Frozen, frozen=True):
    """A pod, as the planner sees it.

    * `version` is its resourceVersion. `replica` is None for the cleanup pod. `template_hash` is JobSpec.fingerprint of
      the spec that it was created from.
    * `waiting` is why a container does not start, or the trouble with a node that is not ready (`node_not_ready`).
      `unprepared` is why its volumes or its network are not ready, as far as that is known.
    * `any_container_running` includes side-cars beside a program that has ended.
    * A `queued` pod has asked Kueue for its quota, and waits for it while it is `gated`.
    * `orders` is the annotation by which its launcher learns of changes of the spec; empty for a pod without one.
    * `node_lost`: no kubelet is there any more to delete the pod. `evicting`: Kubernetes deletes the pod because of its
      node, which the status names only when that is over (both are set in plan/node_loss.py).
    """

    name: str
    uid: str
    attempt: int
    created: datetime
    version: str = ""
    replica: Replica | None = None
    gang: str = ""
    template_hash: str = ""
    orders: str = ""
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    node: str = ""
    ip: str = ""
    deleted_at: datetime | None = None
    deletion_deadline: datetime | None = None
    node_silent_since: datetime | None = None
    node_lost: bool = False
    evicting: bool = False
    disruption: str = ""
    disrupted_at: datetime | None = None
    running: bool = False
    ready: bool = False
    exit: Exit | None = None
    waiting: str = ""
    waiting_containers: tuple[str, ...] = ()
    preparing: bool = False
    unprepared: str = ""
    node_not_ready: bool = False
    any_container_running: bool = False
    queued: bool = False
    gated: bool = False
    scheduled_at: datetime | None = None

    @property
    def deleting(self) -> bool:
        """Whether somebody has asked for the pod's end."""
        return self.deleted_at is not None

    @property
    def terminating(self) -> bool:
        """Whether somebody has asked for the pod's end, spoken of or not."""
        return self.deleting or self.evicting

    @property
    def disruption_announced_at(self) -> datetime | None:
        """When somebody first announced or asked for the pod's end."""
        if self.deleted_at is None or self.disrupted_at is None:
            return self.deleted_at or self.disrupted_at
        return min(self.deleted_at, self.disrupted_at)

    @property
    def succeeded(self) -> bool:
        """Whether the program has done its work; a side-car that still runs does not matter."""
        return self.exit.code == 0 if self.exit else self.phase == "Succeeded"

    @property
    def failed(self) -> bool:
        """Whether the program, or the pod before it, has ended otherwise."""
        return self.exit.code != 0 if self.exit else self.phase == "Failed"

    @property
    def ended(self) -> bool:
        """Whether the program can write nothing any more."""
        return self.exit is not None or self.phase in ("Succeeded", "Failed")

    @property
    def label(self) -> str:
        """How people call it: the replica, such as worker-1, or the pod's name."""
        return str(self.replica) if self.replica else self.name


class Child(Frozen, frozen=True):
    """One object that carries the label of a job. `owner` is the UID of its controller, empty if it has none, and
    `owner_job` the name of that if it is a TFTrainingJob; `removal_due` is when the deletion
    that somebody has asked for is to be over; `pod` is None where the labels are not those of a pod of the operator."""

    name: str
    uid: str
    version: int
    owner: str = ""
    owner_job: str = ""
    node: str = ""
    removal_due: datetime | None = None
    pod: Pod | None = None


class Leftover(Frozen, frozen=True):
    """A child of the earlier job, such as `pod/x`. From `since` on nothing but the cluster keeps it from being removed:
    the job that waits for it is there, and a pod's own grace is over."""

    child: str
    since: datetime


class Refusal(Frozen, frozen=True):
    """The API server's last refusal to create a child, or to change it. A permanent one will not change by trying
    again; `tries` is how many there were in a row."""

    child: str
    message: str
    permanent: bool
    retry_at: datetime
    tries: int = 1


class Heard(Frozen, frozen=True):
    """What the launcher in the pod of that UID last said."""

    uid: str
    report: Report


class Observed(Frozen, frozen=True, dict=True, gc=True):
    """The children of one job: those that it owns, what kept others from being made, what the chief's launcher says.

    `refused_changes` are the changes and deletions that were refused, by the write (`DELETE pod/x`).
    An operator that was just started has heard nothing; `silent` is a launcher that it asks in vain. `nodes` are those
    of the pods; None where nobody may read them. `leftovers` are not the job's: an earlier one of its name had them;
    `earlier` are those of its pods whose end somebody has asked for.
    """

    pods: tuple[Pod, ...] = ()
    service: bool = False
    refusal: Refusal | None = None
    refused_changes: dict[str, Refusal] = msgspec.field(default_factory=dict)
    heard: Heard | None = None
    silent: bool = False
    nodes: Nodes | None = None
    leftovers: tuple[Leftover, ...] = ()
    earlier: tuple[Pod, ...] = ()

    @cached_property
    def replicas(self) -> tuple[Pod, ...]:
        """The pods that train. Every policy asks for them, so they are looked for once."""
        return tuple(pod for pod in self.pods if pod.replica is not None)

    @property
    def suspects(self) -> list[Pod]:
        """The pods whose node may be lost; none of a gang on nodes that are all ready."""
        pods = (*self.pods, *self.earlier)
        if self.nodes is None:
            return [pod for pod in pods if pod.node_silent_since is not None or pod.deletion_deadline is not None]
        unready = {name for name, node in self.nodes.named.items() if node.gone or node.unready_since is not None}
        return [pod for pod in pods if pod.node in unready] if unready else []

    @property
    def undeletable_pods(self) -> frozenset[str]:
        """The names of the pods whose deletion the API server has refused."""
        start = "DELETE pod/"
        return frozenset(write.removeprefix(start) for write in self.refused_changes if write.startswith(start))

    @property
    def cleanup(self) -> Pod | None:
        """The pod that removes the temporary save directories."""
        return next((pod for pod in self.pods if pod.replica is None), None)


def parse_child(raw: Manifest) -> Child:
    """An object from the API server as much of it as passes ask for."""
    meta, spec = raw["metadata"], raw.get("spec") or {}
    owner: Manifest = next((each for each in meta.get("ownerReferences") or () if each.get("controller")), {})
    return Child(
        name=meta["name"],
        uid=meta["uid"],
        version=int(meta["resourceVersion"]),
        owner=owner.get("uid", ""),
        owner_job=owner.get("name", "") if owner.get("kind") == KIND else "",
        node=spec.get("nodeName", ""),
        removal_due=_time(meta["deletionTimestamp"]) if "deletionTimestamp" in meta else None,
        pod=parse_pod(raw),
    )


def pods_of(children: Iterable[Child], uid: str) -> tuple[Pod, ...]:
    """The pods that the job of that UID owns, in the order of their names."""
    owned = (child.pod for child in children if child.owner == uid and child.pod is not None)
    return tuple(sorted(owned, key=lambda pod: pod.name))


def owned_by(raw: Manifest, uid: str) -> bool:
    """Whether the object's controller is the one with that UID: labels alone prove nothing."""
    owners = raw["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("uid") == uid for owner in owners)


def parse_pod(raw: Manifest) -> Pod | None:
    """A pod from the API server; None if its labels are not those that the operator writes, or belie its name."""
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    role, attempt = labels.get(LABEL_ROLE), labels.get(LABEL_ATTEMPT, "")
    replica = _replica(role, labels.get(LABEL_INDEX, ""))
    known = meta["name"].endswith(f"-{replica}") if replica else role == CLEANUP
    if not known or not re.fullmatch(ATTEMPT, attempt):
        return None
    container = _main_container(status, CLEANUP if replica is None else CONTAINER)
    state = container.get("state") or {}
    # A side-car among the init containers ends with the pod, however that ended.
    init = ("", "") if "terminated" in state else _failed_init(status)
    return Pod(
        name=meta["name"],
        uid=meta["uid"],
        attempt=int(attempt),
        created=_time(meta["creationTimestamp"]),
        version=meta.get("resourceVersion", ""),
        replica=replica,
        gang=annotations.get(ANNOTATION_GANG, ""),
        template_hash=annotations.get(ANNOTATION_SPEC, ""),
        orders=annotations.get(ANNOTATION_ORDERS, ""),
        phase=status.get("phase", "Pending"),
        reason=(status.get("reason") or init[0])[:LONGEST_REASON],
        message=(status.get("message") or init[1] or _told(status))[:LONGEST_MESSAGE],
        node=spec.get("nodeName", ""),
        ip=status.get("podIP", ""),
        deleted_at=_deleted_at(meta),
        deletion_deadline=_deletion_deadline(meta),
        node_silent_since=_node_silent_since(status),
        disruption=_disruption(status, state),
        disrupted_at=_disrupted_at(status),
        running="running" in state,
        ready="running" in state and bool(container.get("ready")),
        exit=_exit(state.get("terminated")),
        waiting=_waiting(status, labels)[:LONGEST_MESSAGE],
        waiting_containers=tuple(who for who, each in _containers(status) if "waiting" in (each.get("state") or {})),
        preparing=_preparing(status),
        queued=QUEUE_LABELS[0] in labels,
        gated=_unplaced(status).get("reason") == GATED,
        scheduled_at=_scheduled_at(status),
        any_container_running=any(
            "running" in (each.get("state") or {}) for each in status.get("containerStatuses") or ()
        ),
    )


def _replica(role: str | None, index: str) -> Replica | None:
    known = next((each for each in ROLES if each == role), None)
    return Replica(known, int(index)) if known and re.fullmatch(r"\d{1,5}", index) else None


def _time(text: str) -> datetime:
    return msgspec.convert(text, datetime)


def _deleted_at(meta: Manifest) -> datetime | None:
    """When the deletion was asked for: the API server stores when it will be enforced."""
    if "deletionTimestamp" not in meta:
        return None
    return _time(meta["deletionTimestamp"]) - timedelta(seconds=meta.get("deletionGracePeriodSeconds") or 0)


def _deletion_deadline(meta: Manifest) -> datetime | None:
    """When the pod's deletion is to be over; None if nobody asked for one, or for one by force."""
    return _time(meta["deletionTimestamp"]) if meta.get("deletionGracePeriodSeconds") else None


def _node_silent_since(status: Manifest) -> datetime | None:
    """Since when the node controller has not heard of the node of a pod that was ready by its kubelet's last word.

    A readiness gate of the user gives a reason; the node controller changes nothing but the condition's status.
    """
    conditions = {each.get("type"): each for each in status.get("conditions") or ()}
    ready, containers = conditions.get("Ready") or {}, conditions.get("ContainersReady") or {}
    if (ready.get("status"), containers.get("status")) != ("False", "True") or ready.get("reason"):
        return None
    return _time(ready["lastTransitionTime"]) if ready.get("lastTransitionTime") else None


def _main_container(status: Manifest, name: str) -> Manifest:
    containers: list[Manifest] = status.get("containerStatuses") or []
    return next((each for each in containers if each.get("name") == name), {})


def _exit(terminated: Manifest | None) -> Exit | None:
    if not terminated:
        return None
    started, finished = terminated.get("startedAt"), terminated.get("finishedAt")
    verdict, message = split_verdict(terminated.get("message", ""))
    return Exit(
        code=terminated.get("exitCode", 0),
        reason=terminated.get("reason", "")[:LONGEST_REASON],
        message=message[-LONGEST_MESSAGE:],
        started_at=_time(started) if started else None,
        finished_at=_time(finished) if finished else None,
        verdict=verdict,
    )


def _disruption_target(status: Manifest) -> Manifest | None:
    true = {each.get("type"): each for each in status.get("conditions") or () if each.get("status") == "True"}
    return true.get(DISRUPTION_TARGET) or true.get(TERMINATION_TARGET)


def _disruption(status: Manifest, state: Manifest) -> str:
    """Why the cluster, not the program, ended the pod; empty if it did not."""
    if (condition := _disruption_target(status)) is not None:
        return str(condition.get("reason") or "DisruptionTarget")[:LONGEST_REASON]
    reason = str(status.get("reason", ""))
    if reason in DISRUPTIONS or reason.startswith(NO_ROOM):
        return reason[:LONGEST_REASON]
    lost = (state.get("terminated") or {}).get("reason", "")
    return lost if lost in LOST_WITH_NODE else ""


def _told(status: Manifest) -> str:
    """Why Kueue has taken the pod's quota back, in its words."""
    condition = _disruption_target(status) or {}
    return str(condition.get("message", "")) if condition.get("type") == TERMINATION_TARGET else ""


def _disrupted_at(status: Manifest) -> datetime | None:
    """When the pod's end was announced; None also if the cluster gives only the reason."""
    condition = _disruption_target(status)
    return _time(condition["lastTransitionTime"]) if condition and condition.get("lastTransitionTime") else None


def _scheduled_at(status: Manifest) -> datetime | None:
    """When the pod was given a node."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "True":
            return _time(condition["lastTransitionTime"]) if condition.get("lastTransitionTime") else None
    return None


def _failed_init(status: Manifest) -> tuple[str, str]:
    """Reason and message of the init container that failed, and the pod with it; both empty if none did."""
    if status.get("phase") != "Failed":
        return "", ""
    for init in status.get("initContainerStatuses") or ():
        ended = (init.get("state") or {}).get("terminated") or {}
        if code := ended.get("exitCode"):
            words = ended.get("message", "").strip().splitlines()[-1:] or [ended.get("reason", "")]
            return "InitContainerFailed", f"init container {init.get('name')}: exit code {code}: {words[0]}"
    return "", ""


def _waiting(status: Manifest, labels: Manifest) -> str:
    """What the pod waits for, in the words of the part of Kubernetes that holds it up.

    The training container comes before side-cars: a pod whose side-car cannot start may train, and is ready then.
    """
    if unplaced := _unplaced(status):
        if unplaced.get("reason") == GATED:
            return _gated(labels)
        return f"cannot be scheduled: {unplaced.get('message') or unplaced.get('reason', '')}"
    waiting = ((who, _waiting_reason(each)) for who, each in _containers(status))
    return next((f"{who}: {why}" for who, why in waiting if why), "")


def _containers(status: Manifest) -> list[tuple[str, Manifest]]:
    """The states of the pod's containers, with what people call them: `init container x`, `container y`."""
    inits, containers = status.get("initContainerStatuses") or (), status.get("containerStatuses") or ()
    own_first = sorted(containers, key=lambda each: each.get("name") != CONTAINER)
    named = [(f"init container {each.get('name')}", each) for each in inits]
    return named + [(f"container {each.get('name')}", each) for each in own_first]


def _unplaced(status: Manifest) -> Manifest:
    """The condition that says why the pod has no node; empty if it has one, or nobody has looked for one yet."""
    conditions: list[Manifest] = status.get("conditions") or []
    found = (each for each in conditions if (each.get("type"), each.get("status")) == ("PodScheduled", "False"))
    return next(found, {})


def _gated(labels: Manifest) -> str:
    """Nobody may read the Workloads of queues for it, but which one to look at is known."""
    more = f", see kubectl describe workload {group}" if (group := labels.get(QUEUE_GROUP)) else ""
    return f"waits for its quota: a scheduling gate is still on it{more}"


def _waiting_reason(container: Manifest) -> str:
    waiting = (container.get("state") or {}).get("waiting") or {}
    reason, message = waiting.get("reason", ""), waiting.get("message", "")
    if reason in ("", "PodInitializing", "ContainerCreating"):
        return ""
    # The kubelet alternates between the two reasons; the cause is the same text in both.
    message = message.rpartition("ErrImagePull: ")[2]
    if reason in NO_IMAGE:
        return pull_failure(container.get("image", ""), message)
    return f"{reason}: {message}" if message else reason


def pull_failure(image: str, words: str) -> str:
    """How an image that cannot be pulled is told of, with the kubelet's words."""
    return f"image pull failed ({image}): {words}" if words else f"image pull failed ({image})"


def _preparing(status: Manifest) -> bool:
    """Whether the kubelet still prepares the pod's volumes and network."""
    conditions = status.get("conditions") or ()
    return any(each.get("type") == "PodReadyToStartContainers" and each.get("status") == "False" for each in conditions)
