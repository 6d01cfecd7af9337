"""Which fields this version cannot honour: a job that asks for one fails and says so, it is never silently ignored."""

from tftraining_operator.model.job import Problem
from tftraining_operator.model.spec import JobSpec, Launcher, RunPolicy

_RUN = RunPolicy()
_LAUNCHER = Launcher()


def unsupported(spec: JobSpec) -> Problem | None:
    """The first field that asks for something this version does not do."""
    for path, asked in _asked(spec).items():
        if asked:
            message = f"{path} is not implemented in this version of the operator: remove it from the job"
            return Problem("NotImplemented", message)
    for path, asked in _launchers(spec).items():
        if asked and not spec.in_place:
            message = (
                f"{path} works only with launchers: set spec.restartPolicy.mode: InPlace, or remove it from the job"
            )
            return Problem("NotImplemented", message)
    if spec.in_place and spec.success_policy == "AllWorkers":
        # Launchers end together as soon as the chief is done.
        message = (
            "spec.successPolicy: AllWorkers works only without launchers: set spec.restartPolicy.mode: Recreate, or "
            "spec.successPolicy: Chief"
        )
        return Problem("NotImplemented", message)
    return None


def _asked(spec: JobSpec) -> dict[str, bool]:
    return {f"spec.runPolicy.{name}": value for name, value in _later(spec.run_policy).items()}


def _launchers(spec: JobSpec) -> dict[str, bool]:
    """Which fields that only launchers can honour differ from their defaults."""
    run, launcher = spec.run_policy, spec.launcher
    return {
        "spec.minReplicas": spec.min_replicas is not None,
        "spec.launcher.memberTimeoutSeconds": launcher.member_timeout_seconds != _LAUNCHER.member_timeout_seconds,
        "spec.launcher.warmStart: false": not launcher.warm_start,
        "spec.runPolicy.stallTimeoutSeconds": run.stall_timeout_seconds is not None,
    }


def _later(run: RunPolicy) -> dict[str, bool]:
    """Which fields of the run policy that a later version brings differ from their defaults."""
    return {
        "nodeLostSeconds": run.node_lost_seconds != _RUN.node_lost_seconds,
    }
