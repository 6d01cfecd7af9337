"""When a job has succeeded: by spec.successPolicy, or by the verdict of its launchers, which go by that themselves."""

from tftraining_operator.model.job import Problem
from tftraining_operator.model.spec import JobSpec
from tftraining_operator.plan import verdicts
from tftraining_operator.plan.gang import Gang, finished


def has_succeeded(spec: JobSpec, gang: Gang) -> bool:
    """Whether those who have to be done are done."""
    if spec.success_policy == "AllWorkers" and not spec.in_place:
        done = {*gang.completed, *(pod.replica for pod in gang.pods if finished(pod))}
        return done.issuperset(spec.trainers)
    chief_done = gang.chief is not None and finished(gang.chief)
    return chief_done or (spec.in_place and verdicts.succeeded(gang))


def why(spec: JobSpec, gang: Gang) -> Problem:
    """The reason and the words of the success."""
    if spec.success_policy == "AllWorkers":
        return Problem("AllWorkersSucceeded", "every chief and worker has finished")
    return Problem("ChiefSucceeded", f"{gang.wanted[0]} (the chief) has finished")
