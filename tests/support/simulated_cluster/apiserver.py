"""A simulated API server for one job, its children and their nodes, on raw manifests.

It holds clients to what the real one does: the job's resourceVersion, names that are taken, UID preconditions, deletion
with grace, times of whole seconds. Never decides anything about jobs.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from tftraining_api.model.job import patched_conditions, replaced_status
from tftraining_api.model.spec import Manifest
from tftraining_api.model.status import Condition, Status
from tftraining_operator.cluster.child_store import ChildStore
from tftraining_operator.plan.refused_writes import KEY_GONE

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
DONE = ("Succeeded", "Failed")


def stamp(time: datetime) -> str:
    """A time as Kubernetes writes it: whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def over_the_wire(value: Any) -> Any:
    """The value as somebody else reads it: a copy, of what JSON can say."""
    return msgspec.json.decode(msgspec.json.encode(value))


class Rejected(Exception):
    """The API server's answer to a request that it does not carry out."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


@dataclass
class Snapshot:
    """What the operator has seen, and keeps: a copy, as old as it is."""

    job: Manifest
    pods: list[Manifest]
    services: list[Manifest]
    nodes: list[Manifest] | None = None


@dataclass
class ApiServer:
    """One job with its children. `refusals` maps a child, such as `pod/mnist-worker-1`, to a status and message.

    `nodes_readable` is whether the operator has the right to read nodes.
    """

    job: Manifest
    now: datetime = START
    pods: dict[str, Manifest] = field(default_factory=dict)
    services: dict[str, Manifest] = field(default_factory=dict)
    nodes: dict[str, Manifest] = field(default_factory=dict)
    nodes_readable: bool = True
    auxiliary_objects: dict[str, Manifest] = field(default_factory=dict)
    secrets: dict[str, int] = field(default_factory=dict)
    refusals: dict[str, tuple[int, str]] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)
    gone: bool = False
    finalizer_of: Callable[[Manifest], str] = lambda _: ""  # a webhook gives it to a new pod
    _number: int = 0

    def __post_init__(self) -> None:
        self.job["metadata"]["resourceVersion"] = str(self._next_number())

    def snapshot(self) -> Snapshot:
        """What a client sees now."""
        nodes = list(self.nodes.values()) if self.nodes_readable else None
        pods = [ChildStore.lean(each) for each in self.pods.values()]
        return Snapshot(*over_the_wire((self.job, pods, list(self.services.values()), nodes)))

    def put_status(self, version: str, status: Status) -> None:
        """Replace the job's status, if nobody else has changed the job since `version`."""
        if version != self.job["metadata"]["resourceVersion"]:
            raise Rejected(409, "the object has been modified")
        self.job["status"] = over_the_wire(replaced_status(self.job.get("status"), status))
        self._touch("status")

    def patch_condition(self, version: str, condition: Condition) -> None:
        """Merge the condition into the job's status, if nobody else has changed the job since `version`."""
        if version != self.job["metadata"]["resourceVersion"]:
            raise Rejected(409, "the object has been modified")
        patch = patched_conditions(self.job.get("status"), condition)
        self.job["status"] = over_the_wire({**self.job.get("status", {}), **patch})
        self._touch("condition")

    def edit(self, path: str, value: Any) -> None:
        """A person changes a field of the job's spec."""
        *parents, last = path.split(".")
        place = self.job["spec"]
        for each in parents:
            place = place.setdefault(each, {})
        place[last] = value
        self.job["metadata"]["generation"] += 1
        self._touch("edit")

    def create_pod(self, manifest: Manifest) -> None:
        """Create a pod. Raises Rejected, with 409 if its name is taken."""
        self._create("pod", self.pods, manifest, {"phase": "Pending"})

    def create_service(self, manifest: Manifest) -> None:
        """Create a Service. Raises Rejected, with 409 if its name is taken."""
        self._create("service", self.services, manifest, {})

    def create_secret(self, manifest: Manifest) -> None:
        """Create a Secret with a key of its own, here a number, if there is none of that name."""
        name = manifest["metadata"]["name"]
        if name not in self.secrets:
            self.secrets[name] = self._next_number()
            self.writes.append(f"create secret/{name}")

    def verify_secret(self, manifest: Manifest) -> None:
        """Raises Rejected if the Secret is not there."""
        if manifest["metadata"]["name"] not in self.secrets:
            raise Rejected(410, KEY_GONE)

    def ensure_auxiliary_object(self, manifest: Manifest) -> None:
        """Create what stands beside the pods, by kind and name, or bring its spec up to date. Raises Rejected."""
        child = f"{manifest['kind'].lower()}/{manifest['metadata']['name']}"
        if child in self.refusals:
            raise Rejected(*self.refusals[child])
        self.auxiliary_objects[child] = over_the_wire(manifest)
        self.writes.append(f"ensure {child}")

    def delete_auxiliary_object(self, manifest: Manifest) -> None:
        """Delete it, if it is there."""
        child = f"{manifest['kind'].lower()}/{manifest['metadata']['name']}"
        if self.auxiliary_objects.pop(child, None) is not None:
            self.writes.append(f"delete {child}")

    def delete_service(self, name: str) -> None:
        """Delete a Service: it is gone at once."""
        if self.services.pop(name, None) is not None:
            self.writes.append(f"delete service/{name}")

    def delete_job(self, version: str) -> None:
        """Delete the job, if nobody else has changed it since `version`; a test looks at `gone`."""
        if version != self.job["metadata"]["resourceVersion"]:
            raise Rejected(409, "the object has been modified")
        self.gone = True
        self.job["metadata"]["deletionTimestamp"] = stamp(self.now)
        self._touch("delete job")

    def delete_pod(self, name: str, grace: int | None, uid: str | None = None) -> None:
        """Ask for the end of a pod, within its own grace if None is given; one that is done or was never placed is gone
        at once. Raises Rejected."""
        pod = self.pods.get(name)
        if pod is None:
            raise Rejected(404, f"{name} not found")
        if uid not in (None, pod["metadata"]["uid"]):
            raise Rejected(409, f"{name} has another UID")
        self.writes.append(f"delete pod/{name}")
        grace = pod["spec"]["terminationGracePeriodSeconds"] if grace is None else grace
        grace = 0 if pod["status"]["phase"] in DONE or "nodeName" not in pod["spec"] else grace
        if grace == 0 and "finalizers" not in pod["metadata"]:
            del self.pods[name]
        elif grace < pod["metadata"].get("deletionGracePeriodSeconds", grace + 1):
            enforced = stamp(self.now + timedelta(seconds=grace))
            pod["metadata"] |= {"deletionTimestamp": enforced, "deletionGracePeriodSeconds": grace}

    def fail_pod(self, name: str, uid: str) -> None:
        """Declare a pod Failed. Raises Rejected."""
        pod = self.pods.get(name)
        if pod is None or pod["metadata"]["uid"] != uid:
            raise Rejected(404 if pod is None else 409, name)
        self.writes.append(f"end pod/{name}")
        pod["status"]["phase"] = "Failed"

    def annotate_pod(self, name: str, seen: tuple[str, str], values: dict[str, str]) -> None:
        """Give annotations to a pod with that UID and resourceVersion. Raises Rejected."""
        pod = self.pods.get(name)
        if pod is None or (pod["metadata"]["uid"], pod["metadata"]["resourceVersion"]) != seen:
            raise Rejected(404 if pod is None else 409, name)
        self.writes.append(f"annotate pod/{name}")
        pod["metadata"].setdefault("annotations", {}).update(values)
        pod["metadata"]["resourceVersion"] = str(self._next_number())

    def _create(self, kind: str, held: dict[str, Manifest], manifest: Manifest, status: Manifest) -> None:
        name = manifest["metadata"]["name"]
        child = f"{kind}/{name}"
        if child in self.refusals:
            raise Rejected(*self.refusals[child])
        if name in held:
            raise Rejected(409, f"{child} already exists")
        made = over_the_wire(manifest) | {"status": over_the_wire(status)}
        identity = {"uid": f"uid-{self._next_number()}", "resourceVersion": "1", "creationTimestamp": stamp(self.now)}
        made["metadata"] |= identity
        if kind == "pod" and (finalizer := self.finalizer_of(made)):
            made["metadata"]["finalizers"] = [finalizer]
        held[name] = made
        self.writes.append(f"create {child}")

    def _next_number(self) -> int:
        """One number for whatever needs one of its own; an itertools.count could not be copied with this object."""
        self._number += 1
        return self._number

    def _touch(self, what: str) -> None:
        self.job["metadata"]["resourceVersion"] = str(self._next_number())
        self.writes.append(what)
