"""`tftj list`."""

from collections.abc import Sequence
from datetime import UTC, datetime

from tftraining_client.cluster.async_client import AsyncClient
from tftraining_client.cluster.models import Job
from tftraining_client.commands.output import (
    PHASES,
    Cell,
    Column,
    age,
    as_list,
    hint,
    note,
    print_raw,
    print_table,
    resource_name,
    say,
)

NAMESPACE = Column("NAMESPACE", rank=2)
COLUMNS = (
    Column("NAME"),
    Column("PHASE"),
    Column("READY", rank=4),
    Column("RESTARTS", rank=5),
    Column("PROGRESS", rank=1),
    Column("AGE", rank=3),
)
WIDE = (Column("REASON", rank=6), Column("MESSAGE", rank=7, text=True))


async def list_jobs(client: AsyncClient, all_namespaces: bool, selector: str, output: str | None) -> int:
    """Print the jobs; the exit code."""
    jobs = await client.list(all_namespaces=all_namespaces, selector=selector)
    if output in ("json", "yaml"):
        print_raw(as_list(job.raw for job in jobs), output)
    elif output == "name":
        for job in jobs:
            say(resource_name(job.name))
    elif jobs:
        print_table(*job_table(jobs, all_namespaces, output == "wide", datetime.now(UTC)), wide=output == "wide")
        hint("status JOB --watch", "logs JOB --follow")
    else:
        note("no jobs" if all_namespaces else f"no jobs in namespace {await client.own_namespace()}")
        hint("submit -f FILE", *(() if all_namespaces else ("list -A",)))
    return 0


def job_table(
    jobs: Sequence[Job], all_namespaces: bool, wide: bool, now: datetime
) -> tuple[Sequence[Column], Sequence[Sequence[Cell]]]:
    """The columns and the rows of a table of jobs."""
    columns = (*((NAMESPACE,) if all_namespaces else ()), *COLUMNS, *(WIDE if wide else ()))
    return columns, [_row(job, all_namespaces, wide, now) for job in jobs]


def _row(job: Job, all_namespaces: bool, wide: bool, now: datetime) -> list[Cell]:
    status = job.status
    cells: list[Cell] = [
        (job.name, ""),
        (job.phase, PHASES.get(job.phase, "cyan")),
        (status.ready or "", ""),
        (str(status.restarts.counted), ""),
        ((status.progress.display if status.progress else None) or "", ""),
        (age(job.created, now), ""),
    ]
    wider: list[Cell] = [(status.reason or "", ""), (" ".join((status.message or "").split()), "")]
    return [*([(job.namespace, "")] if all_namespaces else []), *cells, *(wider if wide else [])]
