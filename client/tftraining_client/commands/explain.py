"""`tftj explain`: why a job failed or does not train, the first culprit, its last lines, and what to try."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from tftraining_api.model.goodput import in_words
from tftraining_api.model.status import MEMORY_BACKUP, LastFailure
from tftraining_client.cluster.async_client import AsyncClient
from tftraining_client.cluster.models import Job
from tftraining_client.commands.advice import advice_for, warnings
from tftraining_client.commands.next_commands import next_commands
from tftraining_client.commands.output import hint, print_raw, say
from tftraining_client.commands.restart_text import avoided_text, restart_text

TOLD = ("reason", "message", "failure", "lastRestart", "avoidedNodes", "goodput")


async def explain(client: AsyncClient, name: str, output: str | None) -> int:
    """Print the explanation; the exit code is 0 whatever the job's state."""
    job = await client.get(name)
    if output is not None:
        print_raw(as_object(job), output)
        return 0
    say("\n".join(explanation(job, datetime.now(UTC))))
    hint(*(each for each in next_commands(job) if not each.startswith("explain")))
    return 0


def explanation(job: Job, now: datetime) -> list[str]:
    """The explanation, line by line."""
    return [line for part in _parts(job, now) for line in part.splitlines()]


def as_object(job: Job) -> dict[str, Any]:
    """The explanation for a program, with the parts of the status that it is about."""
    status = job.raw.get("status") or {}
    return {
        "job": job.name,
        "namespace": job.namespace,
        "phase": job.phase,
        **{name: status[name] for name in TOLD if name in status},
        "warnings": [{"type": each.type, "message": each.message} for each in warnings(job)],
        "try": advice_for(job),
    }


def _parts(job: Job, now: datetime) -> Iterator[str]:
    status = job.status
    reason = f" ({status.reason})" if status.reason else ""
    yield f"{job.name} is {job.phase}{reason}" + (f": {status.message}" if status.message else "")
    if status.failure is not None:
        yield culprit(status.failure)
    if status.last_restart is not None and not job.failed:
        yield restart_text(status.last_restart, now)
    if status.goodput is not None and (time := in_words(status.goodput.until(now))):
        yield f"time: {time}"
    yield from avoided_text(status, now)
    if (backups := status.condition(MEMORY_BACKUP)) is not None:
        yield f"backups in memory: {backups.message}"
    for each in warnings(job):
        yield f"{each.type}: {each.message}"
    if job.log_tail and (job.failed or job.phase == "Restarting"):
        yield f"last lines of {status.failure.pod if status.failure else 'the program'}:"
        yield "\n".join(f"  {line}" for line in job.log_tail.rstrip().splitlines())
    if text := advice_for(job):
        yield f"try: {text}"


def culprit(failure: LastFailure) -> str:
    """`first failure: worker-1: ValueError: boom, exit code 1`."""
    ended = f"signal {failure.signal}" if failure.signal else None
    if ended is None and failure.exit_code is not None:
        ended = f"exit code {failure.exit_code}"
    parts = (failure.exception, None if failure.exception else failure.reason, ended)
    return f"last failure: {failure.pod}: {', '.join(part for part in parts if part)}".rstrip(": ")
