"""The job of a function: its manifest, from the options of `from_function`. Pure."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tftraining_client.code.function_package import SCRIPT
from tftraining_client.errors import UserError
from tftraining_client.local.expansion import escape

IMAGE = "tftraining-trainer:0.1.0"
WORKDIR = "training"
CONTAINER = "tensorflow"
# Names of variables whose value is a secret: whoever may look at the namespace can read a job.
_SECRET = re.compile(r"(^|_)(TOKEN|PASSWORD|PASSWD|SECRET|(API|ACCESS|SECRET|PRIVATE)_?KEY)$", re.IGNORECASE)
REFERENCE = '{"secretKeyRef": {"name": …, "key": …}}'

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """How a function is run. `storage` is the name of a PersistentVolumeClaim, or a whole spec.storage; `code` a
    directory that travels with the function.

    `resources` are those of each container, as {"cpu": 4, "nvidia.com/gpu": 1} (limits) or as Kubernetes has them.
    `env` has a text for each variable, or Kubernetes' `valueFrom`: {"secretKeyRef": {"name": …, "key": …}}.
    `packages` are requirements of pip, which each container installs before the function runs. `spec` are further
    fields of the job's spec, merged into those of the function: `spec={"template": …}` adds to its pod, whose container
    is `tensorflow`.

    `context`, `kubeconfig` and `namespace` are for a cluster, `workdir` is for `where="local"`."""

    workers: int = 2
    storage: str | Mapping[str, Any] | None = None
    image: str = IMAGE
    name: str | None = None
    code: str | Path | None = None
    resources: Mapping[str, Any] | None = None
    env: Mapping[str, str | Mapping[str, Any]] | None = None
    packages: Sequence[str] = ()
    spec: Mapping[str, Any] | None = None
    where: Literal["cluster", "local"] = "cluster"
    workdir: str | Path = WORKDIR
    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None


def job_manifest(name: str, options: Options) -> Manifest:
    """The job without its program. UserError for an option of another form."""
    container: Manifest = {"name": CONTAINER, "image": options.image, "command": ["python", SCRIPT]}
    if options.resources:
        container["resources"] = _resources(options.resources)
    if variables := _variables(options.env or {}, options.where == "local"):
        container["env"] = variables
    spec: Manifest = {
        "replicaSpecs": {"worker": {"replicas": options.workers}},
        "template": {"spec": {"containers": [container]}},
    }
    if options.storage is not None:
        claim = {"volume": {"persistentVolumeClaim": {"claimName": options.storage}}}
        spec["storage"] = claim if isinstance(options.storage, str) else dict(options.storage)
    metadata = {"name": name, **({"namespace": options.namespace} if options.namespace else {})}
    return {
        "apiVersion": "tftraining.dev/v1",
        "kind": "TFTrainingJob",
        "metadata": metadata,
        "spec": merge(spec, options.spec or {}),
    }


def _resources(given: Mapping[str, Any]) -> Manifest:
    """The resources of the container. Kubernetes takes limits as requests where there are none."""
    if set(given) & {"limits", "requests", "claims"}:
        return dict(given)
    return {"limits": {name: str(amount) for name, amount in given.items()}}


def _variables(given: Mapping[str, Any], is_local: bool) -> list[Manifest]:
    found = [_variable(name, value, is_local) for name, value in given.items()]
    return [each for each in found if each is not None]


def _variable(name: str, value: Any, is_local: bool) -> Manifest | None:
    """The variable of a container. None for a reference that only a cluster has, if this process has the variable,
    which a job of this machine inherits."""
    if isinstance(value, Mapping):
        if not is_local:
            return {"name": name, "valueFrom": dict(value)}
        if name in os.environ:
            return None
        raise UserError(f"env: {name} comes from the cluster: set the variable {name} here for a run on this machine")
    if not isinstance(value, str):
        raise UserError(f"env: the value of {name} must be a text, or a reference such as {REFERENCE}")
    if _SECRET.search(name) and value and not is_local:
        raise UserError(
            f"env: {name} looks like a secret, which everybody who may read the job would see: put it into a Secret, "
            f"and use env={{{name!r}: {REFERENCE}}}"
        )
    return {"name": name, "value": escape(value)}


def merge(own: Any, given: Any) -> Any:
    """The manifest with what is given over it: objects field by field, containers by their name."""
    if isinstance(own, Mapping) and isinstance(given, Mapping):
        return {**own, **{name: merge(own.get(name), value) for name, value in given.items()}}
    if _are_named(own) and _are_named(given):
        by_name = {each["name"]: each for each in own}
        for each in given:
            by_name[each["name"]] = merge(by_name.get(each["name"]), each)
        return list(by_name.values())
    return given


def _are_named(items: Any) -> bool:
    return isinstance(items, list) and all(isinstance(each, Mapping) and "name" in each for each in items)
