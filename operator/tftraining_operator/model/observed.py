"""The observed children of a job, parsed once from the API's objects into the facts that policies need."""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import cached_property

import msgspec

from tftraining.launch.roles import ROLES
from tftraining_api.model.names import (
    ANNOTATION_GANG,
    ANNOTATION_KERAS,
    ANNOTATION_ORDERS,
    ANNOTATION_RESTARTED_AT,
    ANNOTATION_SPEC,
    CLEANUP,
    CONTAINER,
    KIND,
    LABEL_ATTEMPT,
    LABEL_INDEX,
    LABEL_ROLE,
    QUEUE_GROUP,
    QUEUE_LABELS,
    Replica,
    pod_name,
    successor_of,
)
from tftraining_api.model.spec import Frozen, Manifest
from tftraining_api.model.times import LAST, parse_time
from tftraining_operator.model.launcher_report import Report, ReportedResult, split_result
from tftraining_operator.model.node import Nodes
from tftraining_operator.model.storage_place import StoragePlace, place_of_pod
from tftraining_operator.model.times import earlier

# Reasons with which the kubelet or a controller ends or rejects a pod that is not at fault.
# Without `Evicted`: if the node was short of a resource the kubelet adds the condition DisruptionTarget; without that
# condition the pod exceeded its own limit of ephemeral storage, and would again.
DISRUPTION_REASONS = frozenset(
    {
        "Preempting", "Preempted", "NodeLost", "NodeShutdown", "Shutdown", "Terminated",
        "InvalidNodeInfo", "NodeAffinity", "NodeName", "NodePorts", "NodeUnschedulable", "TaintToleration",
        "TopologyAffinityError", "UnexpectedAdmissionError", "UnexpectedPredicateFailureType",
    }
)  # fmt: skip
# Prefix of the kubelet's reasons for a pod that does not fit on the node: OutOfcpu, OutOfpods, OutOfnvidia.com/gpu.
OUT_OF_RESOURCE_PREFIX = "OutOf"
# The conditions that announce a pod's end: Kubernetes' own, and Kueue's for a group that loses its quota.
DISRUPTION_TARGET, TERMINATION_TARGET = "DisruptionTarget", "TerminationTarget"
GATED = "SchedulingGated"
# Reasons of the kubelet and containerd for a container that is dead after a reboot of its node.
NODE_REBOOT_REASONS = frozenset({"ContainerStatusUnknown", "Unknown"})
# The kubelet's reasons for a container whose image is missing (pkg/kubelet/images).
IMAGE_REASONS = frozenset(
    {
        "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
        "RegistryUnavailable", "SignatureValidationFailed",
    }
)  # fmt: skip


# The beginnings of messages, by which plan/messages.py and plan/goodput.py recognize them.
UNSCHEDULABLE = "cannot be scheduled: "
QUOTA_GATE = "waiting for quota: "
PULL_FAILED = "image pull failed"
# Pattern of the attempt label.
ATTEMPT = r"\d{1,9}"
# Limits of reasons and messages, because the status and events that repeat them are limited; kubelets stay below.
LONGEST_REASON, LONGEST_MESSAGE = 128, 4096


class ContainerExit(Frozen, frozen=True):
    """The end of a container. Times have a resolution of one second. `message` is the termination message without the
    launcher's result in its first line."""

    code: int
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    result: ReportedResult | None = None

    @property
    def signal(self) -> int | None:
        """The signal that killed the container: runtimes report 128 + signal as the exit code."""
        return self.code - 128 if 128 < self.code < 128 + 65 else None

    @property
    def ran(self) -> timedelta | None:
        """How long the container ran; None if it never started."""
        return self.finished_at - self.started_at if self.started_at and self.finished_at else None


