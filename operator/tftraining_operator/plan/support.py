"""Which fields do not go together: a job that asks for such fails and says so, they are never silently ignored.

What the rules of the CRD can say is theirs, and not repeated here.
"""

from tftraining_operator.model.job import Problem
from tftraining_operator.model.spec import JobSpec


def unsupported(spec: JobSpec) -> Problem | None:
    """The first field that asks for something that the others rule out."""
    if spec.in_place and spec.success_policy == "AllWorkers":
        # Launchers end together as soon as the chief is done.
        message = (
            "spec.successPolicy: AllWorkers works only without launchers: set spec.restartPolicy.mode: Recreate, or "
            "spec.successPolicy: Chief"
        )
        return Problem("NotImplemented", message)
    return None
