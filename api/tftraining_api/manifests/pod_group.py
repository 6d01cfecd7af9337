"""Gang scheduling: the PodGroup of a job, and the labels or annotations that make its pods members.

Two schedulers support PodGroups: the coscheduling plugin of kubernetes-sigs/scheduler-plugins (scheduling.x-k8s.io) and
Volcano (scheduling.volcano.sh). The evaluator is not in the group, because the gang does not wait for it.
"""

from typing import NamedTuple

from tftraining_api.manifests.metadata import child_metadata
from tftraining_api.model.job import Job
from tftraining_api.model.names import Replica, auxiliary_object_name
from tftraining_api.model.spec import JobSpec, Manifest, PodGroup

COSCHEDULING, VOLCANO = "scheduling.x-k8s.io/v1alpha1", "scheduling.volcano.sh/v1beta1"
# The names in the Helm charts of the two schedulers; a scheduler named in the template takes precedence.
SCHEDULERS = {COSCHEDULING: "scheduler-plugins-scheduler", VOLCANO: "volcano"}


class GangMetadata(NamedTuple):
    """The labels and annotations that a group or a queue adds to a pod, and the pod's scheduler."""

    labels: dict[str, str]
    annotations: dict[str, str]
    scheduler: str | None = None


def pod_group(job: Job, spec: JobSpec, group: PodGroup) -> Manifest:
    """The PodGroup. Unset fields are null, so that a patch removes them from an existing group."""
    fields: Manifest = {"minMember": group.min_available or spec.placed_together}
    if group.api_version == COSCHEDULING:
        fields["scheduleTimeoutSeconds"] = group.timeout_seconds
    else:
        scheduling = spec.run_policy.scheduling
        fields["queue"] = group.queue
        fields["priorityClassName"] = scheduling.priority_class_name if scheduling else None
    return {
        "apiVersion": group.api_version,
        "kind": "PodGroup",
        "metadata": child_metadata(job, auxiliary_object_name(job.key.name, job.uid), {}),
        "spec": fields,
    }


def membership(job: Job, spec: JobSpec, replica: Replica) -> GangMetadata:
    """The labels, annotations and scheduler for the job's PodGroup; empty if there is no group."""
    group = spec.pod_group
    if group is None or not replica.traits.in_gang:
        return GangMetadata({}, {})
    name = auxiliary_object_name(job.key.name, job.uid)
    if group.api_version == COSCHEDULING:
        return GangMetadata({"scheduling.x-k8s.io/pod-group": name}, {}, SCHEDULERS[COSCHEDULING])
    return GangMetadata({}, {"scheduling.k8s.io/group-name": name}, SCHEDULERS[VOLCANO])
