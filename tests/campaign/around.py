"""Faults around the jobs: watches that tell nothing, a slow webhook, a short quota, and pods of others with odd fields.

Each lasts at least until the operator has looked at a new job of another namespace: what is wrong with one object, or
one namespace, holds up no other. It must never be healed before that, nor be left behind.
"""

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.kube import Kube
from testbed.shell import LabError
from tests.campaign import jobs
from tests.campaign.faults import CONTROL_PLANE, LOOK_SECONDS, patiently
from tests.campaign.plan import Strike
from tests.support.cluster.injector import configuration, webhook
from tests.support.cluster.training import Manifest, Training
from tests.support.control_plane.rude_proxy import RudeProxy

# An operator that is ready looks at every job long before; without scheduler or etcd no operator is ready for minutes.
LOOKED_AT_SECONDS, READY_SECONDS = 120, 600
DELAYS = (0.5, 3.0, 12.0)  # the API server waits for ten seconds, and refuses the pod
WEBHOOK = "ValidatingWebhookConfiguration"
GATE = {"schedulingGates": [{"name": "tests.tftraining.dev/never"}]}
ODD_GRACE = 99_999_999_999
ODD_TIME = "9999-12-31T23:59:59Z"
ODD_LABELS: Sequence[Manifest] = (
    {},
    {"tftraining.dev/attempt": "9" * 60},
    {"tftraining.dev/role": "wizard"},
    {"tftraining.dev/index": "9" * 20},
)
ODD_ANNOTATIONS = {
    "tftraining.dev/orders": "[" * 20_000,
    "tftraining.dev/gang": "9" * 400,
    "tftraining.dev/spec": "\x7f" * 100,
    "tftraining.dev/restartedAt": "9999-12-31T23:59:59-23:59",
}


class Wrong(Exception):
    """What the operator did, or did not do, during a fault."""


