"""What holds for every plan, whatever was observed. Checked at each pass of each simulated job."""

from datetime import datetime

from tftraining_operator.model.job import Job
from tftraining_operator.model.names import LABEL_ATTEMPT, LABEL_ROLE
from tftraining_operator.model.observed import Observed
from tftraining_operator.plan import node_loss
from tftraining_operator.plan.incident import lost
from tftraining_operator.plan.last_evaluation import evaluates
from tftraining_operator.plan.types import Plan

AT_REST = ("Suspended", "Succeeded", "Failed")


def hold_invariants(job: Job, seen: Observed, step: Plan, now: datetime) -> None:
    """Fail if the plan breaks an invariant of the planner."""
    if job.spec is not None:
        seen = node_loss.mark(seen, job.spec.run_policy.node_lost_seconds, now)
    _one_pod_a_name(seen, step)
    _one_attempt_at_a_time(seen, step)
    _end_is_the_end(job, step)
    _suspended_means_no_pods(job, seen, step)
    _deleted_only_when_done(job, step)
    _within_budget(job, step)
    _only_own_pods_go(job, seen, step)
    assert not step.notes or step.status != job.status, "an event without a change would be repeated for ever"


def _one_pod_a_name(seen: Observed, step: Plan) -> None:
    wanted = [pod["metadata"]["name"] for pod in step.create_pods]
    assert len(wanted) == len(set(wanted))
    assert not set(wanted) & {pod.name for pod in seen.pods}


def _one_attempt_at_a_time(seen: Observed, step: Plan) -> None:
    for pod in step.create_pods:
        labels = pod["metadata"]["labels"]
        if labels[LABEL_ROLE] != "cleanup":
            assert labels[LABEL_ATTEMPT] == str(step.status.attempt)
            assert all(other.attempt == step.status.attempt or evaluates(other) for other in seen.replicas)
        else:
            assert all(other.ended for other in seen.replicas)


def _end_is_the_end(job: Job, step: Plan) -> None:
    assert step.status.attempt >= job.status.attempt
    if job.status.terminal:
        assert step.status.phase == job.status.phase
        assert step.status.completion_time == job.status.completion_time
        assert all(pod["metadata"]["labels"][LABEL_ROLE] == "cleanup" for pod in step.create_pods)
    assert not (step.status.is_true("Succeeded") and step.status.is_true("Failed"))
    for phase in ("Succeeded", "Failed"):
        assert step.status.is_true(phase) == (step.status.phase == phase)


def _suspended_means_no_pods(job: Job, seen: Observed, step: Plan) -> None:
    assert step.status.is_true("Suspended") == (step.status.phase == "Suspended") or job.deleting
    if step.status.phase != "Suspended":
        return
    assert job.spec is not None and job.spec.run_policy.suspend
    assert all(pod["metadata"]["labels"][LABEL_ROLE] == "cleanup" for pod in step.create_pods)
    going = {each.uid for each in step.delete_pods}
    assert all(pod.deleting or pod.uid in going for pod in seen.replicas)


def _deleted_only_when_done(job: Job, step: Plan) -> None:
    if step.delete_job:
        cleaned = step.status.condition("Cleaned")
        assert step == Plan(status=job.status, delete_job=True)
        assert step.status.terminal and cleaned is not None and cleaned.status != "Unknown"


def _within_budget(job: Job, step: Plan) -> None:
    if job.spec is None:
        return
    old, new = job.status.restarts, step.status.restarts
    charged = new.pod_failures - old.pod_failures if job.spec.in_place else new.counted - old.counted
    if charged:
        assert new.budget_used <= job.spec.restart_policy.max_restarts
    alone = job.spec.in_place or job.spec.restart_scope == "Pod"
    assert 0 <= charged <= (1 if alone else step.status.attempt - job.status.attempt)
    assert all(
        getattr(new, count) >= getattr(old, count) for count in ("counted", "in_place", "disruptions", "recreated")
    )


def _only_own_pods_go(job: Job, seen: Observed, step: Plan) -> None:
    going = {each.uid for each in step.delete_pods}
    assert going <= {pod.uid for pod in seen.pods}
    if job.spec is not None and job.spec.in_place and step.status.phase not in AT_REST:
        members = [pod for pod in seen.replicas if pod.replica in job.spec.gang and pod.uid in going]
        present = [pod for pod in members if pod.attempt == step.status.attempt]
        given_up = job.status.replaced.values()
        assert all(lost(pod) or pod.uid in given_up for pod in present), (
            "a pod that trains is left alone by the loss of another"
        )
