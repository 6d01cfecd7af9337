"""What follows from a launcher's death where nobody recreates pods: the restart rules of the job decide. Pure."""

import msgspec

from tftraining.launch.failure.restart_rules import Decision, Failure, Rule, decide
from tftraining_api.model.names import Replica
from tftraining_api.model.spec import JobSpec


def decide_restart(spec: JobSpec, replica: Replica, code: int) -> Decision:
    """The decision of the job's rules; `code` is the launcher's exit code (128 + n for signal n)."""
    rules = [Rule.from_json(msgspec.to_builtins(each)) for each in spec.restart_policy.rules]
    return decide(rules, Failure(replica.role, code, None, "Error"), proven=True)
