"""`tftj status`: the tree of a job, once or live; in a pipe one line a change, without an import of rich."""

# ruff: noqa: PLC0415
import asyncio
import io
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime

from tftraining_client.cluster.async_client import AsyncClient
from tftraining_client.cluster.models import Job
from tftraining_client.cluster.snapshot import Snapshot
from tftraining_client.commands.next_commands import next_commands
from tftraining_client.commands.output import hint, is_terminal, print_object, say

# As wide as no line of a tree: in a pipe nothing is wrapped.
PIPE_WIDTH = 4000
TICK_SECONDS = 1.0


async def show(client: AsyncClient, name: str, watch: bool, output: str | None) -> int:
    """Print the status; the exit code. With `watch` 1 if the job fails."""
    if watch:
        async with aclosing(client.snapshots(name)) as snapshots:
            if output in ("json", "yaml", "name"):
                return await _objects(snapshots, output)
            return await (_live(snapshots, output == "wide") if is_terminal() else _lines(snapshots))
    if output in ("json", "yaml", "name"):
        print_object((await client.get(name)).raw, output)
        return 0
    snapshot = await client.snapshot(name)
    _print(snapshot, wide=output == "wide")
    hint(*next_commands(snapshot.job))
    return 0


def change_line(job: Job) -> str:
    """One line for a pipe: phase, ready pods, progress and message."""
    status = job.status
    progress = status.progress.display if status.progress else None
    parts = (job.phase, status.ready, progress, f"{status.restarts.counted} restarts", status.reason, status.message)
    return "  ".join(" ".join(str(part).split()) for part in parts if part)


def _print(snapshot: Snapshot, wide: bool) -> None:
    from rich.console import Console

    from tftraining_client.commands.status_tree import status_tree

    tree = status_tree(snapshot, datetime.now(UTC), wide)
    if is_terminal():
        Console(highlight=False).print(tree)
        return
    text = io.StringIO()
    Console(file=text, width=PIPE_WIDTH, highlight=False, color_system=None).print(tree)
    print("\n".join(line.rstrip() for line in text.getvalue().splitlines()))


async def _lines(snapshots: AsyncGenerator[Snapshot, None]) -> int:
    before = ""
    async for snapshot in snapshots:
        if (line := change_line(snapshot.job)) != before:
            say(line)
            before = line
        if snapshot.job.finished:
            return 0 if snapshot.job.succeeded else 1
    raise AssertionError("snapshots have no end")


async def _objects(snapshots: AsyncGenerator[Snapshot, None], output: str) -> int:
    """Print the job after each change, each YAML document after a line `---`."""
    before = ""
    async for snapshot in snapshots:
        job = snapshot.job
        if (version := job.raw["metadata"]["resourceVersion"]) != before:
            print("---\n" if output == "yaml" and before else "", end="")
            print_object(job.raw, output)
            sys.stdout.flush()
            before = version
        if job.finished:
            return 0 if job.succeeded else 1
    raise AssertionError("snapshots have no end")


async def _live(snapshots: AsyncGenerator[Snapshot, None], wide: bool) -> int:
    """Redraw the tree at each change, and each second for the ages, which costs no request."""
    from rich.console import Console
    from rich.live import Live

    from tftraining_client.commands.status_tree import status_tree

    console = Console(highlight=False)
    newest: Snapshot | None = None
    following = asyncio.ensure_future(anext(snapshots))
    try:
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
            while newest is None or not newest.job.finished:
                done, _ = await asyncio.wait({following}, timeout=TICK_SECONDS)
                if done:
                    newest = following.result()
                    following = asyncio.ensure_future(anext(snapshots))
                if newest is not None:
                    live.update(status_tree(newest, datetime.now(UTC), wide), refresh=True)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    hint(*next_commands(newest.job))
    return 0 if newest.job.succeeded else 1
