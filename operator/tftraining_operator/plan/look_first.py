"""Which steps a pass takes only after a look at the API server itself, because the caches may lag behind.

A watch may be late, silent or broken without a sign. Most steps are safe all the same: names of children are
deterministic, and writes carry a precondition. These are not: they end a program that may be well, or remove its files.
The pass reads the job's pods and their suspect nodes anew, and plans once more from what it has read
(cluster/children.py); if they cannot be read, it fails and changes nothing.
"""

from tftraining_api.model.job import Job
from tftraining_operator.plan.step import Step


def must_look(job: Job, step: Step, looked: bool) -> bool:
    """Whether the step has to wait for the look. `looked` is whether this process has had one for the job before, or
    has seen the job begin."""
    old, new = job.status, step.status
    recreates = new.restarts.recreated > old.restarts.recreated or new.attempt > old.attempt > 0
    fails = new.phase == "Failed" != old.phase
    # Outside of these phases the only pod is that of the cleanup, which must not run beside a program.
    cleans = new.terminal or new.phase == "Suspended"
    creates = bool(step.create_pods) and (cleans or not looked)
    # The pods of a gang that gives back its room to a quota are deleted by a new attempt without a restart.
    renews = new.attempt > max(old.attempt, 1) and bool(step.delete_pods)
    return step.forces or bool(step.fail_pods) or recreates or fails or creates or (renews and not looked)
