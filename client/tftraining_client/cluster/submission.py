"""What `submit` creates: the job, the ConfigMaps of its file, and its program, in a ConfigMap or in the storage.

The ConfigMap with the program belongs to the job (owner reference), so that both are deleted together.
"""

import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tftraining_api.kube.api import Api, ApiError, Query
from tftraining_api.model.names import API_VERSION, KIND
from tftraining_api.model.spec import Manifest
from tftraining_client.cluster.models import Job
from tftraining_client.cluster.paths import core_path, jobs_path, object_path
from tftraining_client.errors import UserError

if TYPE_CHECKING:
    from tftraining_client.code import Package

ATTEMPTS = 5
FRESH = r"\d{8}-\d{6}"  # the time at which a directory was made, in its name
Upload = Callable[[Manifest, "Package"], Awaitable[None]]


@dataclass(frozen=True)
class Submission:
    """The objects of one job. Its `program` is in the ConfigMap `archive`, or `uploaded` to the job's storage."""

    job: Manifest
    config_maps: tuple[Manifest, ...] = ()
    archive: Manifest | None = None
    uploaded: "Package | None" = None
    program: "Package | None" = None

    @property
    def objects(self) -> list[Manifest]:
        """All objects, the job last."""
        return [*self.config_maps, *([self.archive] if self.archive else []), self.job]

    @property
    def namespace(self) -> str | None:
        """The namespace that the manifest names."""
        named = (self.job.get("metadata") or {}).get("namespace")
        return str(named) if named else None


def prepare(  # noqa: PLR0913  each an option of submit
    manifest: Mapping[str, Any] | str | Path,
    notify: Callable[[str], None],
    *,
    job: str | None = None,
    code: str | Path | None = None,
    git: str | None = None,
    git_secret: str | None = None,
    change: Callable[[Manifest], Manifest] = lambda job: job,
) -> Submission:
    """The objects of a manifest or a file, with a directory (`code`) or a commit (`git`, URL@SHA) as its program.
    `change` is made in the job first."""
    if code is not None and git is not None:
        raise UserError("a job has one program: use --code or --git")
    if git_secret is not None and git is None:
        raise UserError("--git-secret is for the repository of --git URL@SHA")
    raw, config_maps = _read(manifest, job, notify)
    raw = change(raw)
    from tftraining_client.validation import template_findings  # noqa: PLC0415  only for a submission

    for each in template_findings(raw):
        notify(f"{each}; the pods cannot be created" if each.certain else str(each))
    if code is None and git is None:
        return Submission(raw, tuple(config_maps))
    from tftraining_client.code import left_out, pack, with_git  # noqa: PLC0415  only for programs

    if git is not None:
        return Submission(with_git(raw, git, git_secret), tuple(config_maps))
    from tftraining_client.manifest import with_name  # noqa: PLC0415  only for programs

    package = pack(str(code))
    for text in left_out(package):
        notify(text)
    return with_program(Submission(with_name(raw), tuple(config_maps)), package)


def with_program(submission: Submission, package: "Package") -> Submission:
    """The submission with a package as its program. UserError for a large one if the job has no storage."""
    from tftraining_client.code import is_large, with_package, with_upload  # noqa: PLC0415  only for programs

    if is_large(package):
        return replace(submission, job=with_upload(submission.job, package), uploaded=package, program=package)
    job, archive = with_package(submission.job, package)
    return replace(submission, job=job, archive=archive, program=package)


def in_place_of(submission: Submission, old: Manifest, fresh: str | None = None) -> Submission:
    """The submission with the directory of a job that takes the place of `old`. With `fresh`, a time, another one, in
    which no job has saved; otherwise that of the job's manifest, or the one that was made so for the job before."""
    spec = submission.job.get("spec") or {}
    storage = spec.get("storage")
    if not storage:
        if fresh:
            raise UserError("--fresh: the job has no spec.storage, so each new job begins from the start")
        return submission
    own = storage.get("directory") or submission.job["metadata"]["name"]
    before = ((old.get("spec") or {}).get("storage") or {}).get("directory") or ""
    if fresh:
        own = f"{own}-{fresh}"
    elif re.fullmatch(rf"{re.escape(own)}-{FRESH}", before):
        own = before
    else:
        return submission
    job = {**submission.job, "spec": {**spec, "storage": {**storage, "directory": own}}}
    moved = replace(submission, job=job)
    # The path of a large program is in the directory.
    return moved if submission.uploaded is None else with_program(moved, submission.uploaded)


def _read(
    manifest: Mapping[str, Any] | str | Path, job: str | None, notify: Callable[[str], None]
) -> tuple[Manifest, list[Manifest]]:
    if isinstance(manifest, Mapping):
        return dict(manifest), []
    from tftraining_client.manifest import read_submission  # noqa: PLC0415  only for files

    return read_submission(str(manifest), job, notify)


