"""The planner in a simulated cluster with a clock that only tests move.

The operator here does what the real one does: parse, plan, status first (refused if the snapshot of the job is
outdated), then the children. Every plan is held to the invariants of the planner, whatever the test is about. Never
sleeps.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Self

import msgspec

from tests.support.simulated_cluster.apiserver import DONE, ApiServer, Rejected, Snapshot
from tests.support.simulated_cluster.builders import JobBuilder
from tests.support.simulated_cluster.invariants import hold_invariants
from tests.support.simulated_cluster.kubelet import Kubelet
from tests.support.simulated_cluster.kueue import SimulatedKueue
from tests.support.simulated_cluster.launchers import SimulatedLaunchers
from tests.support.simulated_cluster.nodes import SimulatedNodes
from tftraining.launch.roles import GANG_ROLES
from tftraining_api.manifests.network_policy import OperatorSelector
from tftraining_api.model.job import Job, parse_job
from tftraining_api.model.names import LABEL_ATTEMPT, LABEL_INDEX, LABEL_ROLE
from tftraining_api.model.spec import Manifest
from tftraining_api.model.status import Status
from tftraining_operator.model.leftovers import leaving_pods, leftovers, of_earlier
from tftraining_operator.model.node import Node, Nodes, parse_node, steady_since
from tftraining_operator.model.observed import (
    LauncherReport,
    Observed,
    QuotaHold,
    Refusal,
    StorageUse,
    owned_by,
    parse_child,
    pods_of,
)
from tftraining_operator.plan.planner import plan
from tftraining_operator.plan.refused_writes import judge, reworded
from tftraining_operator.plan.status_writes import can_wait
from tftraining_operator.plan.step import Event, Step

IMAGE = "operator:1"
MOST_PASSES = 60
READ_ONLY = "look at "  # what changes nothing
CHANGES = ("DELETE ", "PATCH ")  # what asks for no child
FOREIGN = "already exists and does not belong to this job"

Write = tuple[str, Callable[[], None]]


class SimulatedCluster:
    """A job, its cluster and its operator. `trajectory` holds each status written, as `Phase ready reason`."""

    def __init__(self, job: JobBuilder) -> None:
        self.api = ApiServer(job.raw())
        self.nodes = SimulatedNodes(self.api)
        self.kueue = SimulatedKueue(self.api)
        self.kubelet = Kubelet(self.api, self.nodes, self.kueue)
        self.launched = "InPlace" in str(job.raw()["spec"].get("restartPolicy"))
        self.launchers = SimulatedLaunchers(self.api, self.nodes, self.kubelet)
        self.launcher_report: LauncherReport | None = None
        self.launcher_silent = False
        self.events: list[Event] = []
        self.trajectory: list[str] = []
        self.timer: datetime | None = None
        self.refusal: Refusal | None = None
        self.refused_changes: dict[str, Refusal] = {}
        self.noticed: dict[str, datetime] = {}
        self.operator_selector: OperatorSelector | None = None
        self.storage = StorageUse()
        self.quota: QuotaHold | None = None
        self.departs_from: datetime | None = None

    @property
    def now(self) -> datetime:
        return self.api.now

    @property
    def status(self) -> Status:
        return parse_job(self.api.job).status

    @property
    def pods(self) -> list[str]:
        """The names of the pods that exist, without the job's."""
        prefix = f"{self.api.job['metadata']['name']}-"
        return sorted(name.removeprefix(prefix) for name in self.api.pods)

    def name(self, short: str) -> str:
        return f"{self.api.job['metadata']['name']}-{short}"

    def attempts(self) -> set[str]:
        """The attempt labels of the job's pods that exist; an evaluator may outlive an attempt."""
        uid = self.api.job["metadata"]["uid"]
        labels = [pod["metadata"]["labels"] for pod in self.api.pods.values() if owned_by(pod, uid)]
        return {each[LABEL_ATTEMPT] for each in labels if each[LABEL_ROLE] != "evaluator"}

    def live_places(self) -> list[tuple[str, str]]:
        """Role and index of each of the job's pods whose program may run."""
        uid = self.api.job["metadata"]["uid"]
        alive = [pod for pod in self.api.pods.values() if owned_by(pod, uid) and pod["status"]["phase"] not in DONE]
        labels = [pod["metadata"]["labels"] for pod in alive]
        return [(each[LABEL_ROLE], each[LABEL_INDEX]) for each in labels if LABEL_INDEX in each]

    # --- the operator

    def observe(self, snapshot: Snapshot) -> tuple[Job, Observed]:
        """The observation that the operator makes of a snapshot."""
        job = parse_job(snapshot.job)
        service = any(
            each["metadata"]["name"] == job.key.name and owned_by(each, job.uid) for each in snapshot.services
        )
        pods, services = [[parse_child(each) for each in kind] for kind in (snapshot.pods, snapshot.services)]
        left = of_earlier(job, pods)
        return job, Observed(
            pods=pods_of(pods, job.uid),
            service=service,
            refusal=self.refusal,
            refused_changes=self.refused_changes,
            launcher_report=self.launcher_report,
            launcher_silent=self.launcher_silent,
            nodes=None if snapshot.nodes is None else self.nodes_of(snapshot.pods, snapshot.nodes),
            leftovers=(*leftovers(job, "service", of_earlier(job, services)), *leftovers(job, "pod", left)),
            earlier=leaving_pods(left),
            storage=self.storage,
            quota=self.quota,
            departs_from=self.departs_from,
        )

    def plan(self, snapshot: Snapshot | None = None) -> Step:
        """The step that the operator would take, given the present cluster or an earlier `snapshot`."""
        job, observed = self.observe(snapshot or self.api.snapshot())
        step = plan(job, observed, self.now, IMAGE, self.operator_selector)
        hold_invariants(job, observed, step, self.now)
        return step

    def step(self, snapshot: Snapshot | None = None, writes: int | None = None, soon: bool = False) -> bool:
        """One pass; whether it changed anything. After `writes` writes the operator crashes and forgets everything.

        In a pass that comes `soon` after another a status is not written yet that can wait.
        """
        snapshot = snapshot or self.api.snapshot()
        step = self.plan(snapshot)
        self.timer = step.requeue_at
        old = parse_job(snapshot.job).status
        kept = step.status == old or (soon and can_wait(old, step.status))
        if kept and self._outdated(snapshot, step):
            return False
        done, wanted = 0, set(step.held_writes)
        before = len(self.api.writes)
        for write in self._writes(snapshot, step, kept):
            if done == writes:
                break
            wanted.add(write[0])
            going_on = self._carry_out(write)
            done += not (going_on and write[0].startswith(READ_ONLY))
            if not going_on:
                break
        self.refused_changes = {each: old for each, old in self.refused_changes.items() if each in wanted}
        if writes is not None:
            self.forget()
        return len(self.api.writes) != before or done > 0

    def forget(self) -> None:
        """Another operator leads: it knows only what is in the cluster, and what a standby has seen of the nodes."""
        self.refusal, self.timer, self.launcher_report, self.launcher_silent = None, None, None, False
        self.refused_changes = {}

    def settle(self) -> Self:
        """Passes until one has nothing to do."""
        for _ in range(MOST_PASSES):
            if not self.step():
                return self
        raise AssertionError(f"no fixpoint after {MOST_PASSES} passes: {self.api.writes[-10:]}")

    def run(self) -> Self:
        """The operator and healthy kubelets, until neither has anything to do at this time."""
        for _ in range(MOST_PASSES):
            self.settle()
            removed, started = self.kubelet.remove_deleted(), self.kubelet.start_all(self.launched)
            if not removed and not started and not self.poll_launchers():
                return self
        raise AssertionError(f"no fixpoint: {self.api.writes[-10:]}")

    def poll_launchers(self) -> bool:
        """The launchers act, if there are any, and the operator asks the chief's; whether that brings anything new."""
        if not self.launched:
            return False
        acted, before = self.launchers.tick(), self.launcher_report
        self.launcher_report = self.launchers.last_report()
        return acted or self.launcher_report != before

    def wait(self, seconds: float) -> Self:
        """Let time pass; nobody acts in it, but the operator's watch of nodes goes on."""
        self.nodes_of([], list(self.api.nodes.values()))
        self.api.now += timedelta(seconds=seconds)
        return self

    def run_timers(self, most: int = 50) -> Self:
        """Run, and each time that nothing is left to do go on to the operator's next timer."""
        for _ in range(most):
            self.run()
            if self.timer is None or self.timer <= self.now:
                return self
            self.api.now = self.timer
        raise AssertionError(f"still waiting after {most} timers")

    # --- what programs and people do

    def exit(self, *pods: str, code: int = 1, reason: str = "", message: str = "") -> Self:
        for each in pods:
            self.kubelet.exit(self.name(each), code, reason, message)
        return self

    def delete(self, *pods: str, grace: int = 30) -> Self:
        """A person or a drain deletes the pods."""
        for each in pods:
            self.api.delete_pod(self.name(each), grace)
        return self

    # --- internals

    def _outdated(self, snapshot: Snapshot, step: Step) -> bool:
        """Whether children would be touched for a job that has changed: the operator asks the API server before."""
        versions = {each["metadata"]["resourceVersion"] for each in (snapshot.job, self.api.job)}
        return step.touches_children and len(versions) > 1

    def _writes(self, snapshot: Snapshot, step: Step, kept: bool) -> Iterator[Write]:
        api, job = self.api, parse_job(snapshot.job)
        if not kept:
            version, condition = snapshot.job["metadata"]["resourceVersion"], step.patch_condition
            put = partial(api.put_status, version, step.status)
            yield "status", put if condition is None else partial(api.patch_condition, version, condition)
            self._record_events(step)
        for each in step.delete_pods:
            yield f"DELETE pod/{each.name}", partial(api.delete_pod, each.name, each.grace, each.uid)
        for failure in step.fail_pods:
            yield f"PATCH pod/{failure.name}/status", partial(api.fail_pod, failure.name, failure.uid)
        if (wanted := step.annotate_pod) is not None:
            annotate = partial(api.annotate_pod, wanted.name, (wanted.uid, wanted.version), wanted.values)
            yield f"PATCH pod/{wanted.name}", annotate
        if step.delete_job:
            version = snapshot.job["metadata"]["resourceVersion"]
            yield f"DELETE tftrainingjob/{job.key.name}", partial(api.delete_job, version)
        for auxiliary_object in step.delete_auxiliary_objects:
            kind, name = auxiliary_object["kind"].lower(), auxiliary_object["metadata"]["name"]
            yield f"DELETE {kind}/{name}", partial(api.delete_auxiliary_object, auxiliary_object)
        beside = [f"DELETE {each['kind'].lower()}/{each['metadata']['name']}" for each in step.delete_auxiliary_objects]
        if step.delete_service and not any(each in self.refused_changes for each in beside):
            yield f"DELETE service/{job.key.name}", partial(api.delete_service, job.key.name)
        if (service := step.create_service) is not None:
            yield f"service/{service['metadata']['name']}", partial(api.create_service, service)
        for auxiliary_object in step.auxiliary_objects:
            kind, name = auxiliary_object["kind"].lower(), auxiliary_object["metadata"]["name"]
            yield f"{kind}/{name}", partial(api.ensure_auxiliary_object, auxiliary_object)
        if (secret := step.create_secret) is not None:
            there = READ_ONLY if secret["metadata"]["name"] in api.secrets else ""
            yield f"{there}secret/{secret['metadata']['name']}", partial(api.create_secret, secret)
        if (secret := step.verify_secret) is not None:
            yield f"{READ_ONLY}secret/{secret['metadata']['name']}", partial(api.verify_secret, secret)
        for pod in step.create_pods:
            yield f"pod/{pod['metadata']['name']}", partial(self._create_pod, pod)

    def _create_pod(self, pod: Manifest) -> None:
        """Create the pod; what is held against the plan in the invariants is held here against what really is."""
        labels = pod["metadata"]["labels"]
        if labels[LABEL_ROLE] in GANG_ROLES:
            assert self.attempts() <= {labels[LABEL_ATTEMPT]}
            place = (labels[LABEL_ROLE], labels[LABEL_INDEX])
            assert pod["metadata"]["name"] in self.api.pods or place not in self.live_places(), "two live pods of one"
        self.api.create_pod(pod)

    def _record_events(self, step: Step) -> None:
        self.events += step.events
        self.trajectory.append(f"{step.status.phase} {step.status.ready} {step.status.reason}")

    def _carry_out(self, write: Write) -> bool:
        """Do one write; False if the rest of the plan must not be done."""
        what, do = write
        try:
            if what.startswith(CHANGES) and what in self.api.refusals:
                raise Rejected(*self.api.refusals[what])
            do()
        except Rejected as error:
            return self._judge(what.removeprefix(READ_ONLY), error)
        if what.startswith(CHANGES):
            self.refused_changes = {each: old for each, old in self.refused_changes.items() if each != what}
        elif "/" in what and not what.startswith(READ_ONLY):
            self.refusal = None
        return True

    def _judge(self, what: str, error: Rejected) -> bool:
        if what == "status":
            return False
        if what.startswith(CHANGES):
            if error.code not in (404, 409):
                refusal = self._refusal(what.partition(" ")[2], error, self.refused_changes.get(what))
                self.refused_changes = {**self.refused_changes, what: refusal}
            return True
        if error.code == 409 and self._ours(what):
            return True
        self.refusal = self._refusal(what, error, self.refusal)
        return False

    def _refusal(self, child: str, error: Rejected, before: Refusal | None) -> Refusal:
        message = FOREIGN if error.code == 409 else error.message
        return reworded(before, judge(child, error.code, message, before.tries + 1 if before else 1, self.now))

    def _ours(self, child: str) -> bool:
        kind, _, name = child.partition("/")
        held = self.api.pods if kind == "pod" else self.api.services
        return owned_by(held[name], self.api.job["metadata"]["uid"])

    def nodes_of(self, pods: list[Manifest], raws: list[Manifest]) -> Nodes:
        """What the operator knows of the pods' nodes: those that are there, and that the others are not."""
        known = {node.name: node for node in (parse_node(raw, ("GpuEccError",)) for raw in raws)}
        self.noticed = {name: self.noticed.get(name, self.now) for name, node in known.items() if not node.is_ready}
        names = {pod["spec"].get("nodeName", "") for pod in pods} - {""}
        named = {name: known.get(name, Node(name, gone=True)) for name in names}
        noticed = {
            name: msgspec.structs.replace(node, noticed_at=self.noticed.get(name)) for name, node in named.items()
        }
        return Nodes(noticed, steady_since(known.values()))
