"""What stands beside the pods of a job, apart from its Service and its Secret: the NetworkPolicy and the PodGroup.

They are made, or brought up to date, before any pod that they concern, so nobody needs to watch them, and a job that
runs is never changed by them. They go with the Service at the end; the PodGroup also with the pods of a suspended job.
What a crash leaves is the job's own, and goes with it.
"""

import msgspec

from tftraining_operator.build.network_policy import Asker, network_policy, on_host_network
from tftraining_operator.build.pod_group import pod_group
from tftraining_operator.model.job import Job
from tftraining_operator.model.names import CLEANUP, LABEL_ROLE
from tftraining_operator.model.observed import Observed
from tftraining_operator.model.spec import JobSpec, Manifest
from tftraining_operator.plan.refusals import asked_for_a_pod
from tftraining_operator.plan.types import Plan


def with_companions(job: Job, step: Plan, seen: Observed, asker: Asker | None) -> Plan:
    """The step with its part for the companions. `asker` is None where no NetworkPolicies are wanted.

    While a pod is refused nobody asks for them again: they were there before it was asked for.
    """
    if job.spec is None:
        return step
    groups, policies = _groups(job, job.spec), _policies(job, job.spec, asker)
    if step.delete_service:
        return msgspec.structs.replace(step, delete_companions=policies + groups)
    if any(pod["metadata"]["labels"][LABEL_ROLE] != CLEANUP for pod in step.create_pods):
        again = asked_for_a_pod(seen.refusal)
        return step if again else msgspec.structs.replace(step, companions=policies + groups)
    if step.status.phase == "Suspended" and step.delete_pods:
        return msgspec.structs.replace(step, delete_companions=groups)
    return step


def _groups(job: Job, spec: JobSpec) -> tuple[Manifest, ...]:
    return () if spec.pod_group is None else (pod_group(job, spec, spec.pod_group),)


def _policies(job: Job, spec: JobSpec, asker: Asker | None) -> tuple[Manifest, ...]:
    return () if asker is None or on_host_network(spec) else (network_policy(job, asker),)
