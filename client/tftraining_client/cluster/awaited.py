"""The states of a job for which `wait` can wait. Pure."""

import re
from dataclasses import dataclass
from typing import Literal

from tftraining_client.cluster.models import Job
from tftraining_client.errors import JobEnded, JobFailed, UserError

STATES = ("succeeded", "failed", "finished", "running", "suspended")
_EPOCH = re.compile(r"epoch=(\d{1,9})")


@dataclass(frozen=True)
class Awaited:
    """A state, or the number of an epoch."""

    state: Literal["succeeded", "failed", "finished", "running", "suspended", "epoch"]
    epoch: int = 0

    def __str__(self) -> str:
        return f"epoch={self.epoch}" if self.state == "epoch" else self.state

    def reached(self, job: Job) -> bool:
        """Whether the job is in the state; an epoch once reached counts after the end too."""
        if self.state == "epoch":
            return job.epoch >= self.epoch
        if self.state == "finished":
            return job.finished
        return job.phase.lower() == self.state


def parse_awaited(text: str) -> Awaited:
    """`succeeded`, `failed`, `finished`, `running`, `suspended` or `epoch=3`; UserError for anything else."""
    lower = text.lower()
    for state in ("succeeded", "failed", "finished", "running", "suspended"):
        if lower == state:
            return Awaited(state)
    if found := _EPOCH.fullmatch(lower):
        return Awaited("epoch", int(found[1]))
    raise UserError(f"cannot wait for {text!r}: use {', '.join(STATES)} or epoch=NUMBER")


def check_possible(awaited: Awaited, job: Job) -> None:
    """Raise JobFailed or JobEnded if the job has ended and will never be in the state."""
    if awaited.reached(job) or not job.finished:
        return
    if job.failed:
        raise failure(job)
    raise JobEnded(f"job {job.name} has succeeded and will never be {awaited}")


def failure(job: Job) -> JobFailed:
    """The error for a job that has failed."""
    status = job.status
    return JobFailed(job.name, status.reason or "Failed", status.message or "", job.log_tail)
