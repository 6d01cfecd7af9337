"""The status of a TFTrainingJob, field for field as in the CRD."""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Literal, Self

import msgspec

from tftraining.launch.failure import same_failure
from tftraining.launch.failure.restart_budget import Ledger
from tftraining.launch.failure.same_member import NO_ROW, SameMember
from tftraining.launch.roles import CHIEF, WORKER
from tftraining_api.model.goodput import Goodput
from tftraining_api.model.indexes import unpack
from tftraining_api.model.spec import Frozen, JobSpec, Storage

Phase = Literal["Pending", "Starting", "Running", "Restarting", "Suspended", "Succeeded", "Failed"]
# What the launchers do about Keras (see tftraining_api/model/keras.py).
Keras = Literal["Own", "Legacy", "Unpatched"]
ConditionStatus = Literal["True", "False", "Unknown"]
MEMORY_BACKUP, OOM_KILLED = "MemoryBackup", "OOMKilled"  # a condition, and a reason of it
INPUT_NOT_REPRODUCIBLE, RESUMED_TRAINING_DIFFERS = "InputNotReproducible", "ResumedTrainingDiffers"  # conditions
REPLICAS_DIFFER, SLOW_MEMBER = "ReplicasDiffer", "SlowMember"  # conditions
TERMINAL: tuple[Phase, ...] = ("Succeeded", "Failed")


class Condition(Frozen, frozen=True):
    """A metav1.Condition."""

    type: str
    status: ConditionStatus
    last_transition_time: datetime
    reason: str
    message: str = msgspec.field(default="")
    observed_generation: int | None = None


class Counts(Frozen, frozen=True):
    """The pods of one role; `highest` is the highest index ever used, which the cleanup needs after a scale-down.

    `completed_indexes` (see tftraining_api/model/indexes.py) keeps finished replicas from running again after their
    pods are deleted. `absent_indexes` are the replicas without a pod: a missing pod of any other replica has been lost.
    """

    desired: int = 0
    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    highest: int = 0
    completed_indexes: str = ""
    absent_indexes: str = ""

    @property
    def total(self) -> int:
        """The number of pods of the present attempt when the status was written."""
        return self.active + self.succeeded + self.failed

    def had(self, indexes: Collection[int]) -> set[int]:
        """The ones of `indexes` that had a pod then. An older version of the operator wrote no `absent_indexes`."""
        if not self.absent_indexes:
            return {each for each in indexes if each < self.desired <= self.total}
        absent = unpack(self.absent_indexes, indexes)
        return {each for each in indexes if each < self.desired and each not in absent}


class FailuresInARow(Frozen, frozen=True):
    """How many times in a row, and since when, the program has failed with the same exception at the same place. `key`
    identifies both (see tftraining.launch.failure.same_failure)."""

    key: str
    count: int
    since: datetime


class MemberFailures(Frozen, frozen=True):
    """The member that failed last, and how many times in a row, while the others were well."""

    member: str
    count: int


