"""One TFTrainingJob on the API server, and the hand of a kubelet for its pods: there is no node, so the tests say what
becomes of each pod.

It must never write what the operator writes: neither the job's status nor a child, but for the pods' own status.
"""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from testbed.shell import LabError
from tests.support.control_plane.apiserver import ControlPlane, WriteRefused
from tests.support.control_plane.chief_launcher import JOBS as JOBS_BY_ADDRESS
from tests.support.control_plane.manifests import Manifest, changed, minimal

Found = TypeVar("Found")
JOBS = "/apis/tftraining.dev/v1/namespaces/{}/tftrainingjobs"
# Of a busy machine: an operator asks a launcher that has no news every 15 s only, and writes its progress 10 s later.
SECONDS = 60.0
UNTOUCHED = {"phase": "Pending", "observedGeneration": -1}  # the status as long as no operator has looked


def wait_until(check: Callable[[], Found], what: str, seconds: float = SECONDS) -> Found:
    """Return the first true answer of `check`; AssertionError with the last one if there is none in time."""
    deadline = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}; last seen: {found!r}"
        time.sleep(0.03)
    return found


class NewJob(Protocol):
    """Applies a job; a change is named by its path in the manifest, with `__` between the names."""

    def __call__(self, name: str = "job", /, **changes: object) -> "TrainingJob":
        """Apply it and return it."""
        ...


