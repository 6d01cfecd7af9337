"""runPolicy.ttlSecondsAfterFinished: the job is deleted, and what it owns with it, some time after its end.

Never before all that remained to be done is done: the temporary directories are removed, or given up, first, and pods
that are on their way out are gone. One on a dead node, or kept by a queue, would be left for the next job of that name
to wait for.
"""

from datetime import datetime

import msgspec

from tftraining_operator.model.job import Job
from tftraining_operator.model.observed import Observed
from tftraining_operator.plan.let_go import is_held
from tftraining_operator.plan.temporaries import decided
from tftraining_operator.plan.times import later
from tftraining_operator.plan.types import Plan


def expire(job: Job, step: Plan, seen: Observed, now: datetime) -> Plan:
    """The step of a terminal job, or the deletion of the job if its time has come and the step has nothing to do."""
    ttl = job.spec.run_policy.ttl_seconds_after_finished if job.spec else None
    if ttl is None or step.status.completion_time is None or _at_work(job, step, seen):
        return step
    due = later(step.status.completion_time, ttl)
    if due is None:
        return step
    return msgspec.structs.replace(step, delete_job=now >= due, again_at=due if now < due else None)


def _at_work(job: Job, step: Plan, seen: Observed) -> bool:
    leaving = any(is_held(pod) or (pod.going and not (pod.ended or pod.abandoned)) for pod in seen.replicas)
    return leaving or step != Plan(status=job.status) or not decided(step.status)
