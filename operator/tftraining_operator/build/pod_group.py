"""Gang scheduling: the PodGroup of a job, and what its pods carry so that the scheduler counts them into it.

Two schedulers know PodGroups: the coscheduling plugin of kubernetes-sigs/scheduler-plugins (scheduling.x-k8s.io) and
Volcano (scheduling.volcano.sh). The evaluator is in no group: nothing waits for it.
"""

from typing import NamedTuple

from tftraining_operator.build.metadata import child_metadata
from tftraining_operator.model.job import Job
from tftraining_operator.model.names import Replica, companion_name
from tftraining_operator.model.spec import JobSpec, Manifest, PodGroup

COSCHEDULING, VOLCANO = "scheduling.x-k8s.io/v1alpha1", "scheduling.volcano.sh/v1beta1"
# As the Helm charts of the two install them; a template that names another scheduler is believed.
SCHEDULERS = {COSCHEDULING: "scheduler-plugins-scheduler", VOLCANO: "volcano"}


class Membership(NamedTuple):
    """What a pod carries besides its own labels and annotations, and the scheduler that looks at it."""

    labels: dict[str, str]
    annotations: dict[str, str]
    scheduler: str | None = None


def pod_group(job: Job, spec: JobSpec, group: PodGroup) -> Manifest:
    """The PodGroup. What is unset is there as null, so that it is also unset in a group that had it."""
    asked: Manifest = {"minMember": group.min_available or spec.placed_together}
    if group.api_version == COSCHEDULING:
        asked["scheduleTimeoutSeconds"] = group.timeout_seconds
    else:
        scheduling = spec.run_policy.scheduling
        asked["queue"] = group.queue
        asked["priorityClassName"] = scheduling.priority_class_name if scheduling else None
    return {
        "apiVersion": group.api_version,
        "kind": "PodGroup",
        "metadata": child_metadata(job, companion_name(job.key.name, job.uid), {}),
        "spec": asked,
    }


def membership(job: Job, spec: JobSpec, replica: Replica) -> Membership:
    """What puts the replica's pod into the job's group; nothing if there is none."""
    group = spec.pod_group
    if group is None or replica.role == "evaluator":
        return Membership({}, {})
    name = companion_name(job.key.name, job.uid)
    if group.api_version == COSCHEDULING:
        return Membership({"scheduling.x-k8s.io/pod-group": name}, {}, SCHEDULERS[COSCHEDULING])
    return Membership({}, {"scheduling.k8s.io/group-name": name}, SCHEDULERS[VOLCANO])
