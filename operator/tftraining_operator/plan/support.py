"""Which fields this version cannot honour: a job that asks for one fails and says so, it is never silently ignored."""

import msgspec

from tftraining_operator.model.job import Problem
from tftraining_operator.model.spec import JobSpec, Launcher, Manifest, RunPolicy

_RUN = RunPolicy()
_LAUNCHER = Launcher()


def unsupported(spec: JobSpec) -> Problem | None:
    """The first field that asks for something this version does not do."""
    for path, asked in _asked(spec).items():
        if asked:
            message = f"{path} is not implemented in this version of the operator: remove it from the job"
            return Problem("NotImplemented", message)
    return None


def _asked(spec: JobSpec) -> dict[str, bool]:
    run = spec.run_policy
    asked = {
        "spec.replicaSpecs.ps": spec.replica_specs.ps is not None,
        "spec.replicaSpecs.evaluator": spec.replica_specs.evaluator is not None,
        "spec.minReplicas": spec.min_replicas is not None,
        "spec.restartPolicy.scope: Pod": spec.restart_policy.scope == "Pod",
        "spec.restartPolicy.rules": bool(spec.restart_policy.rules),
        "spec.launcher.memberTimeoutSeconds": spec.launcher.member_timeout_seconds != _LAUNCHER.member_timeout_seconds,
        "spec.launcher.warmStart: false": not spec.launcher.warm_start,
        "spec.runPolicy.scheduling.podGroup": bool(run.scheduling and run.scheduling.pod_group),
        "spec.successPolicy: AllWorkers": spec.success_policy == "AllWorkers",
    }
    return asked | {f"spec.runPolicy.{field}": True for field in _changed(run) if field in _LATER}


_LATER = (
    "suspend",
    "activeDeadlineSeconds",
    "startDeadlineSeconds",
    "stallTimeoutSeconds",
    "ttlSecondsAfterFinished",
    "evaluatorGraceSeconds",
    "nodeLostSeconds",
)


def _changed(run: RunPolicy) -> Manifest:
    """The fields that differ from their defaults (those are left out when a Struct is dumped)."""
    changed: Manifest = msgspec.to_builtins(run)
    return changed
