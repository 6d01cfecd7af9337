"""`tftj init`: the manifest of a program on standard output, from options, or from questions on a terminal."""

import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import yaml

from tftraining_client.commands.output import note
from tftraining_client.errors import UserError
from tftraining_client.function_job import IMAGE, Options, job_manifest
from tftraining_client.validation import NotInstalled, check_templates, validate

CLAIM = "training"  # as in the examples
GPU = "nvidia.com/gpu"


@dataclass(frozen=True)
class Wanted:
    """The options; None for what was not given."""

    program: str | None = None
    name: str | None = None
    workers: int | None = None
    image: str | None = None
    claim: str | None = None
    gpus: int | None = None


def init(wanted: Wanted) -> int:
    """Print the manifest, once it is known to be valid; the exit code."""
    if wanted.program is None:
        wanted = with_answers(wanted)
    words = command(str(wanted.program))
    job = manifest(wanted, words)
    try:
        for text in check_templates(validate(job)):
            note(text)
    except NotInstalled as error:
        note(f"{error}; the API server validates the job")
    print(f"# With this text in job.yaml, on this machine:\n#   tftj run job.yaml\n# On a cluster{_how(words)}")
    print(yaml.safe_dump(job, sort_keys=False, allow_unicode=True), end="")
    return 0


def _how(words: list[str]) -> str:
    if _brings_file(words):
        return ", with the program of this directory:\n#   tftj submit job.yaml --code ."
    return ", where the image has the program:\n#   tftj submit job.yaml"


def with_answers(wanted: Wanted) -> Wanted:
    """The answers of the person at the terminal to what no option says; UserError where nobody is there."""
    if not sys.stdin.isatty():
        raise UserError("init takes PROGRAM, the program of a worker; see tftj init --help")
    return Wanted(
        program=_answer("program, such as train.py", None),
        name=wanted.name,
        workers=_number("workers", 2) if wanted.workers is None else wanted.workers,
        image=wanted.image or _answer("image", IMAGE),
        claim=_answer("PersistentVolumeClaim for backups and results, - for none", CLAIM)
        if wanted.claim is None
        else wanted.claim,
        gpus=_number("GPUs of each worker", 0) if wanted.gpus is None else wanted.gpus,
    )


def _answer(question: str, default: str | None) -> str:
    """The answer; the question is on standard error, since the manifest may go into a file."""
    print(f"{question}{f' [{default}]' if default else ''}: ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line.strip() and (default is None or not line):
        raise UserError("init has no answer to its question")
    return line.strip() or str(default)


def _number(question: str, default: int) -> int:
    answer = _answer(question, str(default))
    if not answer.isdecimal():
        raise UserError(f"{question}: {answer} is no number")
    return int(answer)


def command(program: str) -> list[str]:
    """The command of a worker; UserError for a file that neither this directory nor an image has."""
    try:
        words = shlex.split(program)
    except ValueError as error:
        raise UserError(f"{program}: {error}") from error
    if not words:
        raise UserError("the program is empty: name a file, such as train.py")
    if not words[0].endswith(".py"):
        return words
    if not PurePath(words[0]).is_absolute():
        path = Path(words[0])
        if not path.is_file() or Path.cwd() not in path.resolve().parents:
            raise UserError(f"{words[0]}: no such file below this directory, which is what a cluster gets of it")
    return ["python", *words]


def _brings_file(words: list[str]) -> bool:
    """Whether the program is a file of this directory."""
    return any(each.endswith(".py") and Path(each).is_file() and not Path(each).is_absolute() for each in words[:2])


def manifest(wanted: Wanted, words: list[str]) -> dict[str, Any]:
    """The job of the command."""
    container: dict[str, Any] = {"name": "tensorflow", "command": words}
    if wanted.gpus:
        container["resources"] = {"limits": {GPU: wanted.gpus}}
    claim = CLAIM if wanted.claim is None else wanted.claim
    options = Options(
        workers=2 if wanted.workers is None else wanted.workers,
        image=wanted.image or IMAGE,
        storage=claim if claim not in ("", "-") else None,
        spec={"template": {"spec": {"containers": [container]}}},
    )
    return job_manifest(wanted.name or _name(words), options)


def _name(words: list[str]) -> str:
    """A name of the program's file."""
    file = next((each for each in words if each.endswith(".py")), words[-1])
    return re.sub(r"[^a-z0-9]+", "-", PurePath(file).stem.lower()).strip("-0123456789")[:40].rstrip("-") or CLAIM