class Pod(Frozen, frozen=True):
    """A pod, with the facts that the planner needs.

    * `version` is its resourceVersion. `replica` is None for the cleanup pod. `template_hash` is JobSpec.fingerprint of
      the spec from which the pod was created.
    * `preparing`: the kubelet still prepares the pod's volumes and network.
    * `waiting` is why a container does not start, or what is wrong with a node that is not ready (`node_not_ready`).
      `unprepared` is why its volumes or network are not ready, if known.
    * `any_container_running` includes side-cars beside a program that has ended.
    * A `queued` pod has requested quota from Kueue, and waits for it while `gated`; `queue_group` is its group, empty
      for a pod alone. `quota_taken`: Kueue has asked for its end. `successor` is the number in its name.
    * `spec_updates` is the annotation that tells its launcher of spec changes; empty for a pod without one.
    * `unremoved_since` is the time of a deletion without a grace period that should have removed the pod at once: no
      finalizer delays the removal.
    * `keras` is status.keras of its job when the pod was created; empty for the rule of earlier versions.
    * `restarted_at` is the request for a restart that the pod was created after, "" for none.
    * `silence_noticed_at` is when this operator saw that the node is silent (set in cluster/child_store.py).
    * `node_lost`: no kubelet is left to delete the pod. `evicting`: Kubernetes deletes the pod because of its node,
      which the pod's status shows only afterwards (both are set in plan/node_loss.py).
    * `was_finished`: the job's status says that the program had finished before the pod's end was announced (set in
      plan/gang.py).
    """

    name: str
    uid: str
    attempt: int
    created: datetime
    version: str = ""
    replica: Replica | None = None
    gang: str = ""
    template_hash: str = ""
    spec_updates: str = ""
    keras: str = ""
    restarted_at: str = ""
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    node: str = ""
    ip: str = ""
    deleted_at: datetime | None = None
    deletion_deadline: datetime | None = None
    unremoved_since: datetime | None = None
    node_silent_since: datetime | None = None
    silence_noticed_at: datetime | None = None
    node_lost: bool = False
    evicting: bool = False
    was_finished: bool = False
    disruption: str = ""
    disrupted_at: datetime | None = None
    running: bool = False
    ready: bool = False
    exit: ContainerExit | None = None
    waiting: str = ""
    waiting_containers: tuple[str, ...] = ()
    preparing: bool = False
    unprepared: str = ""
    node_not_ready: bool = False
    any_container_running: bool = False
    queued: bool = False
    queue_group: str = ""
    quota_taken: bool = False
    successor: int = 0
    gated: bool = False
    scheduled_at: datetime | None = None

    @property
    def deleting(self) -> bool:
        """Whether the pod has a deletion timestamp."""
        return self.deleted_at is not None

    @property
    def terminating(self) -> bool:
        """Whether the pod is being deleted or evicted."""
        return self.deleting or self.evicting

    @property
    def disruption_announced_at(self) -> datetime | None:
        """When the pod's end was first announced or requested."""
        if self.deleted_at is None or self.disrupted_at is None:
            return self.deleted_at or self.disrupted_at
        return min(self.deleted_at, self.disrupted_at)

    @property
    def succeeded(self) -> bool:
        """Whether the program has succeeded; a side-car may still run."""
        return self.exit.code == 0 if self.exit else self.phase == "Succeeded"

    @property
    def failed(self) -> bool:
        """Whether the program has failed, or the pod has failed before the program could run."""
        return self.exit.code != 0 if self.exit else self.phase == "Failed"

    @property
    def ended(self) -> bool:
        """Whether the program has ended, so that it writes no more."""
        return self.exit is not None or self.phase in ("Succeeded", "Failed")

    @property
    def label(self) -> str:
        """The name for users: the replica, such as worker-1, or the pod's name."""
        return str(self.replica) if self.replica else self.name


class Child(Frozen, frozen=True):
    """One object with the label of a job. `place` is the storage that a pod writes.

    `owner` is the UID of its controller, empty if it has none; `owner_job` is
    the controller's name if it is a TFTrainingJob. `removal_due` is the end of a requested deletion's grace period.
    `pod` is None if the labels are not those of a pod of the operator. `unreadable` is why nothing but the identity is
    known; empty if all could be read."""

    name: str
    uid: str
    version: int
    owner: str = ""
    owner_job: str = ""
    node: str = ""
    removal_due: datetime | None = None
    pod: Pod | None = None
    place: StoragePlace | None = None
    unreadable: str = ""


def writes(child: Child) -> bool:
    """Whether a program in the pod of a job may still write."""
    return bool(child.owner_job) and (child.pod is None or not child.pod.ended)


class Leftover(Frozen, frozen=True):
    """A child of an earlier job of the same name, such as `pod/x`. From `since` on only the cluster delays its removal:
    the new job exists, and the pod's grace period is over."""

    child: str
    since: datetime


class Refusal(Frozen, frozen=True):
    """The API server's last refusal to create or change a child. Retrying does not help against a permanent one;
    `tries` counts refusals in a row."""

    child: str
    message: str
    permanent: bool
    retry_at: datetime
    tries: int = 1


class LauncherReport(Frozen, frozen=True):
    """The last report of the launcher in the pod with the UID `pod_uid`."""

    pod_uid: str
    report: Report


