"""`tftj submit`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from tftraining_client.cluster.async_client import AsyncClient
from tftraining_client.cluster.submission import Submission, prepare
from tftraining_client.code.submission import needs_server_side_apply
from tftraining_client.commands import status
from tftraining_client.commands.output import complete, hint, note, print_raw, resource_name

SERVER_SIDE = (
    "the ConfigMap of the code is too large for the annotation of a plain kubectl apply: use "
    "`kubectl apply --server-side -f FILE`"
)


@dataclass(frozen=True)
class Program:
    """The options of the program: a directory, or a commit with the Secret of its repository."""

    code: str | None = None
    git: str | None = None
    git_secret: str | None = None


async def submit(  # noqa: PLR0913, PLR0917  a parameter is an option
    client: AsyncClient,
    file: str,
    name: str | None,
    program: Program,
    watch: bool,
    dry_run: bool,
    output: str | None,
) -> int:
    """Create the job of the file; the exit code, with `watch` that of `tftj status --watch`."""
    submission = prepare(file, note, job=name, code=program.code, git=program.git, git_secret=program.git_secret)
    job = await client.submit(submission, dry_run=dry_run)
    if output in ("json", "yaml"):
        if dry_run:
            print_submission(submission, output)
        else:
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


def print_submission(submission: Submission, output: str) -> None:
    """Print the objects as `kubectl apply` takes them."""
    if output == "json":
        print(json.dumps(_one(submission.objects), indent=2, ensure_ascii=False))
    else:
        print(yaml.safe_dump_all(submission.objects, sort_keys=False, allow_unicode=True), end="")
    if submission.archive is not None and needs_server_side_apply(submission.archive):
        note(SERVER_SIDE)


def _one(objects: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if len(objects) == 1:
        return objects[0]
    return {"apiVersion": "v1", "kind": "List", "items": list(objects)}
