"""Turns the operator's pod of each replica into a process of this machine: command, environment and files.

Pure. The operator's own code builds the pod, so the variables, their order and their expansion are the same as in a
cluster. This module replaces only addresses, ports, directories and the interpreter.
"""

import json
import os
import re
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from posixpath import basename
from typing import Any

import msgspec

from tftraining.launch.roles import WORKER
from tftraining_api.manifests import code
from tftraining_api.manifests.pod import pod
from tftraining_api.manifests.storage import job_directory
from tftraining_api.manifests.tf_config import tf_config
from tftraining_api.model.job import Job, parse_job
from tftraining_api.model.keras import keras_of
from tftraining_api.model.names import CONTAINER, Replica
from tftraining_api.model.quantity import in_bytes
from tftraining_api.model.spec import JobSpec
from tftraining_client.config_maps import ConfigMaps
from tftraining_client.errors import UserError
from tftraining_client.local.code import Archive, archive_of
from tftraining_client.local.environment import container_environment
from tftraining_client.local.expansion import escape, expand
from tftraining_client.local.ports import HOST, Ports
from tftraining_client.local.volumes import File, Volumes, volumes_of
from tftraining_client.validation.structure import Json

LAUNCHER = ("-P", "-m", "tftraining_client.local.die_with_parent", "tftraining.launch")
TASK, SETTINGS, DIRECTORY = "TF_CONFIG", "TFTRAINING_LAUNCHER", "TFTRAINING_DIR"


@dataclass(frozen=True)
class LocalJob:
    """A validated job and its directory. `directory` is the value of TFTRAINING_DIR; None without spec.storage.

    `config_maps` are the ConfigMaps of the job's namespace in the user's file.
    """

    job: Job
    spec: JobSpec
    directory: Path | None
    config_maps: ConfigMaps = field(default_factory=dict)

    @property
    def archive(self) -> Archive | None:
        """The program of spec.code, if the file has it."""
        return archive_of(self.spec.code, self.config_maps)

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """All replicas, the chief first and the evaluator last."""
        return (*self.spec.gang, *self.spec.evaluators)

    @property
    def non_chief_workers(self) -> tuple[int, ...]:
        """The indexes of the non-chief workers: TensorFlow names temporary save directories by them."""
        return tuple(each.index for each in self.spec.gang if each.role == WORKER and each != self.spec.chief)


@dataclass(frozen=True)
class Allocation:
    """The ports of all replicas, the files of the launchers, and the memory in bytes that all replicas together may use
    (None if unknown)."""

    training_ports: Mapping[Replica, int]
    status_ports: Mapping[Replica, int]
    rendezvous_port: int
    secret_file: Path
    scratch: Path
    memory: int | None = None

    def termination_message(self, replica: Replica) -> Path:
        """The file for the termination message of the replica's launcher."""
        return self.scratch / f"{replica}.ended"

    @property
    def volumes(self) -> Path:
        """The directory with the volumes of all replicas."""
        return self.scratch / "volumes"

    @property
    def code(self) -> Path:
        """The directory of the program of spec.code."""
        return self.scratch / "code"

    def temporary_directory(self, replica: Replica) -> Path:
        """The replica's directory for temporary files."""
        return self.scratch / str(replica)


@dataclass(frozen=True)
class ProcessSpec:
    """A launcher's command line and whole environment, and files that must exist before its start. `directory` is its
    working directory; None for that of `tftj`."""

    replica: Replica
    command: tuple[str, ...]
    environment: dict[str, str]
    files: Mapping[Path, File] = field(default_factory=dict)
    directory: Path | None = None

    def with_ledger(self, ledger: Mapping[str, int]) -> "ProcessSpec":
        """The same for the successor of a dead launcher; `ledger` counts the restarts so far."""
        settings = json.loads(self.environment[SETTINGS])
        # As in the operator: a program that ran before is assumed to have made a step.
        changes = {"ledger": {**settings["ledger"], **ledger}, "proven": any(ledger.values())}
        return replace(self, environment={**self.environment, SETTINGS: json.dumps({**settings, **changes})})


def local_job(stored: Json, workdir: Path, config_maps: ConfigMaps | None = None) -> LocalJob:
    """The job of a validated manifest; UserError if the job would not run."""
    metadata = stored["metadata"]
    identity = {"name": metadata["name"], "namespace": metadata.get("namespace") or "default", "uid": str(uuid.uuid4())}
    # As the operator's first pods.
    job = parse_job({"metadata": identity, "spec": stored["spec"], "status": {"attempt": 1}})
    if job.spec is None:
        problem = job.unreadable or job.problem
        raise UserError(problem.message if problem else "the spec cannot be read")
    if job.spec.run_policy.suspend:
        raise UserError("the job is suspended (spec.runPolicy.suspend), so nothing would run: set it to false")
    if not job.ours:
        raise UserError(
            f"another controller runs this job (spec.runPolicy.managedBy: {job.managed_by}), so nothing would run: "
            "remove the field"
        )
    # Without pods to recreate, launchers restart programs in place in every mode.
    spec = msgspec.structs.replace(
        job.spec, restart_policy=msgspec.structs.replace(job.spec.restart_policy, mode="InPlace")
    )
    status = msgspec.structs.replace(job.status, keras=keras_of(spec, job.status))
    job = msgspec.structs.replace(job, status=status)
    storage = spec.storage
    directory = workdir / (storage.directory or job.key.name) if storage else None
    return LocalJob(job, spec, directory, config_maps or {})


