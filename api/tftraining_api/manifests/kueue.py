"""Labels and annotations of pods by which Kueue's integration of plain pods reserves the quota of a gang at once.

As with every integration of Kueue, the job's label kueue.x-k8s.io/queue-name names the queue. The training pods are one
pod group per attempt. The group is not retriable: as soon as none of its pods runs, Kueue regards it as finished and
releases its quota. Until then Kueue keeps the object of a lost pod, and so its name, until a pod of another name has
taken the lost one's place in the group. Such a successor counts in its name (tftraining_api.model.names.pod_name).
"""

from tftraining_api.manifests.pod_group import GangMetadata
from tftraining_api.model.job import Job
from tftraining_api.model.names import QUEUE_GROUP, Replica
from tftraining_api.model.spec import JobSpec

PREFIX = "kueue.x-k8s.io"
LONGEST_LABEL = 63


def queued(job: Job, spec: JobSpec, replica: Replica) -> GangMetadata:
    """The labels and annotations for the job's queue; none if the job names no queue. A single pod needs no group."""
    if not job.queue_labels or not replica.traits.in_gang:
        return GangMetadata(dict(job.queue_labels), {})
    topology = _topology(spec)
    if spec.placed_together == 1:
        return GangMetadata(dict(job.queue_labels), topology)
    count = {f"{PREFIX}/pod-group-total-count": str(spec.placed_together)}
    return GangMetadata(
        {**job.queue_labels, QUEUE_GROUP: _group_name(job)},
        {**count, f"{PREFIX}/retriable-in-group": "false", **topology},
    )


def _topology(spec: JobSpec) -> dict[str, str]:
    """The annotation by which Kueue places the pods in one domain of that level, if one has room for all."""
    return {} if spec.topology_key is None else {f"{PREFIX}/podset-preferred-topology": spec.topology_key}


def _group_name(job: Job) -> str:
    """The name of the group and of its Workload in Kueue, unique for each attempt of each job."""
    suffix = f"-{job.uid[:8]}-{job.status.attempt}"
    return job.key.name[: LONGEST_LABEL - len(suffix)] + suffix