@dataclass(frozen=True)
class Around:
    """What these faults need: the operator's namespace and Deployment, its proxy, the jobs' namespace, another one, and
    where a webhook may run."""

    kube: Kube
    operator: tuple[str, str]
    proxy: RudeProxy
    namespace: str
    other: str
    address: str
    image: str

    def strike(self, training: Training, strike: Strike) -> str:
        """Do it; what was hit. Wrong if others had to suffer."""
        with self._fault(training, strike) as target:
            time.sleep(strike.seconds)
            self._others_go_on(strike.number)
        return target

    def _fault(self, training: Training, strike: Strike) -> AbstractContextManager[str]:
        table: dict[str, Callable[[], AbstractContextManager[str]]] = {
            "pods-watch-stale": lambda: self._stale("/pods"),
            "nodes-watch-stale": lambda: self._stale("/nodes"),
            "webhook-slow": lambda: self._webhook(DELAYS[int(strike.aim * len(DELAYS))]),
            "quota-short": lambda: self._quota(int(strike.aim * 3)),
            "pods-of-others": lambda: self._pods_of_others(training, strike),
        }
        return table[strike.kind]()

    def _others_go_on(self, number: str) -> None:
        """A job of another namespace is looked at meanwhile, whatever strikes the servers and operators just now."""
        job = jobs.manifest(f"other-{number}", "fit", self.image, "none")
        job["metadata"]["namespace"] = self.other
        job["spec"]["runPolicy"]["suspend"] = True
        patiently(lambda: self.kube.apply(job))
        other = Training(self.kube, self.other, job["metadata"]["name"])
        began = ready = time.monotonic()
        while _phase(other) != "Suspended":
            now = time.monotonic()
            ready = ready if self._is_ready() else now
            if now > ready + LOOKED_AT_SECONDS or now > began + READY_SECONDS:
                raise Wrong(f"no job of another namespace was looked at for {now - began:.0f} s")
            time.sleep(LOOK_SECONDS)

    def _is_ready(self) -> bool:
        namespace, name = self.operator
        with suppress(LabError):
            status = self.kube.get("deployment", name, "--namespace", namespace)["status"]
            return bool(status.get("readyReplicas"))
        return False

    @contextmanager
    def _stale(self, path: str) -> Iterator[str]:
        """No operator is told of what happens to these objects, nor that its watch is silent."""
        self.proxy.frozen = path
        try:
            yield f"the watches of {path}"
        finally:
            self.proxy.frozen = None

    @contextmanager
    def _webhook(self, seconds: float) -> Iterator[str]:
        """Each new pod of the jobs' namespace waits so long for a webhook, which has no objections."""

        def answer(request: Manifest) -> Manifest:
            time.sleep(seconds)
            return {"uid": request["uid"], "allowed": True}

        name = f"slow-{self.namespace}"
        with (
            tempfile.TemporaryDirectory(prefix="tftraining-webhook-") as folder,
            webhook(self.address, answer, Path(folder)) as client,
        ):
            try:
                patiently(lambda: self.kube.apply(configuration(WEBHOOK, name, client, self.namespace)))
                yield f"{seconds:g} s for each pod"
            finally:
                patiently(lambda: self.kube.kubectl("delete", WEBHOOK, name, "--ignore-not-found"))

    @contextmanager
    def _quota(self, fewer: int) -> Iterator[str]:
        """The jobs' namespace may have no more pods than it has, or even fewer."""
        most = max(0, len(self._pods(self.namespace)) - fewer)
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "short", "namespace": self.namespace},
            "spec": {"hard": {"pods": str(most)}},
        }
        try:
            patiently(lambda: self.kube.apply(quota))
            yield f"{most} pods"
        finally:
            self._delete("resourcequota", "short", self.namespace)

    @contextmanager
    def _pods_of_others(self, training: Training, strike: Strike) -> Iterator[str]:
        """Another client makes pods with a job's labels: here and elsewhere, one with the job as its owner, one that
        is being deleted for three thousand years. Those that the job does not own are left alone."""
        job = training.job()
        labels = ODD_LABELS[int(strike.aim * len(ODD_LABELS))]
        here, there = (odd_pod(job, f"odd-{strike.number}", each, labels) for each in (self.namespace, self.other))
        owned = odd_pod(job, f"odd-{strike.number}-worker-7", self.namespace, {"tftraining.dev/index": "7"})
        owned["metadata"]["ownerReferences"] = [_owner(job)]
        going = odd_pod(job, f"odd-{strike.number}-going", self.namespace, labels)
        del going["spec"]["schedulingGates"]
        going["spec"]["nodeName"] = self._worker()  # otherwise it is gone at once
        going["spec"]["containers"][0]["image"] = self.image
        made = (here, there, owned, going)
        try:
            patiently(lambda: self.kube.apply(*made))
            for pod in (here, there, owned):
                patiently(lambda: self._tell_odd_status(pod))  # noqa: B023
            self._delete("pod", going["metadata"]["name"], self.namespace)
            before = [self._pod(pod) for pod in (here, there)]
            yield f"{len(made)} pods with the labels of {training.name}"
            if (after := [self._pod(pod) for pod in (here, there)]) != before:
                raise Wrong(f"pods of others were touched: {before} became {after}")
        finally:
            for pod in made:
                self._delete(
                    "pod", pod["metadata"]["name"], pod["metadata"]["namespace"], "--force", "--grace-period=0"
                )

    def _tell_odd_status(self, pod: Manifest) -> None:
        """As no kubelet would: times of the year 9999, counts of two thousand million."""
        ended = {"exitCode": 2**31 - 1, "startedAt": "0001-01-01T00:00:01Z", "finishedAt": ODD_TIME}
        container = {"name": "tensorflow", "image": "", "imageID": "", "ready": True, "restartCount": 2**31 - 1}
        condition = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": ODD_TIME, "reason": "Odd"}
        status = {
            "phase": "Running",
            "startTime": ODD_TIME,
            "podIP": "127.0.0.1",
            "conditions": [condition],
            "containerStatuses": [container | {"state": {"terminated": ended}, "lastState": {"terminated": ended}}],
        }
        meta = pod["metadata"]
        words = ("--namespace", meta["namespace"], "--subresource=status", "--patch", json.dumps({"status": status}))
        try:
            self.kube.kubectl("patch", "pod", meta["name"], *words)
        except LabError as error:
            if "NotFound" not in str(error):  # the job's owner may remove what the job owns
                raise

    def _worker(self) -> str:
        found: list[Manifest] = []
        patiently(lambda: found.extend(self.kube.get("nodes", f"--selector=!{CONTROL_PLANE}")["items"]))
        return str(found[0]["metadata"]["name"])

    def _pods(self, namespace: str) -> list[Manifest]:
        found: list[Manifest] = []
        patiently(lambda: found.extend(self.kube.get("pods", "--namespace", namespace)["items"]))
        return found

    def _pod(self, pod: Manifest) -> Any:
        """What nobody but its maker changes of a pod; None if it is gone."""
        found = {each["metadata"]["name"]: each["metadata"] for each in self._pods(pod["metadata"]["namespace"])}
        meta = found.get(pod["metadata"]["name"])
        return meta and {name: meta.get(name) for name in ("uid", "labels", "annotations", "deletionTimestamp")}

    def _delete(self, kind: str, name: str, namespace: str, *words: str) -> None:
        here = ("--namespace", namespace, "--ignore-not-found", "--wait=false")
        patiently(lambda: self.kube.kubectl("delete", kind, name, *here, *words))


def odd_pod(job: Manifest, name: str, namespace: str, labels: Manifest) -> Manifest:
    """A pod that nobody schedules, with the labels of a job's first worker but for those given."""
    attempt = str(job.get("status", {}).get("attempt", 1))
    own = {"job-name": job["metadata"]["name"], "role": "worker", "index": "0", "attempt": attempt}
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {"name": "tensorflow", "image": "odd", "command": ["sleep", "3600"], "securityContext": security}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {f"tftraining.dev/{key}": value for key, value in own.items()} | labels,
            "annotations": ODD_ANNOTATIONS,
        },
        "spec": {"terminationGracePeriodSeconds": ODD_GRACE, "containers": [container], **GATE},
    }


def _owner(job: Manifest) -> Manifest:
    meta = job["metadata"]
    named = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": meta["name"], "uid": meta["uid"]}
    return named | {"controller": True, "blockOwnerDeletion": False}


def _phase(training: Training) -> str:
    with suppress(LabError):
        return str(training.status().get("phase"))
    return ""
