"""What a running gang's launchers are told when the job's spec changes: an annotation of the chief's pod.

The kubelet shows it to the chief's launcher as a file, which is the one that decides for all. So nobody needs the right
to read the job's Secret, and nobody but who may change pods can resize a gang. It must hold only what may change while
the job runs, or be changed in a suspension that was over before anybody saw it (see plan/incident.SPEC_CHANGED for what
takes new pods): everything else is in the pod as it was made.
"""

import json

from tftraining_operator.model.spec import JobSpec, Manifest

VOLUME, DIRECTORY, FILE = "tftraining-orders", "/opt/tftraining-orders", "orders"


def orders(spec: JobSpec) -> Manifest:
    """The orders of the spec as it is now."""
    worker = spec.role("worker")
    return {
        "workers": worker.replicas if worker else 0,
        "maxRestarts": spec.restart_policy.max_restarts,
        "sameFailureLimit": spec.restart_policy.same_failure_limit,
        "budgetReset": spec.restart_policy.budget_reset,
        "successPolicy": spec.success_policy,
        "startDeadlineSeconds": spec.run_policy.start_deadline_seconds,
        "stallTimeoutSeconds": spec.run_policy.stall_timeout_seconds,
        "evaluatorGraceSeconds": spec.run_policy.evaluator_grace_seconds,
    }


def written(spec: JobSpec) -> str:
    """The annotation of a new pod."""
    return json.dumps(orders(spec))


def changed(spec: JobSpec, present: str) -> str | None:
    """The annotation that a pod with the present one should have instead; None if it says what the spec says.

    What a pod was not made with is left out: a new version of the operator changes no running pod.
    """
    try:
        told = json.loads(present)
        wanted = {**told, **{name: value for name, value in orders(spec).items() if name in told}}
    except (ValueError, TypeError):
        return written(spec)
    return None if wanted == told else json.dumps(wanted)
