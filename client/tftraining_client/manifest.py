"""Reads the TFTrainingJob and the ConfigMaps from the user's file; validation/ validates the job."""

import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tftraining_client.config_maps import ConfigMaps, is_config_map, namespace_of, parse_config_maps
from tftraining_client.errors import UserError
from tftraining_client.validation.crd import custom_resource
from tftraining_client.validation.structure import Json

Notify = Callable[[str], None]
LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # of Kubernetes: no word comes of them


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: a date is text, and a duplicate key is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """As in PyYAML, but duplicate keys are errors."""
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen and key.value != "<<":
                raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key.value!r}", key.start_mark)
            seen.add(getattr(key, "value", None) if isinstance(key, yaml.ScalarNode) else id(key))
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_manifest(path: str, wanted: str | None, notify: Notify) -> tuple[Json, ConfigMaps]:
    """The TFTrainingJob in a file (`-`: standard input), and the ConfigMaps of its namespace.

    `wanted` names one of several jobs. UserError with one line if not exactly one job matches. `notify` is called for
    objects of other kinds, which are ignored.
    """
    job, documents = _read(path, wanted, "running", notify)
    try:
        return job, parse_config_maps(documents, namespace_of(job))
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def read_submission(path: str, wanted: str | None, notify: Notify) -> tuple[Json, list[Json]]:
    """As `read_manifest`, with the ConfigMaps as they are in the file: those in the namespace of the job."""
    job, documents = _read(path, wanted, "creating", notify)
    namespace = namespace_of(job)
    return job, [each for each in documents if is_config_map(each) and namespace_of(each) == namespace]


def only_file(argument: str | None, option: str | None, verb: str) -> str:
    """The file, which a command takes as its argument or by `-f`; UserError for none, and for two."""
    if (argument is None) == (option is None):
        raise UserError(f"{verb} takes one FILE, as its argument or by -f; see tftj {verb} --help")
    return str(argument if option is None else option)


def read_documents(path: str) -> list[Json]:
    """All objects of a file (`-`: standard input)."""
    return _documents(path, _text(path))


def with_name(job: Json) -> Json:
    """The job with a name for its generateName, as the API server chooses one: what belongs to it is named after it."""
    metadata = job.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("name") or not isinstance(metadata.get("generateName"), str):
        return job
    suffix = "".join(secrets.choice(LETTERS) for _ in range(5))
    return {**job, "metadata": {**metadata, "name": metadata["generateName"] + suffix}}


def _read(path: str, wanted: str | None, doing: str, notify: Notify) -> tuple[Json, list[Json]]:
    """The job, and all objects of the file."""
    documents = read_documents(path)
    kind = custom_resource().kind
    jobs = [each for each in documents if each.get("kind") == kind]
    if not jobs:
        raise UserError(f"{path}: found no {kind}, only {', '.join(_kinds(documents))}")
    if others := _kinds([each for each in documents if each not in jobs and not is_config_map(each)]):
        notify(f"{path}: {doing} only the {kind}; skipped: {', '.join(others)}")
    return _checked(path, _choose(path, jobs, wanted)), documents


def _kinds(documents: list[Json]) -> list[str]:
    return sorted({str(each.get("kind")) for each in documents})


def _text(path: str) -> str:
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return data.decode("utf-8")
    except OSError as error:
        raise UserError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not a text file in UTF-8 (byte {error.start})") from error


def _documents(path: str, text: str) -> list[Json]:
    try:
        documents = [each for each in yaml.load_all(text, _Loader) if each is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise UserError(f"{path}{where}: not YAML: {error.problem}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not documents:
        raise UserError(f"{path}: the file is empty")
    for each in documents:
        if not isinstance(each, dict):
            raise UserError(f"{path}: not a Kubernetes manifest: it must begin with apiVersion, kind and metadata")
    return documents


def _name(job: Json) -> str:
    metadata = job.get("metadata")
    return str(metadata.get("name")) if isinstance(metadata, dict) else "?"


def _choose(path: str, jobs: list[Json], wanted: str | None) -> Json:
    named = [job for job in jobs if wanted in (None, _name(job))]
    if len(named) == 1:
        return named[0]
    names = ", ".join(_name(job) for job in jobs)
    if wanted is not None:
        raise UserError(f"{path}: no job {wanted}; the file has: {names}")
    raise UserError(f"{path}: {len(jobs)} jobs ({names}): choose one with --job NAME")


def _checked(path: str, job: Json) -> Json:
    api_version = custom_resource().api_version
    if job.get("apiVersion") != api_version:
        raise UserError(f"{path}: unsupported apiVersion {job.get('apiVersion')!r}: use {api_version}")
    return job


def read_value(text: str) -> Any:
    """A value from the command line, in YAML as in the file; ValueError if it is not YAML."""
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, RecursionError) as error:
        problem = error.problem if isinstance(error, yaml.MarkedYAMLError) else None
        raise ValueError(f"the value is not YAML: {problem or ' '.join(str(error).split())}") from error