class QuotaHold(Frozen, frozen=True):
    """Why no pod of the gang may be created now, for users; `gives_back`: the pods that it has must go."""

    message: str
    gives_back: bool = False


class StorageUse(Frozen, frozen=True):
    """The use of the job's directory by others: `held` is why no pod may be created now, `shared` who writes the same
    directory, one above or one below it. Both are for users, empty if there is nobody."""

    held: str = ""
    shared: str = ""


class Observed(Frozen, frozen=True, dict=True, gc=True):
    """The children of one job, the last refusals of their creation or change, and the report of the chief's launcher.

    `refused_changes` are the refused changes and deletions, by the write (`DELETE pod/x`). `launcher_report` is None at
    first after a start of the operator; `launcher_silent` means that the launcher does not answer. `nodes` are the
    nodes of the pods; None if the operator may not read nodes. `leftovers` are children of an earlier job of the same
    name; `earlier` are those of its pods that are being deleted. `unreadable` names a child of the job that this
    version cannot read, and the reason. `keras_dropped`: the API server's definition of the resource, older than the
    operator, has dropped status.keras from the answer. `departs_from` is when the next pod of the cluster may leave a
    node for a condition; None for now.
    """

    pods: tuple[Pod, ...] = ()
    service: bool = False
    refusal: Refusal | None = None
    refused_changes: dict[str, Refusal] = msgspec.field(default_factory=dict)
    launcher_report: LauncherReport | None = None
    launcher_silent: bool = False
    nodes: Nodes | None = None
    leftovers: tuple[Leftover, ...] = ()
    earlier: tuple[Pod, ...] = ()
    unreadable: str = ""
    storage: StorageUse = StorageUse()
    quota: QuotaHold | None = None
    keras_dropped: bool = False
    departs_from: datetime | None = None

    @cached_property
    def replicas(self) -> tuple[Pod, ...]:
        """The pods of replicas. Cached, because every policy uses them."""
        return tuple(pod for pod in self.pods if pod.replica is not None)

    @property
    def suspect_pods(self) -> list[Pod]:
        """The pods whose node may be lost; none if all nodes are ready."""
        pods = (*self.pods, *self.earlier)
        if self.nodes is None:
            return [pod for pod in pods if pod.node_silent_since is not None or pod.deletion_deadline is not None]
        unready = {name for name, node in self.nodes.named.items() if not node.is_ready}
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
    """Parse an object from the API server into the facts that passes need. It must not look like a missing one if it
    cannot be read: `unreadable` keeps the operator from acting then."""
    meta, spec = raw["metadata"], raw.get("spec") or {}
    owner: Manifest = next((each for each in meta.get("ownerReferences") or () if each.get("controller")), {})
    child = Child(
        name=meta["name"],
        uid=meta["uid"],
        version=int(meta["resourceVersion"]),
        owner=owner.get("uid", ""),
        owner_job=owner.get("name", "") if owner.get("kind") == KIND else "",
        node=spec.get("nodeName", ""),
    )
    try:
        place = StoragePlace(*spec["place"]) if spec.get("place") else place_of_pod(raw)
        return msgspec.structs.replace(child, removal_due=_removal_due(meta), pod=parse_pod(raw), place=place)
    except Exception as error:
        return msgspec.structs.replace(child, unreadable=repr(error)[:LONGEST_MESSAGE])


def pods_of(children: Iterable[Child], uid: str) -> tuple[Pod, ...]:
    """The pods that the job with this UID owns, sorted by name; successors come after all first pods."""
    owned = (child.pod for child in children if child.owner == uid and child.pod is not None)
    return tuple(sorted(owned, key=lambda pod: (pod.successor, pod.name)))


