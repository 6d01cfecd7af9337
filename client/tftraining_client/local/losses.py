"""What the loss of a launcher costs here, where nobody makes pods anew: the rules of the job decide. Pure."""

import msgspec

from tftraining.launch.rules import Decision, Failure, Rule, decide
from tftraining_operator.model.names import Replica
from tftraining_operator.model.spec import JobSpec


def judge(spec: JobSpec, replica: Replica, code: int) -> Decision:
    """What becomes of the loss; `code` is the launcher's exit code, as a shell says it."""
    rules = [Rule.from_json(msgspec.to_builtins(each)) for each in spec.restart_policy.rules]
    return decide(rules, Failure(replica.role, code, None, "Error"), proven=True)
