"""The command `tftj run`, from its arguments to its exit code."""

import asyncio
import contextlib
import os
import secrets
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from tftraining.launch import history
from tftraining_client.errors import UserError
from tftraining_client.local import artifacts, code, volumes
from tftraining_client.local.fault_injection import parse_kill
from tftraining_client.local.memory import memory_for_job
from tftraining_client.local.ports import Ports
from tftraining_client.local.process_spec import Allocation, LocalJob, ProcessSpec, allocate, local_job, process_spec
from tftraining_client.local.runner import Outcome, Runner, check_commands, check_sizes
from tftraining_client.local.screen import make_screen
from tftraining_client.local.summary import Result, summary
from tftraining_client.manifest import read_manifest, with_name
from tftraining_client.overrides import Overrides
from tftraining_client.validation import check_templates, validate

WORKDIR = "training"
INTERRUPTED = "stopped; all processes of the job have ended. Run the same command again to resume from the last backup"


def run(
    file: str, job: str | None, overrides: Overrides, *, workdir: str | None, directory: str | None, kills: list[str]
) -> int:
    """Run the job: 0 if it succeeded, 1 if it failed, 128 + n if signal n stopped `tftj`. UserError for bad input.

    `directory` has the program's code; None: the image has it.
    """
    messages: list[str] = []
    manifest, config_maps = read_manifest(file, job, messages.append)
    manifest = with_name(overrides.applied(manifest, messages.append))
    if directory is not None:
        manifest, config_maps = code.with_code(manifest, config_maps, directory, messages.append)
    stored = validate(manifest)
    messages += check_templates(stored)
    local = local_job(stored, Path(WORKDIR if workdir is None else workdir).resolve(), config_maps)
    messages += _notes(local)
    if workdir is not None and local.directory is None:
        messages.append(f"--workdir {workdir} is ignored: the job has no spec.storage, so no files are kept")
    if stored["spec"]["restartPolicy"]["mode"] == "Recreate":
        messages.append(
            "restartPolicy.mode Recreate is ignored: there are no pods here, so the launchers restart in place"
        )
    with _tidy_exit(), Ports() as ports, tempfile.TemporaryDirectory(prefix="tftj-") as scratch:
        options = kills, overrides.variables
        return asyncio.run(_run(local, options, ports, Path(scratch), messages))


@contextlib.contextmanager
def _tidy_exit() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise SystemExit, so that `tftj` cleans up even before the first launcher starts."""

    def leave(number: int, frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def _run(
    local: LocalJob,
    options: tuple[list[str], Mapping[str, str]],
    ports: Ports,
    scratch: Path,
    messages: list[str],
) -> int:
    asked, variables = options
    allocation = allocate(local, ports, scratch, memory_for_job())
    names = [str(replica) for replica in local.replicas]
    kills = [parse_kill(each, names) for each in asked]
    specs = prepare(local, allocation, variables)
    since = time.time()
    runner = Runner(local, specs, allocation, make_screen(names))
    for note in messages:
        runner.note(note)
    outcome = await runner.run(kills)
    return await _conclude(local, runner, outcome, scratch, since)


def prepare(local: LocalJob, allocation: Allocation, given: Mapping[str, str]) -> list[ProcessSpec]:
    """Create the directories and the secret; the start of each replica. UserError if a replica cannot start."""
    if local.archive is not None:
        code.write(local.archive, allocation.code)
    specs = [process_spec(local, allocation, replica, given) for replica in local.replicas]
    check_sizes(specs)
    check_commands(specs, lambda program, path: shutil.which(program, path=path))
    _make_directory(local)
    _write_secret(allocation.secret_file)
    for spec in specs:
        allocation.temporary_directory(spec.replica).mkdir()
        volumes.write(spec.files)
    return specs


async def _conclude(local: LocalJob, runner: Runner, outcome: Outcome, scratch: Path, since: float) -> int:
    if outcome.stopped is not None:
        runner.note(INTERRUPTED)
        return outcome.stopped
    succeeded = outcome.verdict.get("verdict") == "Succeeded"
    result = Result(
        succeeded=succeeded,
        seconds=runner.seconds,
        reason=str(outcome.verdict.get("reason", "")),
        message=str(outcome.verdict.get("message", "")),
        cleanup=await artifacts.clean(local, scratch),
        models=tuple(artifacts.models(local.directory, since)) if local.directory else (),
        directory=local.directory,
        program=called(),
        has_history=local.directory is not None and (local.directory / history.FILE).exists(),
    )
    print("\n".join(["", *summary(local.job.key.name, result, runner.timeline)]), flush=True)
    return 0 if succeeded else 1


def called() -> str:
    """How a shell calls `tftj` again: an environment that is not active is not on its PATH."""
    if shutil.which("tftj"):
        return "tftj"
    path = Path(sys.argv[0])
    return shlex.quote(str(path)) if path.name == "tftj" else f"{shlex.quote(sys.executable)} -m tftraining_client"


def _notes(local: LocalJob) -> list[str]:
    """The differences from a cluster that concern this job, one line each."""
    count, where = len(local.replicas), local.directory or "no storage"
    messages = [f"{local.job.key.name}: {count} replica{'s' * (count != 1)} on this machine, {where}, {sys.executable}"]
    pods = [local.spec.template_of(replica.role)["spec"] for replica in local.replicas]
    containers = [each for pod in pods for each in (*(pod.get("initContainers") or ()), *pod["containers"])]
    others = sorted({each["name"] for each in containers} - {"tensorflow"})
    if others:
        messages.append(f"running only the container tensorflow; skipped: {', '.join(others)}")
    if any(each.get("envFrom") for each in containers):
        messages.append("envFrom is ignored: set its variables with --env NAME=VALUE")
    missing = sorted({name for pod in pods for name in volumes.missing_config_maps(pod, local.config_maps)})
    if missing:
        messages.append(f"skipped volumes of ConfigMaps that are not in this file: {', '.join(missing)}")
    if local.spec.code is not None and local.archive is None:
        messages.append(code.IGNORED)
    if local.directory and _is_used(local.directory):
        messages.append(f"{local.directory} has files of an earlier run: the training resumes from its backup, if any")
    return messages


def _is_used(directory: Path) -> bool:
    """Whether the directory has entries that do not begin with a dot; False if it cannot be read."""
    try:
        return any(not each.name.startswith(".") for each in directory.iterdir())
    except OSError:
        return False


def _make_directory(local: LocalJob) -> None:
    if local.directory is None:
        return
    try:
        local.directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot create the directory {local.directory}: {(error.strerror or '').lower()}") from error
    if not os.access(local.directory, os.R_OK | os.W_OK | os.X_OK):
        raise UserError(f"cannot write to the directory {local.directory}: choose another --workdir")


def _write_secret(path: Path) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secrets.token_bytes(32))
