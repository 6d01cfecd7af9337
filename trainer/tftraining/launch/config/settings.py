"""The launcher's settings: TF_CONFIG and TFTRAINING_LAUNCHER, read once into frozen dataclasses.

Must never guess: a missing or wrong field raises SettingsError, one line that names the variable and the field.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tftraining.launch.config.json_text import parse
from tftraining.launch.config.settings_and_defaults import Gang, Parse, Policy, decode, optional, setting
from tftraining.launch.failure.restart_budget import Ledger
from tftraining.launch.in_user_process import legacy_keras
from tftraining.launch.in_user_process.shared.tf_config import NAME, text
from tftraining.launch.roles import GANG_ROLES, TRAINER_ROLES, is_outside_gang, role_of, traits_of

VARIABLE = "TFTRAINING_LAUNCHER"
KEY_BYTES = 4096  # more than any secret needs; a wrong path must not fill the memory


class SettingsError(Exception):
    """A setting is missing or wrong; the message is one line for a person."""


def _percent(value: Any, key: str) -> float:
    if not 0 < float(value) <= 100:
        raise ValueError(f"{key} must be above 0 and at most 100")
    return float(value)


def _bytes(value: Any, key: str) -> int:
    if int(value) <= 0:
        raise ValueError(f"{key} must be above 0 bytes")
    return int(value)


def _one_of(*choices: str) -> Parse:
    def parse(value: Any, key: str) -> str:
        if value not in choices:
            raise ValueError(f"{key} {value!r} is neither {' nor '.join(choices)}")
        return str(value)

    return parse


def _directory(value: Any, key: str) -> Path | None:
    if (directory := _path(value)) is not None and not directory.is_absolute():
        raise ValueError(f"{key} {directory} is not an absolute path")
    return directory


@dataclass(frozen=True)
class MemoryBackupSettings:
    """The settings of backups in memory: spec.launcher.memoryBackup, and what the operator adds for this member.
    `max_overhead_percent` is the share of the time that copies may block the training; the limits are in bytes, None
    for no limit. `directory` is the place of the copies, None for /dev/shm."""

    mode: str = setting("Auto", _one_of("Auto", "Off"), before="Off")
    max_overhead_percent: float = setting(1, _percent)
    # Required: no copy from which the training may go on with other examples
    exactness: str = setting("Preferred", _one_of("Preferred", "Required"))
    size_limit: int | None = setting(None, optional(_bytes))  # of both copies of one member
    memory_limit: int | None = setting(None, optional(_bytes))  # of the container
    directory: Path | None = setting(None, _directory)  # noqa: RUF009  a path is immutable
    off: str = setting("", lambda value, _: str(value or ""))  # why this job makes no copies in spite of mode Auto

    @property
    def on(self) -> bool:
        """Whether the program may make copies."""
        return self.mode == "Auto" and not self.off


@dataclass(frozen=True)
class Settings:
    """All settings of one launcher."""

    job: Mapping[str, str]  # namespace, name, uid
    attempt: int
    gang: Gang
    policy: Policy
    ledger: Ledger
    rendezvous: tuple[str, int]
    host: str
    status_port: int
    secret_file: Path
    directory: Path | None
    termination_message: Path | None
    cluster: Mapping[str, tuple[str, ...]]  # the addresses of TF_CONFIG, by role
    worker_address: str | None  # with %d for the index, for workers that TF_CONFIG does not list
    largest_gang: int  # the most trainers (members that make steps) that this job has ever had
    proven: bool  # the operator knows that the job may have made a step before
    local: bool  # `tftj run`: all members are on one machine, and their user waits
    needed: bool  # False for a member whose pod was created while the others trained
    spec_updates_file: Path | None  # the file with updates of the spec while the job runs
    gpus: int  # requested by this member's container
    memory_backup: MemoryBackupSettings
    keras: str  # one of legacy_keras.KINDS: status.keras of the job

    @property
    def is_chief(self) -> bool:
        """Whether this launcher serves the rendezvous."""
        return self.gang.me == self.gang.chief

    @property
    def in_gang(self) -> bool:
        """False for a replica outside the gang: no round waits for it, and it is restarted alone."""
        return self.gang.me in self.gang.members

    @property
    def indispensable(self) -> bool:
        """Whether no round can start without this member: the job fails if it never reaches the rendezvous."""
        if not self.in_gang or not self.needed:
            return False
        optional = self.policy.min_replicas is not None and traits_of(self.gang.me).resizable
        return self.is_chief or not optional

    def read_key(self) -> bytes:
        """The secret of the job; SettingsError if it cannot be read."""
        try:
            with self.secret_file.open("rb") as file:
                key = file.read(KEY_BYTES)
        except OSError as error:
            raise SettingsError(f"{VARIABLE}: secretFile {self.secret_file}: {error.strerror}") from None
        if not key:
            raise SettingsError(f"{VARIABLE}: secretFile {self.secret_file} is empty")
        return key


class JobKey:
    """The secret of the job as its file has it now, or had it last. SettingsError if it cannot be read at first.

    A Secret that was deleted and made again has another key under the same name. While a pod of the old one ends, a
    kubelet may give the old key to a new pod too, and writes the new one into its file a minute later.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._last = settings.read_key()

    def __call__(self) -> bytes:
        """The secret, for a new connection."""
        with contextlib.suppress(SettingsError):
            self._last = self._settings.read_key()
        return self._last