class Restarts(Frozen, frozen=True):
    """The restarts so far. The fields from `budget_used` on are for the budget and the back-off: `pod_failures` is the
    part of `counted` that no launcher can count; `epoch` and `checkpoint` are those at the last restart, to measure
    progress by; `went_back_to` and `went_back_from` are the steps between which backups in the storage are doubted,
    because replicas differed. `restarted_at` is the last request for a restart that was answered."""

    counted: int = 0
    disruptions: int = 0
    in_place: int = 0
    recreated: int = 0
    budget_used: int = 0
    without_progress: int = 0
    pod_failures: int = 0
    epoch: int | None = None
    checkpoint: int | None = None
    same_failure: FailuresInARow | None = None
    same_member: MemberFailures | None = None
    went_back_to: int | None = None
    went_back_from: int | None = None
    restarted_at: str | None = None

    @property
    def ledger(self) -> Ledger:
        """The charges as launchers count them."""
        row, same = self.same_failure, same_failure.NO_FAILURE
        if row is not None:
            same = same_failure.SameFailure(row.key, row.count, int(row.since.timestamp()))
        programs, refilled_at = self.counted - self.pod_failures, self.counted - self.budget_used
        counts = (self.in_place, programs, self.pod_failures, refilled_at, self.without_progress)
        member = SameMember(self.same_member.member, self.same_member.count) if self.same_member else NO_ROW
        back = {"went_back_to": self.went_back_to or 0, "went_back_from": self.went_back_from or 0}
        return Ledger(*counts, same=same, same_member=member, **back)

    def with_ledger(self, ledger: Ledger) -> Self:
        """The same with these charges."""
        row, member = ledger.same, ledger.same_member
        since = datetime.fromtimestamp(row.since, UTC)
        return msgspec.structs.replace(
            self,
            counted=ledger.failures,
            in_place=ledger.in_place,
            budget_used=max(0, ledger.used),
            without_progress=ledger.without_progress,
            pod_failures=ledger.pod_failures,
            same_failure=FailuresInARow(key=row.key, count=row.count, since=since) if row.count else None,
            same_member=MemberFailures(member.member, member.count) if member.count else None,
            went_back_to=ledger.went_back_to or None,
            went_back_from=ledger.went_back_from or None,
        )


class LastRestart(Frozen, frozen=True):
    """The last restart of the gang, or of one member `alone`, and its reason."""

    time: datetime
    pod: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    reason: str | None = None
    down_seconds: float | None = None
    resumed_from_epoch: int | None = None
    resumed_from_step: int | None = None
    resumed_from: str | None = None
    lost_steps: int | None = None
    lost_seconds: float | None = None
    backup_skipped: str | None = None
    alone: bool = False
    exception: str | None = None


class LastFailure(Frozen, frozen=True):
    """The last failure of the program, kept after its pod is gone."""

    pod: str
    exit_code: int | None = None
    signal: int | None = None
    reason: str | None = None
    log_tail: str | None = None
    exception: str | None = None


class Backup(Frozen, frozen=True):
    """The newest backup in memory: `bytes` of one member, `seconds` for which it stopped the training; all of these
    programs did for `blocked_seconds`. A restart `resumes_at` one of resumes_at.RESUMES_AT."""

    step: int
    time: datetime | None = None
    where: str | None = None
    bytes: int | None = None
    seconds: float | None = None
    resumes_at: str | None = None
    blocked_seconds: float | None = None


class Progress(Frozen, frozen=True):
    """The training's progress. `backup_reason` tells why there are no backups in memory, or why a restart
    does not resume exactly at the step. `fit` is the number of the program's `fit` to which epochs and steps belong;
    `total_steps` counts those of its earlier ones, too."""

    epoch: int | None = None
    epochs: int | None = None
    step: int | None = None
    steps_per_epoch: int | None = None
    steps_per_second: float | None = None
    checkpoint: int | None = None
    metrics: dict[str, float] = msgspec.field(default_factory=dict)
    updated_time: datetime | None = None
    display: str | None = None
    backup: Backup | None = None
    backup_reason: str | None = None
    fit: int | None = None
    total_steps: int | None = None


class RestartMark(Frozen, frozen=True):
    """A restart in the history: the newest step before it, and its reason."""

    time: datetime
    step: int | None = None
    reason: str = ""


class History(Frozen, frozen=True):
    """The training so far, in columns: row by row the step, the epoch, the seconds since `start_time` and the value of
    each metric, None where a row has none. The restarts are the last ones."""

    start_time: datetime | None = None
    steps: tuple[int | None, ...] = ()
    epochs: tuple[int | None, ...] = ()
    seconds: tuple[float, ...] = ()
    metrics: dict[str, tuple[float | None, ...]] = msgspec.field(default_factory=dict)
    restarts: tuple[RestartMark, ...] = ()


class Cleanup(Frozen, frozen=True):
    """The result of the cleanup of temporary save directories. `storage` is the one that the pods have written:
    spec.storage may change in a suspension."""

    removed: int | None = None
    message: str | None = None
    failed_attempts: int = 0
    storage: Storage | None = None


