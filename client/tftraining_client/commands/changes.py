"""`tftj wait`, `suspend`, `resume`, `restart`, `scale` and `delete`."""

from collections.abc import Sequence

from tftraining_client.cluster.async_client import AsyncClient
from tftraining_client.commands.output import hint, resource_name


async def wait(client: AsyncClient, name: str, state: str, timeout: float | None) -> int:  # noqa: ASYNC109
    """Wait for the state; 0 once the job has reached it. JobEnded and WaitTimeout carry the other exit codes."""
    job = await client.wait(name, state, timeout)
    print(f"{resource_name(job.name)}: {job.phase}" + (f", epoch {job.epoch}" if job.epoch else ""))
    return 0


async def suspend(client: AsyncClient, name: str) -> int:
    """Suspend the job; the exit code."""
    before = await client.get(name)
    await client.suspend(name)
    print(f"{resource_name(name)} {'is suspended already' if before.suspended else 'suspended'}")
    hint(f"resume {name}", f"status {name}")
    return 0


async def resume(client: AsyncClient, name: str) -> int:
    """Resume the job; the exit code."""
    before = await client.get(name)
    await client.resume(name)
    print(f"{resource_name(name)} {'resumed' if before.suspended else 'is not suspended'}")
    hint(f"status {name} --watch")
    return 0


async def restart(client: AsyncClient, name: str) -> int:
    """Restart the job; the exit code."""
    await client.restart(name)
    print(f"{resource_name(name)} restarted")
    hint(f"status {name} --watch")
    return 0


async def scale(client: AsyncClient, name: str, replicas: int) -> int:
    """Change the number of workers; the exit code."""
    await client.scale(name, replicas)
    print(f"{resource_name(name)} scaled to {replicas} workers")
    hint(f"status {name} --watch")
    return 0


async def delete(client: AsyncClient, names: Sequence[str], wait: bool) -> int:
    """Delete the jobs; the exit code."""
    for name in names:
        await client.delete(name, wait=wait)
        print(f"{resource_name(name)} deleted", flush=True)
    return 0