def allocate(local: LocalJob, ports: Ports, scratch: Path, memory: int | None = None) -> Allocation:
    """Reserve the ports and name the files; `memory` is for all replicas together."""
    return Allocation(
        training_ports={each: ports.reserve() for each in local.replicas if each.traits.in_gang},
        status_ports={each: ports.reserve() for each in local.replicas},
        rendezvous_port=ports.reserve(),
        secret_file=scratch / "key",
        scratch=scratch,
        memory=memory,
    )


def process_spec(local: LocalJob, allocation: Allocation, replica: Replica, given: Mapping[str, str]) -> ProcessSpec:
    """The start of the replica's launcher. `given` are variables from the command line. UserError for invalid input."""
    manifest = pod(local.job, local.spec, replica, "")
    container = next(each for each in manifest["spec"]["containers"] if each["name"] == CONTAINER)
    # In a pod of a large gang, the launcher builds TF_CONFIG from addresses that only a cluster has.
    task = {
        "name": TASK,
        "value": _task(json.loads(tf_config(local.job, local.spec, replica)), allocation.training_ports),
    }
    others = [each for each in container["env"] if each["name"] != TASK]
    volumes = volumes_of(manifest, container, local.config_maps, allocation.volumes)
    brings_code = local.archive is not None
    if brings_code:
        volumes.local_paths[code.DIRECTORY] = allocation.code
    container = {
        **container,
        "env": [task, *(_localised(each, local, allocation, replica, volumes) for each in others)],
    }
    variables = container_environment(manifest, container, given, local.config_maps)
    # The first `--` separates the operator's launcher command from the user's own command.
    own = container["command"][container["command"].index("--") + 1 :]
    words = [expand(volumes.localised(word), variables) for word in (*own, *(container.get("args") or ()))]
    command = (sys.executable, *LAUNCHER, "--", interpreter(words[0]), *words[1:])
    # Temporary files are deleted at the end of the run, as a container's files are with its pod.
    private = {"TMPDIR": str(allocation.temporary_directory(replica))}
    directory = allocation.code if brings_code and container.get("workingDir") == code.DIRECTORY else None
    return ProcessSpec(replica, command, {**_inherited(os.environ), **private, **variables}, volumes.files, directory)


def interpreter(program: str) -> str:
    """The path of this Python for any Python; other programs unchanged."""
    return sys.executable if re.fullmatch(r"python(\d+(\.\d+)*)?", basename(program)) else program


def _inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """The user's own environment in place of the image's, with this Python's directory first in PATH."""
    kept = {name: value for name, value in environment.items() if name != TASK and not name.startswith("TFTRAINING_")}
    return {**kept, "PATH": os.pathsep.join((str(Path(sys.executable).parent), environment.get("PATH", os.defpath)))}


def _localised(variable: Json, local: LocalJob, allocation: Allocation, replica: Replica, volumes: Volumes) -> Json:
    value = str(variable.get("value"))
    if variable["name"] == SETTINGS:
        return {**variable, "value": _settings(json.loads(expand(value, {})), local, allocation, replica)}
    ours = local.spec.storage and variable == {"name": DIRECTORY, "value": job_directory(local.job, local.spec.storage)}
    if ours and local.directory:
        return {**variable, "value": escape(str(local.directory))}
    return {**variable, "value": volumes.localised(value)} if "value" in variable else variable


def _task(config: dict[str, Any], ports: Mapping[Replica, int]) -> str:
    cluster = {
        role: [f"{HOST}:{ports[Replica(role, index)]}" for index in range(len(addresses))]
        for role, addresses in config["cluster"].items()
    }
    return json.dumps({**config, "cluster": cluster})


def _settings(settings: dict[str, Any], local: LocalJob, allocation: Allocation, replica: Replica) -> str:
    here = {
        "rendezvous": f"{HOST}:{allocation.rendezvous_port}",
        "host": HOST,
        "statusPort": allocation.status_ports[replica],
        "secretFile": str(allocation.secret_file),
        "orders": None,
        "workerAddress": None,
        "cluster": None,
        "local": True,
        "directory": str(local.directory) if local.directory else None,
        "terminationMessage": str(allocation.termination_message(replica)),
        "code": str(allocation.code) if local.archive else None,
    }
    if told := settings.get("memoryBackup"):
        here["memoryBackup"] = {**told, **_memory_backup(local, allocation)}
    return escape(json.dumps({**settings, **here}))


def _memory_backup(local: LocalJob, allocation: Allocation) -> dict[str, Any]:
    """The settings of backups in memory that differ from a cluster: there is neither a volume nor a limit of the
    container, and the replicas share this machine's memory."""
    asked = local.spec.launcher.memory_backup
    return {
        "directory": None,
        "memoryLimit": None if allocation.memory is None else max(1, allocation.memory // len(local.replicas)),
        "sizeLimit": None if asked.size_limit is None else in_bytes(asked.size_limit),
        "off": "",
    }
