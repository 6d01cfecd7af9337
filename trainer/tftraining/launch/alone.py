"""Who is restarted alone (spec.restartPolicy.scope: Pod), and what follows from a member that was.

Pure. A worker of parameter servers keeps nothing that others need: the chief hands its steps to the others, and takes
it back when it is there again. A chief and a parameter server take the gang along. With a server its variables are
lost, and the chief's program fails by that; a new program of the chief would meet servers that hold the variables of
the old one for ten minutes more. All programs anew, warm, from the last checkpoint, cost a second or two.
"""

from __future__ import annotations

from tftraining.launch.ending import Exit
from tftraining.launch.incident import Incident
from tftraining.launch.progress import reports
from tftraining.launch.settings import Gang, Policy, role_of
from tftraining.launch.snapshot import Snapshot

# Seconds after a member's end in which a failure of the chief is taken to follow from it: TensorFlow's coordinator does
# not survive the loss of a worker while it still connects to the cluster.
AFTERMATH = 15.0


def restarts_alone(name: str, gang: Gang, policy: Policy) -> bool:
    """Whether the others of the gang go on while this member is restarted."""
    return policy.scope == "Pod" and role_of(name) == "worker" and name != gang.chief


def follows(ended: Exit, last: Incident | None, now: float) -> bool:
    """Whether a program's failure follows from the incident of a member that was restarted alone."""
    if last is None or not last.alone or ended.signal is not None or ended.kind:
        return False
    return now - last.at < AFTERMATH


def serves(name: str, gang: Gang, told: Snapshot) -> bool:
    """Whether the program only does what the chief's asks for, and ends when it is told: a parameter server, or a
    worker beside one that reports no steps of its own."""
    role = role_of(name)
    if role == "worker" and name != gang.chief and any(role_of(each) == "ps" for each in gang.members):
        return not reports(told)
    return role == "ps"
