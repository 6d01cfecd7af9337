"""A failure that a dead node had caused is paid back, where nobody could know better when it was charged.

Without launchers the first sign of a dead node is that the programs on the others fail, a minute before the node
counts as lost. By then the gang is to start again, and waits for a pod of the attempt before that nobody lets go: the
charge is given back to the budget, and the incident is told for what it was. `counted` stays: a program did fail.
"""

import msgspec

from tftraining_operator.model.job import Job
from tftraining_operator.model.observed import Pod
from tftraining_operator.plan.node_loss import REASON
from tftraining_operator.plan.scene import Scene
from tftraining_operator.plan.types import Note


def excuse(job: Job, scene: Scene) -> tuple[Job, tuple[Note, ...]]:
    """The job with the last charge given back, and the event of it, if a lost node stands behind that."""
    last = job.status.last_restart
    pod = next((each for each in scene.gang.stale if _lost_before(each, job.status.attempt)), None)
    if pod is None or last is None or last.exit_code is None:
        return job, ()
    message = f"{pod.label} was lost with its node ({pod.message}): the failure that followed costs nothing"
    restarts = job.status.restarts
    restarts = msgspec.structs.replace(
        restarts, budget_used=max(0, restarts.budget_used - 1), disruptions=restarts.disruptions + 1
    )
    record = msgspec.structs.replace(last, pod=pod.name, exit_code=None, signal=None, reason=REASON, exception=None)
    status = msgspec.structs.replace(job.status, restarts=restarts, last_restart=record, reason=REASON, message=message)
    return msgspec.structs.replace(job, status=status), (Note("Normal", REASON, message),)


def _lost_before(pod: Pod, attempt: int) -> bool:
    """Whether the pod is of the attempt before, and was lost rather than told to go in time."""
    return pod.abandoned and pod.disruption == REASON and pod.attempt == attempt - 1
