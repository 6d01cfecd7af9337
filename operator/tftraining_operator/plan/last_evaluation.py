"""runPolicy.evaluatorGraceSeconds: the time in which the evaluator may evaluate the last checkpoint of a success."""

from datetime import timedelta

from tftraining_operator.model.job import Job
from tftraining_operator.model.observed import Pod

# A launcher ends its program by itself when the time is over, with a grace of its own.
LEAVING = timedelta(seconds=10)


def grace(job: Job) -> timedelta:
    """How long the evaluator's pod is left alone after the job's end."""
    if job.spec is None or not job.spec.evaluators or job.status.phase != "Succeeded":
        return timedelta()
    own = timedelta(seconds=job.spec.run_policy.evaluator_grace_seconds)
    return own + LEAVING + timedelta(seconds=job.spec.launcher.termination_grace_seconds) if job.spec.in_place else own


def evaluates(pod: Pod) -> bool:
    """Whether it is the evaluator's."""
    return pod.replica is not None and pod.replica.role == "evaluator"
