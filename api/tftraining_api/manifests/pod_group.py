"""Gang scheduling: the PodGroup of a job, and what makes its pods members: labels, annotations or a field.

Three schedulers support PodGroups: the coscheduling plugin of kubernetes-sigs/scheduler-plugins (scheduling.x-k8s.io),
Volcano (scheduling.volcano.sh), and Kubernetes' own from 1.37 on (scheduling.k8s.io). The evaluator is not in the
group, because the gang does not wait for it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from tftraining_api.manifests.metadata import child_metadata
from tftraining_api.model.job import Job
from tftraining_api.model.names import NATIVE_GANG, Replica, auxiliary_object_name
from tftraining_api.model.spec import JobSpec, Manifest, PodGroup

COSCHEDULING, VOLCANO = "scheduling.x-k8s.io/v1alpha1", "scheduling.volcano.sh/v1beta1"
# The names in the Helm charts of the two schedulers; a scheduler named in the template takes precedence.
SCHEDULERS = {COSCHEDULING: "scheduler-plugins-scheduler", VOLCANO: "volcano"}


class GangMetadata(NamedTuple):
    """The labels and annotations that a group or a queue adds to a pod, and the fields of the pod's spec."""

    labels: dict[str, str]
    annotations: dict[str, str]
    spec: Mapping[str, object] = MappingProxyType({})


def pod_group(job: Job, spec: JobSpec) -> Manifest | None:
    """The PodGroup, if the job asks for one."""
    if spec.native_gang:
        api, fields = NATIVE_GANG, _native(spec)
    elif spec.pod_group is not None:
        api, fields = spec.pod_group.api_version, _of_gang_scheduler(spec, spec.pod_group)
    else:
        return None
    return {
        "apiVersion": api,
        "kind": "PodGroup",
        "metadata": child_metadata(job, auxiliary_object_name(job.key.name, job.uid), {}),
        "spec": fields,
    }


def _native(spec: JobSpec) -> Manifest:
    """The scheduler takes no pod whose priority is not the group's. What is unset is left out, and not null: the API
    server sets the PriorityClass that is the default of the cluster, and lets nobody change it."""
    fields: Manifest = {"schedulingPolicy": {"gang": {"minCount": spec.placed_together}}}
    priority = spec.priority_class_of(spec.chief.role)
    return fields if priority is None else {**fields, "priorityClassName": priority}


def _of_gang_scheduler(spec: JobSpec, group: PodGroup) -> Manifest:
    """Unset fields are null, so that a patch removes them from an existing group."""
    fields: Manifest = {"minMember": group.min_available or spec.placed_together}
    if group.api_version == COSCHEDULING:
        return {**fields, "scheduleTimeoutSeconds": group.timeout_seconds}
    scheduling = spec.run_policy.scheduling
    priority = scheduling.priority_class_name if scheduling else None
    return {**fields, "queue": group.queue, "priorityClassName": priority}


def membership(job: Job, spec: JobSpec, replica: Replica) -> GangMetadata:
    """The labels, annotations and fields for the job's PodGroup; empty if there is no group."""
    group = spec.pod_group
    if not replica.traits.in_gang or (group is None and not spec.native_gang):
        return GangMetadata({}, {})
    name = auxiliary_object_name(job.key.name, job.uid)
    if group is None:
        return GangMetadata({}, {}, {"schedulingGroup": {"podGroupName": name}})
    scheduler: dict[str, object] = {"schedulerName": SCHEDULERS[group.api_version]}
    if group.api_version == COSCHEDULING:
        return GangMetadata({"scheduling.x-k8s.io/pod-group": name}, {}, scheduler)
    return GangMetadata({}, {"scheduling.k8s.io/group-name": name}, scheduler)
