"""The commands that are useful next, by the phase of the job. Pure."""

from tftraining_client.cluster.models import Job

FOLLOWING = (("status", "--watch"), ("logs", "--follow"), ("explain", ""))
NEXT = {
    "Failed": (("explain", ""), ("logs", "--tail 50")),
    "Succeeded": (("logs", ""), ("delete", "")),
    "Suspended": (("resume", ""),),
}


def next_commands(job: Job) -> tuple[str, ...]:
    """The commands that are useful for a job in this phase."""
    return tuple(f"{verb} {job.name} {options}".rstrip() for verb, options in NEXT.get(job.phase, FOLLOWING))