class TrainingJob:
    """A job of that name, whether it is there or not."""

    def __init__(self, plane: ControlPlane, namespace: str, name: str = "job") -> None:
        self.plane = plane
        self.namespace = namespace
        self.name = name
        self._core = f"/api/v1/namespaces/{namespace}"

    def create(self, changes: dict[str, object] | None = None) -> None:
        """Create it: two workers without storage and without launchers, unless changed."""
        manifest = changed(minimal(self.name), changes or {})
        manifest["spec"].setdefault("restartPolicy", {}).setdefault("mode", "Recreate")
        self.plane.request("POST", JOBS.format(self.namespace), manifest)

    def delete(self) -> None:
        """Delete it, as kubectl does: what it owns goes later, if garbage collection runs."""
        self.plane.request("DELETE", f"{JOBS.format(self.namespace)}/{self.name}")

    def patch(self, change: Manifest, subresource: str = "") -> None:
        """Merge a change into it."""
        path = f"{JOBS.format(self.namespace)}/{self.name}{subresource}"
        self.plane.request("PATCH", path, change, "application/merge-patch+json")

    def raw(self) -> Manifest:
        """The object."""
        return self.plane.request("GET", f"{JOBS.format(self.namespace)}/{self.name}")

    def status(self) -> Manifest:
        """The status."""
        status: Manifest = self.raw().get("status") or {}
        return status

    def condition(self, kind: str) -> Manifest:
        """The condition of that type; empty if there is none."""
        found = [each for each in self.status().get("conditions", ()) if each["type"] == kind]
        return found[0] if found else {}

    def wait_for(self, phase: str, seconds: float = SECONDS, **also: Any) -> Manifest:
        """Wait for a phase, and for fields of the status to have these values; return the status."""
        wanted = {"phase": phase, **also}
        last: Manifest = {}

        def reached() -> Manifest | None:
            nonlocal last
            last = self.status()
            return last if all(last.get(name) == value for name, value in wanted.items()) else None

        try:
            return wait_until(reached, f"{self.name} with {wanted}", seconds) or {}
        except AssertionError as error:
            raise AssertionError(f"{error}: {last}") from None

    def objects(self, kind: str) -> dict[str, Manifest]:
        """All objects of that kind (`pods`, `services`) in the namespace, by name."""
        return {each["metadata"]["name"]: each for each in self.plane.request("GET", f"{self._core}/{kind}")["items"]}

    def pods(self, attempt: int | None = None) -> dict[str, Manifest]:
        """The pods that carry the job's label, by name; of one attempt only if it is named."""
        labels = {"tftraining.dev/job-name": self.name}
        if attempt is not None:
            labels["tftraining.dev/attempt"] = str(attempt)
        selector = "%2C".join(f"{name}%3D{value}" for name, value in labels.items())
        pods = self.plane.request("GET", f"{self._core}/pods?labelSelector={selector}")["items"]
        return {each["metadata"]["name"]: each for each in pods}

    def wait_for_pods(self, attempt: int, count: int = 2, seconds: float = SECONDS) -> dict[str, Manifest]:
        """Wait until the job has exactly so many pods, all of that attempt."""

        def there() -> dict[str, Manifest]:
            pods = self.pods(attempt)
            return pods if len(pods) == len(self.pods()) == count else {}

        try:
            return wait_until(there, f"{count} pods of attempt {attempt} of {self.name}", seconds)
        except AssertionError as error:
            kept = ("uid", "labels", "deletionTimestamp", "deletionGracePeriodSeconds", "finalizers")
            pods = {
                name: {key: pod["metadata"].get(key) for key in kept} | {"status": pod.get("status")}
                for name, pod in self.pods().items()
            }
            raise AssertionError(f"{error}: the pods are {pods}, the status is {self.status()}") from None

    def keras(self) -> list[str | None]:
        """What the launcher of each pod is told of Keras, by the pods' names."""
        environments = [pod["spec"]["containers"][0]["env"] for _, pod in sorted(self.pods().items())]
        settings = [{each["name"]: each.get("value") for each in one}["TFTRAINING_LAUNCHER"] for one in environments]
        return [json.loads(each).get("keras") for each in settings]

    def run(self, attempt: int = 1, count: int = 2) -> dict[str, Manifest]:
        """Wait for the pods of the attempt, let them all run, wait for the phase Running; return the pods."""
        pods = self.wait_for_pods(attempt, count)
        for name in pods:
            self.run_pod(name)
        self.wait_for("Running", attempt=attempt)
        return pods

    def run_pod(self, name: str) -> None:
        """The pod's container runs and is ready."""
        self._container(name, "Running", {"running": {"startedAt": _now()}}, ready=True)

    def place_pod(self, name: str, ip: str) -> None:
        """The pod has an address, such as that of a `ChiefLauncher`."""
        self.patch_pod(name, {"status": {"podIP": ip, "podIPs": [{"ip": ip}]}}, "/status")

    def fail_pod(self, name: str, exit_code: int = 1, message: str = "", reason: str = "Error") -> None:
        """The pod's container ends with that code, and with that termination message."""
        ended = {"exitCode": exit_code, "reason": reason, "message": message, "finishedAt": _now()}
        self._container(name, "Failed", {"terminated": ended})

    def succeed_pod(self, name: str, message: str = "") -> None:
        """The pod's container ends with 0."""
        ended = {"exitCode": 0, "reason": "Completed", "message": message, "finishedAt": _now()}
        self._container(name, "Succeeded", {"terminated": ended})

    def bind_pod(self, name: str, node: str = "node-1") -> None:
        """Give the pod a node: from now on a deletion waits for the kubelet (`remove_pod`)."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        self.plane.request("POST", f"{self._core}/pods/{name}/binding", body)

    def delete_pod(self, name: str) -> None:
        """Ask for the pod's end, as a person or a drain does."""
        self.plane.request("DELETE", f"{self._core}/pods/{name}", {"gracePeriodSeconds": 1})

    def remove_pod(self, name: str) -> None:
        """The pod is gone, at once. Garbage collection may have been faster: it runs once a test has asked for it."""
        try:
            self.plane.request("DELETE", f"{self._core}/pods/{name}", {"gracePeriodSeconds": 0})
        except WriteRefused as error:
            if error.code != 404:
                raise

    def patch_pod(self, name: str, change: Manifest, subresource: str = "") -> None:
        """Merge a change into the pod. A launcher on its address knows its job from then on."""
        if ip := (change.get("status") or {}).get("podIP"):
            JOBS_BY_ADDRESS[ip] = self.raw()["metadata"]["uid"]
        self.plane.request("PATCH", f"{self._core}/pods/{name}{subresource}", change, "application/merge-patch+json")

    def events(self) -> list[tuple[str, str, str]]:
        """Type, reason and message of each event about the job, in order."""
        events = self.plane.request("GET", f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")["items"]
        own = [each for each in events if each["regarding"]["name"] == self.name]
        own.sort(key=lambda each: str(each["eventTime"]))
        return [(each["type"], each["reason"], each["note"]) for each in own]

    def is_gone(self) -> bool:
        """Whether the job is not there any more."""
        try:
            self.raw()
        except LabError as error:
            return ": 404 " in str(error)
        return False

    def _container(self, name: str, phase: str, state: Manifest, ready: bool = False) -> None:
        container = "cleanup" if name == f"{self.name}-cleanup" else "tensorflow"
        entry = {"name": container, "image": "x", "imageID": "x", "restartCount": 0, "ready": ready, "state": state}
        self.patch_pod(name, {"status": {"phase": phase, "containerStatuses": [entry]}}, "/status")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
