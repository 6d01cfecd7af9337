"""`tftj convert`: the TFTrainingJob of a TFJob on standard output, a note for each difference on standard error."""

import shlex
from collections.abc import Sequence

import yaml

from tftraining_client.cluster.async_client import AsyncClient
from tftraining_client.commands.output import hint_lines, note, print_json, say
from tftraining_client.errors import UserError
from tftraining_client.manifest import read_documents
from tftraining_client.tfjob import KIND, Choices, convert, is_tfjob
from tftraining_client.tfjob.notes import Json
from tftraining_client.validation import InvalidManifest, NotInstalled, validate

WIDTH = 120


def choices_of(entrypoint: str | None, gang_scheduler: str | None, storage: str | None) -> Choices:
    """The options of the command; UserError for an entrypoint that is no command line."""
    try:
        words = None if entrypoint is None else tuple(shlex.split(entrypoint))
    except ValueError as error:
        raise UserError(f"--entrypoint {entrypoint}: {error}") from error
    return Choices(words, gang_scheduler, storage)


def convert_file(path: str, choices: Choices, output: str | None) -> int:
    """Print the jobs of the TFJobs in a file (`-`: standard input); the exit code."""
    documents = [item for each in read_documents(path) for item in _expanded(each)]
    tfjobs = [each for each in documents if is_tfjob(each)]
    if not tfjobs:
        kinds = sorted({f"{each.get('kind')} ({each.get('apiVersion')})" for each in documents})
        raise UserError(f"{path}: found no {KIND} of kubeflow.org, only {', '.join(kinds)}")
    for each in documents:
        if not is_tfjob(each):
            name = (each.get("metadata") or {}).get("name")
            note(f"{each.get('kind')} {name} is not converted: apply it as before")
    return print_jobs([_converted(each, choices, path) for each in tfjobs], output)


async def convert_from_cluster(client: AsyncClient, name: str, choices: Choices, output: str | None) -> int:
    """Print the job of a TFJob on the cluster; the exit code."""
    return print_jobs([_converted(await client.tfjob(name), choices, f"TFJob {name}")], output)


def print_jobs(jobs: Sequence[Json], output: str | None) -> int:
    """Print the jobs as YAML, JSON or names; the exit code."""
    if output == "name":
        say("\n".join(str(job["metadata"]["name"]) for job in jobs))
    elif output == "json":
        document = jobs[0] if len(jobs) == 1 else {"apiVersion": "v1", "kind": "List", "items": list(jobs)}
        print_json(document)
    else:
        text = yaml.safe_dump_all(jobs, sort_keys=False, allow_unicode=True, default_flow_style=None, width=WIDTH)
        print(text, end="")
    if output is None:
        hint_lines("tftj convert FILE > job.yaml", "tftj submit -f job.yaml --dry-run", "tftj run job.yaml")
    return 0


def _converted(tfjob: Json, choices: Choices, where: str) -> Json:
    """The job of a TFJob, as the API server will accept it."""
    try:
        conversion = convert(tfjob, choices)
        validate(conversion.job)
    except NotInstalled as error:
        note(f"{where}: {error}; the API server validates the converted job")
    except InvalidManifest as error:
        raise UserError(f"{where}: the converted job is refused; correct the TFJob: {error}") from error
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    for each in conversion.notes:
        note(str(each))
    return conversion.job


def _expanded(document: Json) -> list[Json]:
    """The items of a List, as `kubectl get -o yaml` prints several objects."""
    found = document.get("items")
    if str(document.get("kind")).endswith("List") and isinstance(found, list):
        return [each for each in found if isinstance(each, dict)]
    return [document]
