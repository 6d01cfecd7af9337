"""What follows from a launcher's death where nobody recreates pods: the restart rules of the job decide. Pure."""

from tftraining.launch.failure.restart_rules import Decision, Failure
from tftraining_api.model.names import Replica
from tftraining_api.model.spec import JobSpec


def decide_restart(spec: JobSpec, replica: Replica, code: int) -> Decision:
    """The decision of the job's rules; `code` is the launcher's exit code (128 + n for signal n)."""
    return spec.restart_policy.decide(Failure(replica.role, code, None, "Error"), has_stepped=True)
