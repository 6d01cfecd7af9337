"""Which fields do not go together: a job that asks for such fails and says so, they are never silently ignored."""

from tftraining_operator.model.job import Problem
from tftraining_operator.model.spec import JobSpec, Launcher

_LAUNCHER = Launcher()


def unsupported(spec: JobSpec) -> Problem | None:
    """The first field that asks for something that the others rule out."""
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


def _launchers(spec: JobSpec) -> dict[str, bool]:
    """Which fields that only launchers can honour differ from their defaults."""
    run, launcher = spec.run_policy, spec.launcher
    return {
        "spec.minReplicas": spec.min_replicas is not None,
        "spec.launcher.memberTimeoutSeconds": launcher.member_timeout_seconds != _LAUNCHER.member_timeout_seconds,
        "spec.launcher.warmStart: false": not launcher.warm_start,
        "spec.runPolicy.stallTimeoutSeconds": run.stall_timeout_seconds is not None,
    }