def with_tf_config(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment, with TF_CONFIG built here if the operator left it out because it is long: the operator then
    gives each role's count and its pattern of addresses. SettingsError if those are wrong."""
    fields = _object(environment, VARIABLE) if VARIABLE in environment else {}
    if fields.get("cluster") is None:
        return dict(environment)
    try:
        cluster = tuple((role, int(count), str(address)) for role, (count, address) in fields["cluster"].items())
        return {**environment, NAME: text(cluster, str(fields["task"]["type"]), int(fields["task"]["index"]))}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SettingsError(f"{VARIABLE}: cluster: {{role: [count, address]}} and task: {{type, index}}") from None


def with_code_path(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with the directory of spec.code first in PYTHONPATH, before that of the image. SettingsError if
    the settings are no object."""
    fields = _object(environment, VARIABLE) if VARIABLE in environment else {}
    paths = [str(fields.get("code") or ""), environment.get("PYTHONPATH", "")]
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))} if paths[0] else dict(environment)


def read(environment: Mapping[str, str]) -> Settings:
    """The settings of this launcher; SettingsError if they are missing or wrong."""
    config = _object(environment, "TF_CONFIG")
    gang = _gang(config)
    raw = _object(environment, VARIABLE)
    cluster = {role: tuple(map(str, config["cluster"].get(role, ()))) for role in GANG_ROLES}
    try:
        return _settings(raw, gang, {role: addresses for role, addresses in cluster.items() if addresses})
    except KeyError as error:
        raise SettingsError(f"{VARIABLE}: {error.args[0]} is missing") from None
    except ValueError as error:
        raise SettingsError(f"{VARIABLE}: {error}") from None
    except (TypeError, AttributeError) as error:
        raise SettingsError(f"{VARIABLE}: a field is of the wrong type: {error}") from None


def _object(environment: Mapping[str, str], variable: str) -> dict[str, Any]:
    if variable not in environment:
        raise SettingsError(f"{variable} is not set; the operator and `tftj run` set it for each replica")
    try:
        value = parse(environment[variable])
    except ValueError as error:
        raise SettingsError(f"{variable} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise SettingsError(f"{variable} is not a JSON object")
    return value


def _gang(config: Mapping[str, Any]) -> Gang:
    """The gang of TF_CONFIG. An evaluator's TF_CONFIG lists the gang too; the evaluator is no member of it."""
    try:
        cluster = config["cluster"]
        members = tuple(f"{role}-{index}" for role in GANG_ROLES for index in range(len(cluster.get(role, ()))))
        me = f"{config['task']['type']}-{int(config['task']['index'])}"
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SettingsError("TF_CONFIG needs cluster: {role: [address…]} and task: {type, index}") from None
    if not members or role_of(members[0]) not in TRAINER_ROLES:
        raise SettingsError("TF_CONFIG: the cluster has neither a chief nor a worker")
    if me not in members and not is_outside_gang(me):
        raise SettingsError(f"TF_CONFIG: the cluster has no task {me}")
    return Gang(members, me)


def _settings(raw: Mapping[str, Any], gang: Gang, cluster: Mapping[str, tuple[str, ...]]) -> Settings:
    return Settings(
        job={key: str(raw["job"][key]) for key in ("namespace", "name", "uid")},
        attempt=int(raw["attempt"]),
        gang=gang,
        policy=decode(Policy, raw),
        ledger=Ledger.from_json(raw.get("ledger") or {}),
        rendezvous=_address(raw["rendezvous"]),
        host=str(raw.get("host", "")),
        status_port=_port(raw["statusPort"]),
        secret_file=Path(raw["secretFile"]),
        directory=_path(raw.get("directory")),
        termination_message=_path(raw.get("terminationMessage")),
        cluster=cluster,
        worker_address=None if raw.get("workerAddress") is None else str(raw["workerAddress"]),
        largest_gang=int(raw.get("largestGang") or 0),
        proven=bool(raw.get("proven", False)),  # older operators do not send it
        local=bool(raw.get("local", False)),
        needed=bool(raw.get("needed", True)),
        spec_updates_file=_path(raw.get("orders")),
        gpus=int(raw.get("gpus") or 0),  # older operators do not send it
        memory_backup=decode(MemoryBackupSettings, dict(raw.get("memoryBackup") or {}), "memoryBackup."),
        keras=_one_of(*legacy_keras.KINDS)(raw.get("keras", legacy_keras.LEGACY), "keras"),  # unset by older operators
    )


def _path(value: object) -> Path | None:
    return Path(str(value)) if value else None


def _port(value: object) -> int:
    port = int(str(value))
    if not 0 < port < 65536:
        raise ValueError(f"{port} is not a port")
    return port


def _address(value: str) -> tuple[str, int]:
    host, _, port = value.rpartition(":")
    if not host:
        raise ValueError(f"rendezvous {value!r} is not host:port")
    return host.strip("[]"), _port(port)
