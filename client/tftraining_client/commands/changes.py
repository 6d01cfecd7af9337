"""`tftj wait`, `suspend`, `resume`, `restart`, `scale` and `delete`."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from tftraining_api.model.names import KIND
from tftraining_client.cluster.async_client import AsyncClient
from tftraining_client.cluster.models import Job
from tftraining_client.commands.next_commands import next_commands
from tftraining_client.commands.output import hint, note, print_object, resource_name, say
from tftraining_client.errors import UserError
from tftraining_client.manifest import read_documents


async def wait(
    client: AsyncClient,
    name: str,
    state: str,
    timeout: float | None,  # noqa: ASYNC109
    output: str | None,
) -> int:
    """Wait for the state; 0 once the job has reached it. JobEnded and WaitTimeout carry the other exit codes."""
    job = await client.wait(name, state, timeout)
    if output is not None:
        print_object(job.raw, output)
        return 0
    say(f"{resource_name(job.name)}: {job.phase}" + (f", epoch {job.epoch}" if job.epoch else ""))
    hint(*next_commands(job))
    return 0


async def suspend(client: AsyncClient, name: str, output: str | None) -> int:
    """Suspend the job; the exit code."""
    before = await client.get(name)
    job = await client.suspend(name)
    _tell(job, "is suspended already" if before.suspended else "suspended", output, f"resume {name}", f"status {name}")
    return 0


async def resume(client: AsyncClient, name: str, output: str | None) -> int:
    """Resume the job; the exit code."""
    before = await client.get(name)
    job = await client.resume(name)
    _tell(job, "resumed" if before.suspended else "is not suspended", output, f"status {name} --watch")
    return 0


async def restart(client: AsyncClient, name: str, output: str | None) -> int:
    """Restart the job; the exit code."""
    _tell(await client.restart(name), "restarted", output, f"status {name} --watch")
    return 0


async def scale(client: AsyncClient, name: str, replicas: int, output: str | None) -> int:
    """Change the number of workers; the exit code."""
    await client.scale(name, replicas)
    if output in (None, "name"):  # without a request that may fail when the change is made
        say(resource_name(name) + ("" if output else f" scaled to {replicas} workers"))
        if output is None:
            hint(f"status {name} --watch")
    else:
        print_object((await client.get(name)).raw, output)
    return 0


@dataclass(frozen=True)
class Meant:
    """The jobs that are meant: by name, by labels or by a file; otherwise all."""

    names: tuple[str, ...] = ()
    selector: str = ""
    file: str | None = None

    async def jobs(self, client: AsyncClient) -> Sequence[str]:
        """Their names. The client goes to the namespace of a file, as `submit` does."""
        if self.names:
            return self.names
        if self.file is None:
            return [job.name for job in await client.list(selector=self.selector)]
        names, namespaces = jobs_of_file(self.file)
        for namespace in namespaces:
            client.use_namespace(namespace)
        return names


def jobs_of_file(file: str) -> tuple[list[str], list[str]]:
    """The names of the jobs in a file, and the namespace that it names; UserError for several, and for no name."""
    jobs = [each for each in read_documents(file) if each.get("kind") == KIND]
    metadata = [each["metadata"] if isinstance(each.get("metadata"), dict) else {} for each in jobs]
    names = [str(each["name"]) for each in metadata if each.get("name")]
    if not jobs or len(names) < len(jobs):
        raise UserError(f"{file}: {'a job has no name' if jobs else f'found no {KIND}'}")
    namespaces = sorted({str(each.get("namespace") or "") for each in metadata})
    if len(namespaces) > 1:
        raise UserError(f"{file}: the jobs are in several namespaces: delete them by their names")
    return names, [each for each in namespaces if each]


async def delete(client: AsyncClient, meant: Meant, wait: bool, output: str | None) -> int:
    """Delete the jobs; the exit code."""
    names = await meant.jobs(client)
    if not names:
        note("there is no such job")

    async def one(name: str) -> UserError | None:
        try:
            await client.delete(name, wait=wait)
        except UserError as error:
            return error
        say(resource_name(name) + ("" if output else " deleted"))
        return None

    # One that is missing keeps no other one; what holds for all is told once.
    found = await asyncio.gather(*map(one, dict.fromkeys(names)))
    errors = list({str(error): error for error in found if error}.values())
    for error in errors[:-1]:
        note(str(error))
    if errors:
        raise errors[-1]
    if output is None:
        hint("list")
    return 0


def _tell(job: Job, done: str, output: str | None, *commands: str) -> None:
    """Print the job in the format, or in one line what was done to it."""
    if output is not None:
        print_object(job.raw, output)
        return
    say(f"{resource_name(job.name)} {done}")
    hint(*commands)