class AvoidedNode(Frozen, frozen=True):
    """A node that new pods avoid `until` that time, if another has room: the `replica` failed there, `why` in words.
    `used_by` is a replica whose pod was scheduled there since."""

    name: str
    until: datetime
    replica: str = ""
    why: str = ""
    used_by: str | None = None


class CodeStatus(Frozen, frozen=True):
    """The program that the pods unpack."""

    digest: str


class Status(Frozen, frozen=True):
    """The whole status; equal statuses need no write.

    `replaced` maps a replica to the UID of its pod of this attempt that was last given up: the pod is charged once,
    however long its deletion takes. `successors` maps a replica to the number in its present pod's name, under Kueue
    (see manifests/kueue.py). `accepted_templates` maps a role to the JobSpec.fingerprint of the last pod that
    the API server accepted. `memory_backup_off` tells why later pods make no backups in memory.
    """

    phase: Phase = msgspec.field(default="Pending")
    conditions: tuple[Condition, ...] = ()
    reason: str | None = None
    message: str | None = None
    ready: str | None = None
    start_time: datetime | None = None
    completion_time: datetime | None = None
    admitted_time: datetime | None = None
    observed_generation: int | None = None
    attempt: int = 0
    selector: str | None = None
    replicas: dict[str, Counts] = msgspec.field(default_factory=dict)
    restarts: Restarts = Restarts()
    replaced: dict[str, str] = msgspec.field(default_factory=dict)
    successors: dict[str, int] = msgspec.field(default_factory=dict)
    avoided_nodes: tuple[AvoidedNode, ...] = ()
    accepted_templates: dict[str, str] = msgspec.field(default_factory=dict)
    last_restart: LastRestart | None = None
    progress: Progress | None = None
    failure: LastFailure | None = None
    cleanup: Cleanup | None = None
    memory_backup_off: str | None = None
    history: History | None = None
    code: CodeStatus | None = None
    keras: Keras | None = None
    goodput: Goodput | None = None

    @property
    def terminal(self) -> bool:
        """Whether the job has succeeded or failed; both phases are final."""
        return self.phase in TERMINAL

    @property
    def latest_restart(self) -> LastRestart | None:
        """The last restart, unless the job was suspended after it: the present run is then not due to that restart."""
        suspended = self.condition("Suspended")
        if self.last_restart is None or suspended is None or self.last_restart.time >= suspended.last_transition_time:
            return self.last_restart
        return None

    @property
    def no_more_backups(self) -> str | None:
        """Why later pods make no backups in memory. The condition has the reason too: the API server drops
        `memory_backup_off` if its definition of the resource is older than the field."""
        condition = self.condition(MEMORY_BACKUP)
        if condition is not None and condition.reason in (OOM_KILLED, RESUMED_TRAINING_DIFFERS):
            return condition.message
        return self.memory_backup_off

    @property
    def proven(self) -> bool:
        """Whether the job may have made a step: it has reported progress, or has been restarted."""
        restarts = self.restarts
        before = restarts.counted + restarts.disruptions + restarts.in_place + restarts.recreated
        return self.progress is not None or before > 0

    def condition(self, kind: str) -> Condition | None:
        """The condition of that type; None if it is not set."""
        return next((each for each in self.conditions if each.type == kind), None)

    def is_true(self, kind: str) -> bool:
        """Whether the condition is set and True."""
        condition = self.condition(kind)
        return condition is not None and condition.status == "True"


def largest_gang(status: Status, spec: JobSpec) -> int:
    """The largest number of chiefs and workers that the job has had or may have. Whether legacy Keras is needed
    depends on it, and must not change between checkpoints."""
    chief, worker = spec.role(CHIEF), status.replicas.get(WORKER)
    ever = (worker.highest + 1 if worker else 0) + (1 if chief else 0)
    return max(len(spec.trainers), ever, 2 if spec.min_replicas is not None else 1)