async def create(
    api: Api,
    namespace: str,
    submission: Submission,
    dry_run: bool,
    upload: Upload,
    make_room: Callable[[], Awaitable[None]] | None = None,
) -> Manifest:
    """Create the objects; the job as the API server has it. ApiError, or UserError for a ConfigMap of other content.

    `make_room` removes the job whose place the new one takes, as late as possible: the API server has then accepted all
    objects as a dry run, and the program is there. The ConfigMaps of the file take the place of those that it has left.
    """
    strict: Query = [("fieldValidation", "Strict")]
    dry: Query = [*strict, ("dryRun", "All")]
    jobs, path = jobs_path(namespace), core_path(namespace, "configmaps")
    replaces = submission.job["metadata"]["name"] if make_room is not None else None
    # First the job as a dry run: a wrong manifest must leave nothing behind.
    if dry_run or replaces or len(submission.objects) > 1 or submission.uploaded is not None:
        checked = await _check(api, jobs, submission.job, dry, replaces)
        for each in submission.config_maps if dry_run or replaces else ():
            await _create_config_map(api, path, each, dry, replaces)
        if dry_run:
            if submission.archive is not None:
                await _create_archive(api, path, submission, submission.archive, dry)
            return checked
        if submission.uploaded is not None:
            await upload(checked, submission.uploaded)
    created = False
    if submission.archive is not None:
        submission, created = await _create_archive(api, path, submission, submission.archive, strict)
    archive = object_path(path, submission.archive["metadata"]["name"]) if submission.archive else ""
    try:
        if make_room is not None:
            await make_room()
        for each in submission.config_maps:
            await _create_config_map(api, path, each, strict, replaces)
        job = await api.request("POST", jobs, submission.job, strict)
    except BaseException:
        if created:
            with suppress(ApiError):
                await api.request("DELETE", archive)
        raise
    if archive:
        await api.request("PATCH", archive, {"metadata": {"ownerReferences": [_owner(job)]}})
    return job


async def _check(api: Api, jobs: str, job: Manifest, dry: Query, replaces: str | None) -> Manifest:
    """The job as the API server would have it, which is asked under another name if the job's own is still taken."""
    if replaces is None:
        return await api.request("POST", jobs, job, dry)
    # Not longer than the name, whose length has a limit.
    other = f"{replaces[:-6] or replaces[:1]}{secrets.token_hex(3)}"
    checked = await api.request("POST", jobs, {**job, "metadata": {**job["metadata"], "name": other}}, dry)
    return {**checked, "metadata": {**checked["metadata"], "name": replaces}}


def _owner(job: Manifest) -> Manifest:
    metadata = job["metadata"]
    return {"apiVersion": API_VERSION, "kind": KIND, "name": metadata["name"], "uid": metadata["uid"]}


async def _create_config_map(api: Api, path: str, raw: Manifest, query: Query, replaces: str | None) -> None:
    """Create a ConfigMap; one that is there already must have the same content, or gets it if the job of the name
    `replaces` is the only one that reads it."""
    present = await _create_or_get(api, path, raw, query)
    if present is None or _same(present, raw):
        return
    name, namespace = raw["metadata"]["name"], present["metadata"]["namespace"]
    if replaces is None:
        raise UserError(f"ConfigMap {name} exists in namespace {namespace} with other content: choose another name")
    jobs, _ = await api.list(jobs_path(namespace), [])
    for job in map(Job.of, jobs):
        if job.name != replaces and not job.finished and _contains(job.raw["spec"], name):
            raise UserError(f"ConfigMap {name} has other content, and job {job.name} reads it: choose another name")
    content = {part: raw.get(part) or {} for part in ("data", "binaryData")}
    await api.request("PUT", object_path(path, name), {**present, **content}, query)


def _contains(tree: Any, text: str) -> bool:
    """Whether a value in a manifest is the text."""
    if isinstance(tree, Mapping):
        tree = list(tree.values())
    return any(_contains(each, text) for each in tree) if isinstance(tree, list) else bool(tree == text)


async def _create_archive(
    api: Api, path: str, submission: Submission, archive: Manifest, query: Query
) -> tuple[Submission, bool]:
    """Create the ConfigMap of the program; whether it is new. One that belongs to another job, such as a deleted one of
    the same name, may go at any moment: the program then gets a ConfigMap of another name."""
    present = await _create_or_get(api, path, archive, query)
    if present is None:
        return submission, True
    if _same(present, archive) and present.get("immutable") and not present["metadata"].get("ownerReferences"):
        return submission, False
    from tftraining_client.code.submission import renamed  # noqa: PLC0415  only for programs

    job, other = renamed(submission.job, archive, f"{archive['metadata']['name']}-{secrets.token_hex(3)}")
    await api.request("POST", path, other, query)
    return replace(submission, job=job, archive=other), True


async def _create_or_get(api: Api, path: str, raw: Manifest, query: Query, attempts: int = ATTEMPTS) -> Manifest | None:
    """None for a ConfigMap that was created; the present one if there is one of the name."""
    try:
        await api.request("POST", path, raw, query)
    except ApiError as error:
        if not error.exists:
            raise
    else:
        return None
    try:
        return await api.request("GET", object_path(path, raw["metadata"]["name"]))
    except ApiError as error:
        # The ConfigMap of a deleted job may be removed between the two requests.
        if error.status != 404 or attempts == 1:
            raise
    return await _create_or_get(api, path, raw, query, attempts - 1)


def _same(one: Manifest, other: Manifest) -> bool:
    return all((one.get(part) or {}) == (other.get(part) or {}) for part in ("data", "binaryData"))
