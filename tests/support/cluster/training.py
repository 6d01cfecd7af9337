"""A TFTrainingJob on a real cluster, as a test or the demo follows it.

It looks and waits; what is done to the job is the caller's.
"""

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml

from testbed.kube import Kube
from testbed.shell import LabError
from tests.support.repository import REPOSITORY

Manifest = dict[str, Any]
EXAMPLE = REPOSITORY / "examples" / "multi-worker-digits.yaml"
LOOK_SECONDS = 0.25
# The type of node conditions for which the lab's operator lets pods leave a node.
SICK = "GpuEccError"
# The beginning of a program inside a container: `status` is what the launcher there serves.
_ASK = "import json, os, time, urllib.request as u; status = json.load(u.urlopen('http://127.0.0.1:8472/status')); "


@dataclass(frozen=True)
class Training:
    """One job of one namespace."""

    kube: Kube
    namespace: str
    name: str

    def job(self) -> Manifest:
        """The job as the API server has it."""
        found: Manifest = self.kube.get("tftrainingjob", self.name, "--namespace", self.namespace)
        return found

    def status(self) -> Manifest:
        """Its status; Pending before the operator has looked at it."""
        status: Manifest = self.job().get("status", {})
        return status

    def condition(self, kind: str) -> str:
        """The value of a condition; empty if it is not set."""
        return condition(self.status(), kind)

    def wait_for(self, what: str, holds: Callable[[Manifest], bool], seconds: float) -> Manifest:
        """Wait until the status is as wanted, and return it; LabError with the last one when that takes too long."""
        deadline = time.monotonic() + seconds
        while not holds(status := self.status()):
            if time.monotonic() > deadline:
                raise LabError(
                    f"{self.name}: not {what} after {seconds:.0f} s; its status is\n{yaml.safe_dump(status)}"
                )
            time.sleep(LOOK_SECONDS)
        return status

    def wait_for_phase(self, phase: str, seconds: float) -> Manifest:
        """Wait for a phase; LabError at once if the job ends in another way."""

        def holds(status: Manifest) -> bool:
            now = status.get("phase")
            if now != phase and now in ("Succeeded", "Failed"):
                raise LabError(f"{self.name}: {now} instead of {phase}:\n{yaml.safe_dump(status)}")
            return bool(now == phase)

        return self.wait_for(phase, holds, seconds)

    def pod(self, replica: str) -> str:
        """The name of a replica's pod."""
        return f"{self.name}-{replica}"

    def log(self, replica: str) -> str:
        """What a replica's pod has printed so far; empty while it has not started."""
        try:
            return self.kube.kubectl("logs", self.pod(replica), "--namespace", self.namespace, "--container=tensorflow")
        except LabError:
            return ""

    def wait_for_line(self, replica: str, pattern: str, seconds: float) -> str:
        """Wait until a line of a replica's log matches, and return it."""
        deadline = time.monotonic() + seconds
        while not (found := re.search(pattern, self.log(replica), re.MULTILINE)):
            if time.monotonic() > deadline:
                raise LabError(
                    f"{self.pod(replica)} did not print {pattern!r} in {seconds:.0f} s:\n{self.log(replica)}"
                )
            time.sleep(LOOK_SECONDS)
        return found.group()

    def launcher(self, replica: str) -> Manifest:
        """What a replica's launcher tells of itself."""
        found: Manifest = json.loads(self._inside(replica, _ASK + "print(json.dumps(status))"))
        return found

    def kill_program(self, replica: str) -> float:
        """Kill a replica's program, not its launcher; when that was, in CLOCK_MONOTONIC of this machine."""
        return float(self._inside(replica, _ASK + "os.kill(status['pid'], 9); print(time.monotonic())"))

    def _inside(self, replica: str, code: str) -> str:
        where = ("--namespace", self.namespace, self.pod(replica), "--container=tensorflow")
        return self.kube.kubectl("exec", *where, "--", "python", "-c", code)

    def change(self, spec: Manifest) -> None:
        """Change fields of the job's spec, the others stay."""
        words = ("--type=merge", "--patch", json.dumps({"spec": spec}))
        self.kube.kubectl("patch", "tftrainingjob", self.name, "--namespace", self.namespace, *words)

    def delete(self, replica: str) -> None:
        """Delete a replica's pod, and do not wait for its end."""
        self.kube.kubectl("delete", "pod", self.pod(replica), "--namespace", self.namespace, "--wait=false")

    def evict(self, replica: str) -> None:
        """Ask for the eviction of a replica's pod, as a drain does."""
        pod = {"name": self.pod(replica), "namespace": self.namespace}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": pod}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['name']}/eviction"
        self.kube.kubectl("create", "--raw", path, "--filename=-", stdin=json.dumps(eviction))

    def node(self, replica: str) -> str:
        """The name of the node that a replica's pod is on."""
        return str(self.kube.get("pod", self.pod(replica), "--namespace", self.namespace)["spec"]["nodeName"])

    @property
    def selector(self) -> str:
        """The labels of the job's pods."""
        return f"tftraining.dev/job-name={self.name}"

    def uids(self) -> dict[str, str]:
        """The UIDs of the job's training pods by name."""
        labels = f"{self.selector},tftraining.dev/role in (chief,worker)"
        pods = self.kube.get("pods", "--namespace", self.namespace, "--selector", labels)["items"]
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}


def condition(status: Manifest, kind: str) -> str:
    """The value of a condition in this status; empty if it is not set."""
    found = [each["status"] for each in status.get("conditions", []) if each["type"] == kind]
    return found[0] if found else ""


def example(image: str, *arguments: str, **changes: Any) -> Manifest:
    """The example manifest with the image of the test cluster, more arguments, and fields of its spec changed."""
    manifest: Manifest = yaml.safe_load(EXAMPLE.read_text())
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    container["image"] = image
    container["command"] += arguments
    manifest["spec"] |= changes
    return manifest


def local_storage(namespace: str, claim: str = "training") -> list[Manifest]:
    """A `local` PersistentVolume on the directory that all nodes share, and the claim on it."""
    name = f"{namespace}-{claim}"
    manifests = list(yaml.safe_load_all((REPOSITORY / "examples" / "storage" / "test-cluster.yaml").read_text()))
    volume, wish = manifests
    volume["metadata"]["name"] = wish["spec"]["volumeName"] = name
    volume["spec"]["claimRef"] = {"name": claim, "namespace": namespace}
    volume["spec"]["local"]["path"] = f"/shared/{name}"
    wish["metadata"] = {"name": claim, "namespace": namespace}
    return manifests
