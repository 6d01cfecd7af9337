"""`tftj explain`: why a job failed or does not train, the first culprit, its last lines, and what to try."""

from collections.abc import Iterator
from datetime import UTC, datetime

from tftraining_api.model.status import Failure
from tftraining_client.cluster.async_client import AsyncClient
from tftraining_client.cluster.models import Job
from tftraining_client.commands.advice import advice
from tftraining_client.commands.output import hint
from tftraining_client.commands.status import next_commands
from tftraining_client.commands.status_tree import restart_text

WARNINGS = ("NoProgress", "NoGPU", "Unreadable")


async def explain(client: AsyncClient, name: str) -> int:
    """Print the explanation; the exit code is 0 whatever the job's state."""
    job = await client.get(name)
    print("\n".join(explanation(job, datetime.now(UTC))))
    hint(*(each for each in next_commands(job) if not each.startswith("explain")))
    return 0


def explanation(job: Job, now: datetime) -> list[str]:
    """The explanation, line by line."""
    return [line for part in _parts(job, now) for line in part.splitlines()]


def _parts(job: Job, now: datetime) -> Iterator[str]:
    status = job.status
    reason = f" ({status.reason})" if status.reason else ""
    yield f"{job.name} is {job.phase}{reason}" + (f": {status.message}" if status.message else "")
    if status.failure is not None:
        yield culprit(status.failure)
    if status.last_restart is not None and not job.failed:
        yield restart_text(status.last_restart, now)
    for kind in WARNINGS:
        condition = status.condition(kind)
        if condition is not None and condition.status == "True":
            yield f"{kind}: {condition.message}"
    if job.log_tail and (job.failed or job.phase == "Restarting"):
        yield f"last lines of {status.failure.pod if status.failure else 'the program'}:"
        yield "\n".join(f"  {line}" for line in job.log_tail.rstrip().splitlines())
    if text := advice(job.phase, status.reason or ""):
        yield f"try: {text}"


def culprit(failure: Failure) -> str:
    """`first failure: worker-1: ValueError: boom, exit code 1`."""
    ended = f"signal {failure.signal}" if failure.signal else None
    if ended is None and failure.exit_code is not None:
        ended = f"exit code {failure.exit_code}"
    parts = (failure.exception, None if failure.exception else failure.reason, ended)
    return f"last failure: {failure.pod}: {', '.join(part for part in parts if part)}".rstrip(": ")
