"""The launcher's settings: TF_CONFIG and TFTRAINING_LAUNCHER, read once into frozen dataclasses.

Must never guess: a missing or wrong field raises SettingsError, one line that names the variable and the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tftraining.launch.config.json_text import parse
from tftraining.launch.failure.ledger import Ledger
from tftraining.launch.failure.restart_rules import Rule
from tftraining.launch.in_user_process.tf_config import NAME, text

VARIABLE = "TFTRAINING_LAUNCHER"
GANG_ROLES = ("chief", "worker", "ps")
KEY_BYTES = 4096  # more than any secret needs; a wrong path must not fill the memory


class SettingsError(Exception):
    """A setting is missing or wrong; the message is one line for a person."""


@dataclass(frozen=True)
class Gang:
    """The members that train together: their names in the order of ranks, the chief first; `me` is this member."""

    members: tuple[str, ...]
    me: str

    @property
    def chief(self) -> str:
        """The member whose launcher serves the rendezvous."""
        return self.members[0]

    @property
    def trainers(self) -> tuple[str, ...]:
        """The members that make steps: all but the parameter servers."""
        return tuple(name for name in self.members if role_of(name) != "ps")

    def resized(self, workers: int) -> Gang:
        """The gang with another number of workers."""
        roles = {role: [name for name in self.members if role_of(name) == role] for role in GANG_ROLES}
        roles["worker"] = [f"worker-{index}" for index in range(workers)]
        return Gang(tuple(name for names in roles.values() for name in names), self.me)


@dataclass(frozen=True)
class Policy:
    """The fields of the job's spec by which the rendezvous decides. Times are seconds; None is off."""

    member_timeout: float = 3.0
    max_restarts: int = 10
    refill: bool = True  # budgetReset OnProgress
    start_deadline: float = 600.0
    stall_timeout: float | None = None
    evaluator_grace: float = 60.0
    min_workers: int | None = None  # spec.minReplicas: the fewest workers of a round; None: all of them
    scope: str = "Job"  # or Pod: a failed worker is restarted alone
    rules: tuple[Rule, ...] = ()
    all_workers: bool = False  # spec.successPolicy AllWorkers: every chief and worker must exit with 0
    same_failure_limit: int = 0  # so many equal failures in a row end the job; 0 is off


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
    warm_start: bool
    grace: float
    cluster: Mapping[str, tuple[str, ...]]  # the addresses of TF_CONFIG, by role
    worker_address: str | None  # with %d for the index, for workers that TF_CONFIG does not list
    largest_gang: int  # the most trainers (members that make steps) that this job has ever had
    proven: bool  # the operator knows that the job may have made a step before
    needed: bool  # False for a member whose pod was created while the others trained
    orders: Path | None  # the file with updates of the spec while the job runs
    gpus: int  # requested by this member's container
    memory_backup: float | None  # the percentage of the time that backups in memory may take; None: there are none

    @property
    def is_chief(self) -> bool:
        """Whether this launcher serves the rendezvous."""
        return self.gang.me == self.gang.chief

    @property
    def in_gang(self) -> bool:
        """False for the evaluator: no round waits for it, and it is restarted alone."""
        return self.gang.me in self.gang.members

    @property
    def indispensable(self) -> bool:
        """Whether no round can start without this member: the job fails if it never reaches the rendezvous."""
        role = role_of(self.gang.me)
        optional = self.policy.min_workers is not None and role == "worker" and not self.is_chief
        return self.in_gang and self.needed and not optional

    def key(self) -> bytes:
        """The secret of the job; SettingsError if it cannot be read."""
        try:
            with self.secret_file.open("rb") as file:
                key = file.read(KEY_BYTES)
        except OSError as error:
            raise SettingsError(f"{VARIABLE}: secretFile {self.secret_file}: {error.strerror}") from None
        if not key:
            raise SettingsError(f"{VARIABLE}: secretFile {self.secret_file} is empty")
        return key


def role_of(name: str) -> str:
    """`worker` of `worker-1`."""
    return name.rpartition("-")[0]


