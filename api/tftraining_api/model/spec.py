"""The spec of a TFTrainingJob, field for field as in the CRD, with the same defaults.

Those of the fields that launchers read stand in tftraining/launch/config/settings_and_defaults.py. The CRD's schema and
CEL rules have already validated the values; these types only hold them.
"""

from collections.abc import Iterable
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal

import msgspec

from tftraining.launch.config.settings import MemoryBackupSettings
from tftraining.launch.config.settings_and_defaults import Policy, key_of, names
from tftraining.launch.failure.restart_rules import Decision, Failure, Rule, decide
from tftraining.launch.failure.restart_scope import restarts_alone
from tftraining.launch.roles import GANG_ROLES, OUTSIDE_GANG, ROLES, SERVING_ROLES, TRAINER_ROLES, RoleName
from tftraining_api.model.names import Replica

Manifest = dict[str, Any]
# The defaults of what launchers decide by, too. Any: a launcher also takes numbers of seconds that are not whole.
DEFAULT: Any = Policy()
COPY_DEFAULT: Any = MemoryBackupSettings()


# gc=False spares the garbage collector repeated scans of the values, of which a large gang has a hundred thousand. No
# value can be part of a cycle, because everything that it refers to existed before it.
class Frozen(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """A value read from or written to the API: frozen, camelCase on the wire, unset fields left out."""


class RoleSpec(Frozen, frozen=True):
    """One role: the number of replicas, their port, and a template that replaces the common one."""

    replicas: int = 1
    port: int = 2222
    template: Manifest | None = None


class ReplicaSpecs(Frozen, frozen=True):
    """The roles of the cluster that TensorFlow sees."""

    chief: RoleSpec | None = None
    worker: RoleSpec | None = None
    ps: RoleSpec | None = None
    evaluator: RoleSpec | None = None


class Storage(Frozen, frozen=True):
    """The storage that every pod of the job shares: a volume, or a bucket's URI (`gs://bucket/path`)."""

    volume: Manifest | None = None
    uri: str | None = None
    mount_path: str = "/training"
    directory: str | None = None
    save_dirs: tuple[str, ...] = (".",)

    def __post_init__(self) -> None:
        # A newer version may know a third kind of storage, and this one must not train without it.
        if (self.volume is None) == (self.uri is None):
            raise ValueError("needs exactly one of volume and uri")


class CodeConfigMap(Frozen, frozen=True):
    """A ConfigMap that has the archive."""

    name: str


class CodeStorage(Frozen, frozen=True):
    """An archive in the job's storage; `path` is relative to the mount path."""

    path: str


class CodeGit(Frozen, frozen=True):
    """A commit of a Git repository; the Secret `secret_name` has the name and the password of a private one."""

    url: str
    revision: str
    secret_name: str | None = None


class Code(Frozen, frozen=True):
    """The program from one of three sources; an archive has a digest."""

    config_map: CodeConfigMap | None = None
    storage: CodeStorage | None = None
    git: CodeGit | None = None
    digest: str | None = None

    @property
    def identity(self) -> str:
        """What identifies the files: the digest of the archive, or the commit."""
        return self.digest or (f"git:{self.git.revision}" if self.git else "")


class RestartRule(Frozen, frozen=True):
    """The action for a matching exit."""

    action: str
    on_exit_codes: tuple[int, ...] = ()
    on_signals: tuple[int, ...] = ()
    on_reasons: tuple[str, ...] = ()
    role: str | None = None


class RestartPolicy(Frozen, frozen=True):
    """How and what to restart, and how often."""

    mode: Literal["InPlace", "Recreate"] = "InPlace"
    scope: Literal["Job", "Pod"] | None = None
    max_restarts: int = DEFAULT.max_restarts
    same_failure_limit: int = DEFAULT.same_failure_limit
    same_member_limit: int = DEFAULT.same_member_limit
    on_divergence: Literal["Report", "Restore"] = DEFAULT.on_divergence
    budget_reset: Literal["OnProgress", "Never"] = DEFAULT.budget_reset
    rules: tuple[RestartRule, ...] = ()

    def decide(self, failure: Failure, has_stepped: bool) -> Decision:
        """The action after a failure: that of the first rule that matches, or the default."""
        return decide([Rule.from_json(msgspec.to_builtins(each)) for each in self.rules], failure, has_stepped)


class MemoryBackupSpec(Frozen, frozen=True):
    """Backups of the training state in memory. `size_limit` is a quantity of bytes; `exactness` tells whether a restart
    may go on with other examples than the undisturbed training."""

    mode: Literal["Auto", "Off"] = COPY_DEFAULT.mode
    max_overhead_percent: float = COPY_DEFAULT.max_overhead_percent
    size_limit: str | None = None
    exactness: Literal["Preferred", "Required"] = COPY_DEFAULT.exactness


_MEMORY_BACKUP = MemoryBackupSpec()


class LauncherSpec(Frozen, frozen=True):
    """The settings of the launcher, which runs as PID 1 and starts the user's command."""

    warm_start: bool = DEFAULT.warm_start
    termination_grace_seconds: int = DEFAULT.termination_grace_seconds
    member_timeout_seconds: float = DEFAULT.member_timeout_seconds
    image: str | None = None
    memory_backup: MemoryBackupSpec = _MEMORY_BACKUP
    keras: Literal["Auto", "Legacy", "Unpatched"] = "Auto"


class PodGroup(Frozen, frozen=True):
    """The group of pods that a gang scheduler places as a whole; `api_version` tells which scheduler."""

    api_version: Literal["scheduling.x-k8s.io/v1alpha1", "scheduling.volcano.sh/v1beta1"]
    min_available: int | None = None
    queue: str | None = None
    timeout_seconds: int | None = None


class Scheduling(Frozen, frozen=True):
    """Gang scheduling and priority."""

    pod_group: PodGroup | None = None
    priority_class_name: str | None = None
    gang: Literal["Native"] | None = None
    topology_key: str | None = None


class RunPolicy(Frozen, frozen=True):
    """Deadlines, suspension, and what to keep after the job's end."""

    suspend: bool = False
    active_deadline_seconds: int | None = None
    start_deadline_seconds: int = DEFAULT.start_deadline_seconds
    stall_timeout_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    evaluator_grace_seconds: int = DEFAULT.evaluator_grace_seconds
    node_lost_seconds: int = 60
    clean_pod_policy: Literal["Running", "All", "None"] = "Running"
    scheduling: Scheduling | None = None
    managed_by: str | None = None


# Which part of the spec has a setting; tests/unit/api/test_wire_json.py holds the names apart.
_PARTS = {
    name: part
    for part, kind in (("restart_policy", RestartPolicy), ("launcher", LauncherSpec), ("run_policy", RunPolicy))
    for name in kind.__struct_fields__
}


class JobSpec(Frozen, frozen=True, dict=True, gc=True):
    """The spec of a job. Properties that every pod's manifest needs are cached: a gang of 200 needs them 200 times."""

    replica_specs: ReplicaSpecs
    template: Manifest | None = None
    min_replicas: int | None = None
    storage: Storage | None = None
    code: Code | None = None
    restart_policy: RestartPolicy = RestartPolicy()
    launcher: LauncherSpec = LauncherSpec()
    run_policy: RunPolicy = RunPolicy()
    success_policy: Literal["Chief", "AllWorkers"] = DEFAULT.success_policy

    def role(self, role: RoleName) -> RoleSpec | None:
        """The role's spec; None if the job lacks the role."""
        spec: RoleSpec | None = getattr(self.replica_specs, role)
        return spec

    def template_of(self, role: RoleName) -> Manifest:
        """The pod template of the role: its own, otherwise the common one."""
        own = self.role(role)
        return (own.template if own and own.template else self.template) or {}

    def launcher_settings(self, wanted: Iterable[str] = names(Policy)) -> Manifest:
        """The settings of the launchers by these names, in the JSON of the custom resource."""
        owners = ((name, getattr(self, part) if (part := _PARTS.get(name)) else self) for name in wanted)
        return {key_of(name): getattr(owner, name) for name, owner in owners}

    @property
    def in_place(self) -> bool:
        """Whether launchers restart the program inside the running pods."""
        return self.restart_policy.mode == "InPlace"

    @cached_property
    def gang(self) -> tuple[Replica, ...]:
        """The replicas that train together, the chief first and the parameter servers last."""
        return self._of(GANG_ROLES)

    @cached_property
    def trainers(self) -> tuple[Replica, ...]:
        """The members of the gang that make steps."""
        return self._of(TRAINER_ROLES)

    @property
    def evaluators(self) -> tuple[Replica, ...]:
        """The replicas outside the gang, whose start, restarts and success do not depend on them: the evaluator."""
        return self._of(OUTSIDE_GANG)

    def _of(self, roles: tuple[RoleName, ...]) -> tuple[Replica, ...]:
        return tuple(
            Replica(role, index)
            for role in roles
            if (spec := self.role(role)) is not None
            for index in range(spec.replicas)
        )

    @property
    def restart_scope(self) -> Literal["Job", "Pod"]:
        """What restarts after a failure. Default: with parameter servers only the failed pod, otherwise the gang."""
        serving = any(self.role(role) is not None for role in SERVING_ROLES)
        return self.restart_policy.scope or ("Pod" if serving else "Job")

    def restarts_alone(self, replica: Replica) -> bool:
        """Whether the others continue while this replica restarts."""
        return restarts_alone(replica.traits, self.restart_scope, replica == self.chief)

    @cached_property
    def gang_shape(self) -> str:
        """The annotation with the shape of the gang; a pod with another shape has an outdated TF_CONFIG."""
        counts = {role: sum(1 for member in self.gang if member.role == role) for role in GANG_ROLES}
        return ",".join(f"{role}={count}" for role, count in counts.items() if count)

    @cached_property
    def fingerprint(self) -> str:
        """The annotation with a hash of everything that pods are made from, except their number, and launcher.keras,
        which later pods get from the status.

        Defaults are left out, so that a version of the operator with more fields computes the same hash.
        """
        roles = {role: (own.port, own.template) for role in ROLES if (own := self.role(role)) is not None}
        backup = self.launcher.memory_backup
        launcher = msgspec.structs.replace(self.launcher, memory_backup=_MEMORY_BACKUP, keras="Auto")
        template_hash = (self.restart_policy.mode, self.template, roles, self.storage, launcher)
        scheduling = self.run_policy.scheduling or Scheduling()
        rules, alone = self.restart_policy.rules, self.restart_scope == "Pod"
        # Fields that earlier versions did not have are left out if unused.
        later: tuple[object, ...] = (rules, alone) if rules or alone else ()
        later += () if self.min_replicas is None else (self.min_replicas,)
        later += (scheduling.pod_group.api_version,) if scheduling.pod_group else ()
        later += () if scheduling.gang is None else (scheduling.gang,)
        later += () if backup == _MEMORY_BACKUP else (backup,)
        later += () if self.code is None else (self.code,)
        everything = (*template_hash, scheduling.priority_class_name, *later)
        return sha256(msgspec.json.encode(everything, order="deterministic")).hexdigest()[:16]

    @property
    def pod_group(self) -> PodGroup | None:
        """The PodGroup of a gang scheduler that the job asks for."""
        return self.run_policy.scheduling.pod_group if self.run_policy.scheduling else None

    @property
    def native_gang(self) -> bool:
        """Whether Kubernetes' own scheduler places the gang as a whole."""
        return self.run_policy.scheduling is not None and self.run_policy.scheduling.gang == "Native"

    def priority_class_of(self, role: RoleName) -> str | None:
        """The PriorityClass of the role's pods: that of its template, otherwise that of the job."""
        own = self.template_of(role).get("spec") or {}
        if "priorityClassName" in own:
            return own["priorityClassName"] or None
        return self.run_policy.scheduling.priority_class_name if self.run_policy.scheduling else None

    @property
    def topology_key(self) -> str | None:
        """The label of nodes by which the gang's pods prefer to be together. No part of the fingerprint."""
        return self.run_policy.scheduling.topology_key if self.run_policy.scheduling else None

    @property
    def placed_together(self) -> int:
        """The number of pods that a scheduler or a queue has to place together: those of the gang."""
        return sum(own.replicas for role in GANG_ROLES if (own := self.role(role)) is not None)

    @property
    def chief(self) -> Replica:
        """The replica that is TensorFlow's chief: the `chief` task if there is one, otherwise worker 0."""
        return self.trainers[0]
