"""spec.runPolicy.startDeadlineSeconds: how long a gang may take to train. Pure.

Who keeps the deadline, so that one of them fails the job, once:

    while the chief's launcher runs                     that launcher, for all members      gang/rounds.py
    while it does not run, and where no launchers are   the operator                        plan/deadlines.py
    where that takes CHIEF_LATE_SECONDS longer          each member that the gang needs     rendezvous/chief_contact.py
"""

from __future__ import annotations

REASON = "StartDeadlineExceeded"
CHIEF_LATE_SECONDS = 30.0


def limit(seconds: float) -> str:
    """The deadline in words."""
    return f"{seconds:.10g} s (spec.runPolicy.startDeadlineSeconds)"
