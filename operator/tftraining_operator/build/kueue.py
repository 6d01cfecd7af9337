"""Queues of Kueue, by its integration of plain pods: what pods carry so that their quota is reserved all at once.

As with every integration of Kueue, the job's own label kueue.x-k8s.io/queue-name asks for it. The pods that train are
one pod group an attempt. The group is not retriable: Kueue then takes it for finished, and gives its quota and the
names of its pods free, as soon as none of them runs. A retriable one would keep a deleted pod until another has taken
its place, and ours has the same name.
"""

from tftraining_operator.build.pod_group import Membership
from tftraining_operator.model.job import Job
from tftraining_operator.model.names import QUEUE_GROUP, Replica
from tftraining_operator.model.spec import JobSpec

PREFIX = "kueue.x-k8s.io"
LONGEST_LABEL = 63


def queued(job: Job, spec: JobSpec, replica: Replica) -> Membership:
    """What puts the replica's pod into the job's queue; nothing if it is in none. A pod alone needs no group."""
    if not job.queue_labels or replica.role == "evaluator" or spec.placed_together == 1:
        return Membership(dict(job.queue_labels), {})
    count = {f"{PREFIX}/pod-group-total-count": str(spec.placed_together)}
    return Membership(
        {**job.queue_labels, QUEUE_GROUP: _group_name(job)},
        {**count, f"{PREFIX}/retriable-in-group": "false"},
    )


def _group_name(job: Job) -> str:
    """The name of the group, and of the Workload that Kueue makes for it: another one for each attempt of each job."""
    suffix = f"-{job.uid[:8]}-{job.status.attempt}"
    return job.key.name[: LONGEST_LABEL - len(suffix)] + suffix
