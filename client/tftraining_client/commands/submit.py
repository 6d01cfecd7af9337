"""`tftj submit`."""

import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import yaml

from tftraining_client.cluster.async_client import AsyncClient
from tftraining_client.cluster.models import Job
from tftraining_client.cluster.submission import Submission, in_place_of, prepare
from tftraining_client.code.package import Package, mebibytes, summary
from tftraining_client.code.submission import needs_server_side_apply
from tftraining_client.commands import status
from tftraining_client.commands.next_commands import next_commands
from tftraining_client.commands.output import hint, note, print_json, print_object, resource_name, say
from tftraining_client.commands.progress import shown
from tftraining_client.errors import JobNotFound, UserError
from tftraining_client.overrides import Overrides, with_variables
from tftraining_client.visible import visible

SERVER_SIDE = (
    "the ConfigMap of the code is too large for the annotation of a plain kubectl apply: use "
    "`kubectl apply --server-side -f FILE`"
)


@dataclass(frozen=True)
class ProgramOptions:
    """The options of the program: a directory, or a commit with the Secret of its repository."""

    code: str | None = None
    git: str | None = None
    git_secret: str | None = None


def with_overrides(overrides: Overrides, job: dict[str, Any]) -> dict[str, Any]:
    """The job as the options change it."""
    return with_variables(overrides.applied(job, note), overrides.variables)


@dataclass(frozen=True)
class Replacement:
    """The options of a job that takes the place of one of its name."""

    replace: bool = False
    fresh: bool = False
    yes: bool = False


async def submit(  # noqa: PLR0913, PLR0917  a parameter is an option
    client: AsyncClient,
    file: str,
    name: str | None,
    program: ProgramOptions,
    overrides: Overrides,
    replacement: Replacement,
    watch: bool,
    dry_run: bool,
    output: str | None,
) -> int:
    """Create the job of the file; the exit code, with `watch` that of `tftj status --watch`."""
    submission = prepare(
        file,
        note,
        job=name,
        code=program.code,
        git=program.git,
        git_secret=program.git_secret,
        change=partial(with_overrides, overrides),
    )
    for text in packed(submission.program, dry_run):
        note(text)
    old = None
    if replacement.replace:
        submission, old = await _in_place(client, submission, replacement, dry_run)
    with shown("code") as progress:
        job = await client.submit(submission, dry_run=dry_run, replaces=old, progress=progress)
    if dry_run and submission.uploaded is not None:
        note(would_upload(submission, submission.uploaded))
    if dry_run and output in ("json", "yaml"):
        print_submission(submission, output)
        return 0
    if output is not None:
        print_object(job.raw, output)
        return 0
    say(f"{resource_name(job.name)} {'replaced' if old else 'created'}{' (dry run)' if dry_run else ''}")
    if watch:
        client.use_namespace(job.namespace)
        return await status.show(client, job.name, watch=True, output=None)
    hint(*(_without_dry_run(file, name, program, overrides, replacement) if dry_run else next_commands(job)))
    return 0


async def _in_place(
    client: AsyncClient, submission: Submission, replacement: Replacement, dry_run: bool
) -> tuple[Submission, Job | None]:
    """The submission with its directory, and the job of its name, if there is one and the person lets it go."""
    name = (submission.job.get("metadata") or {}).get("name")
    if not name:
        raise UserError("--replace: the manifest has no metadata.name, so each job has a name of its own")
    old = None
    with suppress(JobNotFound):
        old = await client.in_namespace(submission.namespace or await client.own_namespace()).get(name)
    now = f"{datetime.now(UTC):%Y%m%d-%H%M%S}" if replacement.fresh else None
    placed = in_place_of(submission, old.raw if old else {}, now)
    if placed is not submission:
        begins = "begins anew" if replacement.fresh else "goes on"
        note(f"the job {begins} in the directory {placed.job['spec']['storage']['directory']} of its storage")
    if old is not None and not (old.finished or dry_run or replacement.yes):
        _ask(old)
    return placed, old


def _ask(job: Job) -> None:
    """Ask at the terminal whether a job that has not ended may go; UserError unless the answer is yes."""
    where = f"{job.phase}, epoch {job.epoch}" if job.epoch else job.phase
    if not sys.stdin.isatty():
        raise UserError(f"job {job.name} has not ended ({where}): --yes replaces it")
    # asyncio would wait for the line before it obeys Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        question = visible(f"job {job.name} has not ended ({where}): replace it? [y/N] ")
        print(question, end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
    finally:
        signal.signal(signal.SIGINT, before)
    if answer.strip().lower() not in ("y", "yes"):
        raise UserError(f"nothing is changed: job {job.name} stays")


def packed(program: Package | None, listed: bool) -> Iterator[str]:
    """What goes into the cluster of a directory; `listed`: each file."""
    if program is not None:
        yield summary(program) + ("" if listed else "; --dry-run lists them")
        for path, size in program.sizes if listed else ():
            yield f"  {path} ({size} bytes)"


def _without_dry_run(
    file: str, name: str | None, program: ProgramOptions, overrides: Overrides, replacement: Replacement
) -> tuple[str, ...]:
    """The command that creates the job; none if the file comes from another command."""
    if file == "-":
        return ()
    given = {"--job": name, "--code": program.code, "--git": program.git, "--git-secret": program.git_secret}
    words = (*((option, value) for option, value in given.items() if value is not None), *overrides.words())
    options = "".join(f" {option} {shlex.quote(value)}" for option, value in words)
    options += "".join(f" --{each}" for each, wanted in asdict(replacement).items() if wanted)
    return (f"submit -f {shlex.quote(file)}{options}",)


def would_upload(submission: Submission, package: Package) -> str:
    """The message about the archive of a job that is not created."""
    volume = submission.job["spec"]["storage"]["volume"]
    claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
    place = f"the PersistentVolumeClaim {claim}" if claim else f"the volume {', '.join(volume)}"
    path = submission.job["spec"]["code"]["storage"]["path"]
    return (
        f"without --dry-run the code ({mebibytes(len(package.data))}) is uploaded first, to {path} in {place}; kubectl "
        "alone does not upload it"
    )


def print_submission(submission: Submission, output: str) -> None:
    """Print the objects as `kubectl apply` takes them."""
    if output == "json":
        print_json(_one(submission.objects))
    else:
        print(yaml.safe_dump_all(submission.objects, sort_keys=False, allow_unicode=True), end="")
    if submission.archive is not None and needs_server_side_apply(submission.archive):
        note(SERVER_SIDE)


def _one(objects: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if len(objects) == 1:
        return objects[0]
    return {"apiVersion": "v1", "kind": "List", "items": list(objects)}
