"""What the options of `tftj run` and `tftj submit` change in a manifest before it is validated. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tftraining_client.errors import UserError
from tftraining_client.local.expansion import escape
from tftraining_client.manifest import Notify
from tftraining_client.set_option import with_set_options
from tftraining_client.validation.structure import Json

CONTAINER = "tensorflow"
WORKERS = "spec.replicaSpecs.worker.replicas"


@dataclass(frozen=True)
class Overrides:
    """The options: a name in place of the file's, the number of workers, `--set` and `--env`."""

    name: str | None = None
    workers: int | None = None
    settings: tuple[str, ...] = ()
    env: tuple[str, ...] = ()

    @property
    def variables(self) -> dict[str, str]:
        """The variables of `--env`; UserError for one that is not NAME=VALUE."""
        return dict(_variable(each) for each in self.env)

    def applied(self, job: Json, notify: Notify) -> Json:
        """The job with name, workers and settings, of which the last counts; the variables are left to the caller."""
        if self.name is not None:
            job = _named(job, self.name)
        workers = () if self.workers is None else (f"{WORKERS}={self.workers}",)
        return with_set_options(job, (*workers, *self.settings), notify)

    def words(self) -> Iterator[tuple[str, str]]:
        """The options with their values, as they are written."""
        named = {"--name": self.name, "--workers": self.workers}
        yield from ((option, str(value)) for option, value in named.items() if value is not None)
        yield from (("--set", each) for each in self.settings)
        yield from (("--env", each) for each in self.env)


def with_variables(job: Json, variables: Mapping[str, str]) -> Json:
    """The job with the variables, as they are given, in the container `tensorflow` of each replica, in place."""
    containers = [each for each in _containers(job) if each.get("name") == CONTAINER]
    if variables and not containers:
        raise UserError(f"--env: the manifest has no container {CONTAINER}")
    for container in containers:
        given = {name: {"name": name, "value": escape(value)} for name, value in variables.items()}
        own = container.get("env") or []
        names = [_object(each).get("name") for each in own]
        # In its place, because variables after it may refer to it.
        kept = [given.get(str(name), each) for name, each in zip(names, own, strict=True)]
        if env := [*kept, *(each for name, each in given.items() if name not in names)]:
            container["env"] = env
    return job


def _containers(job: Json) -> Iterator[Json]:
    """The containers of all pod templates; of what is no template, nothing: its validation says so."""
    spec = _object(job.get("spec"))
    for owner in (spec, *map(_object, _object(spec.get("replicaSpecs")).values())):
        found = _object(_object(owner.get("template")).get("spec")).get("containers")
        yield from filter(None, map(_object, found if isinstance(found, list) else ()))


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _named(job: Json, name: str) -> Json:
    metadata = {field: value for field, value in _object(job.get("metadata")).items() if field != "generateName"}
    return {**job, "metadata": {**metadata, "name": name}}


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UserError(f"--env {text}: must be NAME=VALUE")
    return name, value
