"""The input of every stage of the planner (Context), and the step that the stages build (Draft)."""

from datetime import datetime
from typing import Any

import msgspec

from tftraining_api.manifests.network_policy import OperatorSelector
from tftraining_api.model.job import Job
from tftraining_api.model.spec import Frozen, JobSpec, RunPolicy
from tftraining_api.model.status import Status
from tftraining_operator.model.launcher_report import Report
from tftraining_operator.model.node import NodeCondition
from tftraining_operator.model.observed import Observed, Pod
from tftraining_operator.model.times import RESOLUTION, earliest
from tftraining_operator.plan.gang import SortedPods, classify
from tftraining_operator.plan.step import Event, PodDeletion, Step

# Time for the kubelet to send SIGTERM, which TensorFlow ignores; SIGKILL follows.
GRACE_SECONDS = 1


class Context(Frozen, frozen=True):
    """Everything that one pass knows; no stage changes it.

    `job` is the job as the API server stores it, `status` its status as the stages start from it. `observed` has the
    pods of lost nodes marked (see plan/node_loss.py). `image` is the operator's own image, which helper pods run.
    `operator_selector` is None where no NetworkPolicies are wanted. `missing_secret` is the name of a deleted Secret
    that running launchers share, or empty.
    """

    job: Job
    status: Status
    observed: Observed
    now: datetime
    image: str
    operator_selector: OperatorSelector | None = None
    missing_secret: str = ""
    node_check_at: datetime | None = None

    @property
    def spec(self) -> JobSpec:
        """The spec. A job without a valid spec ends before a stage that asks for the spec runs."""
        assert self.job.spec is not None
        return self.job.spec

    @property
    def run_policy(self) -> RunPolicy:
        """spec.runPolicy, also of a spec that is invalid otherwise; the defaults for one that cannot be read."""
        return self.job.spec.run_policy if self.job.spec else self.job.policy_of_invalid or RunPolicy()

    def condition_to_leave(self, pod: Pod) -> NodeCondition | None:
        """The condition for which the pod has to leave its node, or has left it (see plan/node_conditions.py)."""
        node = self.observed.nodes.named.get(pod.node) if self.observed.nodes is not None else None
        conditions = node.conditions if node is not None else ()
        return next((each for each in conditions if pod.created <= each.since <= self.now - RESOLUTION), None)

    def job_with(self, status: Status) -> Job:
        """The job with another status, for the builders of manifests."""
        return msgspec.structs.replace(self.job, status=status)


class Draft(Frozen, frozen=True):
    """The step as far as the stages before have built it.

    `gang` has the observed pods, classified by the status in the step. `report` is the report of the launcher in the
    chief's present pod. After a `final` draft no other stage of the same list runs.
    """

    step: Step
    gang: SortedPods
    report: Report | None = None
    final: bool = False

    @classmethod
    def of(cls, context: Context, status: Status) -> "Draft":
        """A draft without any write but that of the status."""
        gang = classify(context.job.spec, status, context.observed, context.job.restarted_at)
        return cls(Step(status=status), gang, _report(context, gang))

    @property
    def status(self) -> Status:
        """The status to write."""
        return self.step.status

    def with_fields(self, **fields: Any) -> "Draft":
        """The draft with other fields of the step."""
        return msgspec.structs.replace(self, step=msgspec.structs.replace(self.step, **fields))

    def with_status_fields(self, **fields: Any) -> "Draft":
        """The draft with other fields of the status; the gang stays as it was sorted."""
        return self.with_fields(status=msgspec.structs.replace(self.status, **fields))

    def with_events(self, *events: Event) -> "Draft":
        """The draft with more events."""
        return self.with_fields(events=(*self.step.events, *events)) if events else self

    def with_deletions(self, pods: tuple[Pod, ...], grace: int | None = GRACE_SECONDS) -> "Draft":
        """The draft with the deletion of these pods, if not deleted yet; pods on lost nodes are deleted by force, even
        if a deletion is pending."""
        due = [each for each in pods if not each.terminating or (each.node_lost and each.deletion_deadline)]
        deletions = tuple(
            PodDeletion(each.name, each.uid, 0, each.version)
            if each.node_lost
            else PodDeletion(each.name, each.uid, grace)
            for each in due
        )
        return self.with_fields(delete_pods=(*self.step.delete_pods, *deletions)) if deletions else self

    def with_requeue(self, *times: datetime | None) -> "Draft":
        """The draft with a next pass at the first of these times, if that is earlier."""
        return self.with_fields(requeue_at=earliest(self.step.requeue_at, *times))

    def sorted_anew_without_writes(self, context: Context, status: Status) -> "Draft":
        """The draft with the status and the gang after a decision that changes which pods belong to the gang; events
        stay, other writes go."""
        return Draft.of(context, status).with_events(*self.step.events).with_fields(departs=self.step.departs)


def _report(context: Context, gang: SortedPods) -> Report | None:
    """The report of the launcher in the chief's present pod; the report of an earlier pod of that name is out of
    date."""
    last, chief = context.observed.launcher_report, gang.chief
    if context.job.spec is None or not context.spec.in_place or last is None or chief is None:
        return None
    return last.report if last.pod_uid == chief.uid else None
