"""`tftj submit`."""

from tftraining_client.cluster.async_client import AsyncClient
from tftraining_client.commands import status
from tftraining_client.commands.output import complete, hint, print_raw, resource_name


async def submit(
    client: AsyncClient, file: str, name: str | None, watch: bool, dry_run: bool, output: str | None
) -> int:
    """Create the job of the file; the exit code, with `watch` that of `tftj status --watch`."""
    job = await client.submit(file, job=name, dry_run=dry_run)
    if output in ("json", "yaml"):
        print_raw(complete(job.raw), output)
        return 0
    created = f"{resource_name(job.name)} created{' (dry run)' if dry_run else ''}"
    print(resource_name(job.name) if output == "name" else created, flush=True)
    if watch:
        client.use_namespace(job.namespace)
        return await status.show(client, job.name, watch=True, output=None)
    if not dry_run:
        hint(*status.next_commands(job))
    return 0