def with_tf_config(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment, with TF_CONFIG built here if the operator left it out because it is long: the operator then
    gives each role's count and its pattern of addresses. SettingsError if those are wrong."""
    told = _object(environment, VARIABLE) if VARIABLE in environment else {}
    if told.get("cluster") is None:
        return dict(environment)
    try:
        cluster = tuple((role, int(count), str(address)) for role, (count, address) in told["cluster"].items())
        return {**environment, NAME: text(cluster, str(told["task"]["type"]), int(told["task"]["index"]))}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SettingsError(f"{VARIABLE}: cluster: {{role: [count, address]}} and task: {{type, index}}") from None


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
        raise SettingsError(f"{variable} is not set: the operator and `tftj run` set it for each replica")
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
    if not members or role_of(members[0]) == "ps":
        raise SettingsError("TF_CONFIG: the cluster has neither a chief nor a worker")
    if me not in members and role_of(me) != "evaluator":
        raise SettingsError(f"TF_CONFIG: the task {me} is not in the cluster")
    return Gang(members, me)


def _settings(raw: Mapping[str, Any], gang: Gang, cluster: Mapping[str, tuple[str, ...]]) -> Settings:
    return Settings(
        job={key: str(raw["job"][key]) for key in ("namespace", "name", "uid")},
        attempt=int(raw["attempt"]),
        gang=gang,
        policy=_policy(raw),
        ledger=Ledger.from_json(raw.get("ledger") or {}),
        rendezvous=_address(raw["rendezvous"]),
        host=str(raw.get("host", "")),
        status_port=_port(raw["statusPort"]),
        secret_file=Path(raw["secretFile"]),
        directory=_path(raw.get("directory")),
        termination_message=_path(raw.get("terminationMessage")),
        warm_start=bool(raw.get("warmStart", True)),
        grace=_seconds(raw, "terminationGraceSeconds", 5.0, 0.0),
        cluster=cluster,
        worker_address=None if raw.get("workerAddress") is None else str(raw["workerAddress"]),
        largest_gang=int(raw.get("largestGang") or 0),
        proven=bool(raw.get("proven", False)),  # older operators do not send it
        needed=bool(raw.get("needed", True)),
        orders=_path(raw.get("orders")),
        gpus=int(raw.get("gpus") or 0),  # older operators do not send it
        memory_backup=_memory_backup(raw),
    )


def _policy(raw: Mapping[str, Any]) -> Policy:
    stall, least = raw.get("stallTimeoutSeconds"), raw.get("minReplicas")
    return Policy(
        member_timeout=_seconds(raw, "memberTimeoutSeconds", 3.0, 0.5),
        max_restarts=int(raw.get("maxRestarts", 10)),
        refill=refills(raw),
        start_deadline=_seconds(raw, "startDeadlineSeconds", 600.0, 0.0),
        stall_timeout=None if stall is None else _seconds(raw, "stallTimeoutSeconds", 0.0, 0.1),
        evaluator_grace=_seconds(raw, "evaluatorGraceSeconds", 60.0, 0.0),
        min_workers=None if least is None else int(least),
        scope=str(raw.get("scope", "Job")),
        rules=tuple(Rule.from_json(each) for each in raw.get("rules", ())),
        all_workers=needs_all(raw),
        same_failure_limit=int(raw.get("sameFailureLimit", 0)),  # older operators do not send it
    )


def _memory_backup(raw: Mapping[str, Any]) -> float | None:
    """The most overhead of backups in memory, in percent; None if they are off, as without the field."""
    told = raw.get("memoryBackup") or {}
    if (mode := told.get("mode", "Off")) not in ("Auto", "Off"):
        raise ValueError(f"memoryBackup.mode {mode!r} is neither Auto nor Off")
    percent = float(told.get("maxOverheadPercent", 1))
    if not 0 < percent <= 100:
        raise ValueError("memoryBackup.maxOverheadPercent must be above 0 and at most 100")
    return percent if mode == "Auto" else None


def refills(raw: Mapping[str, Any]) -> bool:
    """Whether progress restores the whole restart budget."""
    return bool(raw.get("budgetReset", "OnProgress") != "Never")


def needs_all(raw: Mapping[str, Any]) -> bool:
    """Whether the job succeeds only when every chief and worker has succeeded."""
    return bool(raw.get("successPolicy", "Chief") == "AllWorkers")


def _seconds(raw: Mapping[str, Any], field: str, default: float, least: float) -> float:
    value = float(raw.get(field, default))
    if not least <= value < float("inf"):
        raise ValueError(f"{field} must be at least {least:g} seconds")
    return value


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