def owned_by(raw: Manifest, uid: str) -> bool:
    """Whether the object's controller has this UID; labels are no proof of ownership."""
    owners = raw["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("uid") == uid for owner in owners)


def parse_pod(raw: Manifest) -> Pod | None:
    """Parse a pod from the API server; None if the operator does not write such labels, or they contradict its name."""
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    role, attempt = labels.get(LABEL_ROLE), labels.get(LABEL_ATTEMPT, "")
    replica = _replica(role, labels.get(LABEL_INDEX, ""))
    successor = successor_of(meta["name"]) if replica else 0
    known = meta["name"].endswith(pod_name("", replica, successor)) if replica else role == CLEANUP
    if not known or not re.fullmatch(ATTEMPT, attempt):
        return None
    name, containers = CLEANUP if replica is None else CONTAINER, status.get("containerStatuses") or []
    container: Manifest = next((each for each in containers if each.get("name") == name), {})
    state = container.get("state") or {}
    # An init container that is a side-car ends with the pod, so its exit code does not explain the pod's failure.
    init = ("", "") if "terminated" in state else _failed_init(status)
    return Pod(
        name=meta["name"],
        uid=meta["uid"],
        attempt=int(attempt),
        created=parse_time(meta["creationTimestamp"]),
        version=meta.get("resourceVersion", ""),
        replica=replica,
        gang=annotations.get(ANNOTATION_GANG, ""),
        template_hash=annotations.get(ANNOTATION_SPEC, ""),
        spec_updates=annotations.get(ANNOTATION_ORDERS, ""),
        keras=annotations.get(ANNOTATION_KERAS, ""),
        restarted_at=annotations.get(ANNOTATION_RESTARTED_AT, ""),
        phase=status.get("phase", "Pending"),
        reason=(status.get("reason") or init[0])[:LONGEST_REASON],
        message=(status.get("message") or init[1] or _kueue_message(status))[:LONGEST_MESSAGE],
        node=spec.get("nodeName", ""),
        ip=status.get("podIP", ""),
        deleted_at=_deleted_at(meta),
        deletion_deadline=_deletion_deadline(meta),
        unremoved_since=_unremoved_since(meta),
        node_silent_since=_node_silent_since(status),
        disruption=_disruption(status, state),
        disrupted_at=_changed_at(_disruption_target(status)),
        running="running" in state,
        ready="running" in state and bool(container.get("ready")),
        exit=_exit(state.get("terminated")),
        waiting=_waiting(status, labels)[:LONGEST_MESSAGE],
        waiting_containers=tuple(who for who, each in _containers(status) if "waiting" in (each.get("state") or {})),
        preparing=bool(_condition(status, "PodReadyToStartContainers", "False")),
        queued=QUEUE_LABELS[0] in labels,
        queue_group=labels.get(QUEUE_GROUP, ""),
        quota_taken=bool(_condition(status, TERMINATION_TARGET)),
        successor=successor,
        gated=_condition(status, "PodScheduled", "False").get("reason") == GATED,
        scheduled_at=_changed_at(_condition(status, "PodScheduled")),
        any_container_running=any("running" in (each.get("state") or {}) for each in containers),
    )


def _replica(role: str | None, index: str) -> Replica | None:
    known = next((each for each in ROLES if each == role), None)
    return Replica(known, int(index)) if known and re.fullmatch(r"\d{1,5}", index) else None


def _removal_due(meta: Manifest) -> datetime | None:
    """The end of a requested deletion's grace period. The API server's sum of both overflows for a grace period of
    centuries: no deletion precedes the creation."""
    if "deletionTimestamp" not in meta:
        return None
    due = parse_time(meta["deletionTimestamp"])
    return due if due >= parse_time(meta["creationTimestamp"]) else LAST


def _deleted_at(meta: Manifest) -> datetime | None:
    """When the deletion was requested: deletionTimestamp, the end of the grace period, minus the grace period."""
    if (due := _removal_due(meta)) is None:
        return None
    created, grace = parse_time(meta["creationTimestamp"]), meta.get("deletionGracePeriodSeconds") or 0
    return created if due == LAST else max(created, earlier(due, grace))


def _deletion_deadline(meta: Manifest) -> datetime | None:
    """The end of the deletion's grace period; None without a deletion, or after a forced one."""
    return _removal_due(meta) if meta.get("deletionGracePeriodSeconds") else None


def _unremoved_since(meta: Manifest) -> datetime | None:
    """The time of a deletion without a grace period; None without one, and if a finalizer keeps the pod."""
    if "deletionTimestamp" not in meta or meta.get("deletionGracePeriodSeconds") or meta.get("finalizers"):
        return None
    return _removal_due(meta)


def _node_silent_since(status: Manifest) -> datetime | None:
    """Since when the node controller has not heard from the node of a pod that its kubelet last reported as ready.

    The node controller changes only the status of the Ready condition; an unmet readiness gate sets a reason too.
    """
    ready = _condition(status, "Ready", "False")
    return None if ready.get("reason") or not _condition(status, "ContainersReady") else _changed_at(ready)


def _exit(terminated: Manifest | None) -> ContainerExit | None:
    if not terminated:
        return None
    started, finished = terminated.get("startedAt"), terminated.get("finishedAt")
    result, message = split_result(terminated.get("message", ""))
    return ContainerExit(
        code=terminated.get("exitCode", 0),
        reason=terminated.get("reason", "")[:LONGEST_REASON],
        message=message[-LONGEST_MESSAGE:],
        started_at=parse_time(started) if started else None,
        finished_at=parse_time(finished) if finished else None,
        result=result,
    )


def _condition(status: Manifest, kind: str, value: str = "True") -> Manifest:
    """The condition of this type, if it has this value; else an empty one."""
    conditions: list[Manifest] = status.get("conditions") or []
    for each in conditions:  # quickly: thousands of pods are parsed at once
        if each.get("type") == kind:
            return each if each.get("status") == value else {}
    return {}


def _changed_at(condition: Manifest) -> datetime | None:
    """Since when the condition holds; None for an empty one, and if that is unknown."""
    return parse_time(condition["lastTransitionTime"]) if condition.get("lastTransitionTime") else None


def _disruption_target(status: Manifest) -> Manifest:
    """The condition that announces the pod's end; empty if its end is not announced."""
    return _condition(status, DISRUPTION_TARGET) or _condition(status, TERMINATION_TARGET)


def _disruption(status: Manifest, state: Manifest) -> str:
    """Why the cluster, not the program, ended the pod; "" if it did not."""
    if condition := _disruption_target(status):
        return str(condition.get("reason") or "DisruptionTarget")[:LONGEST_REASON]
    reason = str(status.get("reason", ""))
    if reason in DISRUPTION_REASONS or reason.startswith(OUT_OF_RESOURCE_PREFIX):
        return reason[:LONGEST_REASON]
    lost = (state.get("terminated") or {}).get("reason", "")
    return lost if lost in NODE_REBOOT_REASONS else ""


def _kueue_message(status: Manifest) -> str:
    """Kueue's message about why it has taken the pod's quota back."""
    condition = _disruption_target(status)
    return str(condition.get("message", "")) if condition.get("type") == TERMINATION_TARGET else ""


def _failed_init(status: Manifest) -> tuple[str, str]:
    """Reason and message of the init container whose failure failed the pod; both empty if there is none."""
    if status.get("phase") != "Failed":
        return "", ""
    for init in status.get("initContainerStatuses") or ():
        ended = (init.get("state") or {}).get("terminated") or {}
        if code := ended.get("exitCode"):
            words = ended.get("message", "").strip().splitlines()[-1:] or [ended.get("reason", "")]
            return "InitContainerFailed", f"init container {init.get('name')}: exit code {code}: {words[0]}"
    return "", ""


def _waiting(status: Manifest, labels: Manifest) -> str:
    """What the pod waits for, in the words of the scheduler or the kubelet.

    The training container comes before side-cars: a pod whose side-car cannot start may still train.
    """
    if unplaced := _condition(status, "PodScheduled", "False"):
        if unplaced.get("reason") == GATED:
            return _gated_message(labels)
        return f"{UNSCHEDULABLE}{unplaced.get('message') or unplaced.get('reason', '')}"
    waiting = ((who, _waiting_reason(each)) for who, each in _containers(status))
    return next((f"{who}: {why}" for who, why in waiting if why), "")


def _containers(status: Manifest) -> list[tuple[str, Manifest]]:
    """The statuses of the pod's containers, with names for users: `init container x`, `container y`."""
    inits, containers = status.get("initContainerStatuses") or (), status.get("containerStatuses") or ()
    own_first = sorted(containers, key=lambda each: each.get("name") != CONTAINER)
    named = [(f"init container {each.get('name')}", each) for each in inits]
    return named + [(f"container {each.get('name')}", each) for each in own_first]


def _gated_message(labels: Manifest) -> str:
    """The message for a gated pod. The operator may not read Kueue's Workloads, but can name the one to look at."""
    more = f", see kubectl describe workload {group}" if (group := labels.get(QUEUE_GROUP)) else ""
    return f"{QUOTA_GATE}scheduling gated{more}"


def _waiting_reason(container: Manifest) -> str:
    waiting = (container.get("state") or {}).get("waiting") or {}
    reason, message = waiting.get("reason", ""), waiting.get("message", "")
    if reason in ("", "PodInitializing", "ContainerCreating"):
        return ""
    # The kubelet alternates between the two reasons; the cause is the same text in both.
    message = message.rpartition("ErrImagePull: ")[2]
    if reason in IMAGE_REASONS:
        return pull_failure(container.get("image", ""), message)
    return f"{reason}: {message}" if message else reason


def pull_failure(image: str, words: str) -> str:
    """The message about an image that cannot be pulled, with the kubelet's words."""
    return f"{PULL_FAILED} ({image}): {words}" if words else f"{PULL_FAILED} ({image})"
