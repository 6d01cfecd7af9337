"""A TFTrainingJob as the rest of the operator sees it: parsed once, at the edge."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from tftraining_operator.model.names import MANAGER, QUEUE_LABELS, ROLES, Key
from tftraining_operator.model.spec import Frozen, JobSpec, Manifest
from tftraining_operator.model.status import Status
from tftraining_operator.model.template import check_template

EPOCH = datetime.fromtimestamp(0, UTC)


class Problem(Frozen, frozen=True):
    """Why a job cannot be run at all, for a person."""

    reason: str
    message: str


class Job(Frozen, frozen=True):
    """One job: who it is, what was asked for, and what its status says. `spec` is None where `problem` says why.

    `queue_labels` are those of its labels that ask Kueue for a queue, empty if there is none.
    """

    key: Key
    uid: str
    generation: int
    status: Status
    spec: JobSpec | None
    problem: Problem | None = None
    deleting: bool = False
    created: datetime = EPOCH
    managed_by: str = MANAGER
    queue_labels: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def ours(self) -> bool:
        """Whether this operator is the one to act (spec.runPolicy.managedBy)."""
        return self.managed_by == MANAGER


class _Meta(Frozen, frozen=True):
    name: str
    namespace: str
    uid: str
    generation: int = 1
    creation_timestamp: datetime = EPOCH
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] | None = None


def parse_job(raw: Manifest) -> Job:
    """Parse a TFTrainingJob from the API server.

    A spec that cannot be read gives a job with a `problem`, not an error: somebody has to be told in its status.
    """
    meta = msgspec.convert(raw["metadata"], _Meta)
    spec, problem = _parse_spec(raw.get("spec", {}))
    return Job(
        key=Key(meta.namespace, meta.name),
        uid=meta.uid,
        generation=meta.generation,
        status=_parse_status(raw.get("status") or {}),
        spec=spec,
        problem=problem,
        deleting=meta.deletion_timestamp is not None,
        created=meta.creation_timestamp,
        managed_by=_manager(raw.get("spec")),
        queue_labels=_queue_labels(meta.labels or {}),
    )


def dump_status(status: Status) -> dict[str, Any]:
    """The status as the API server takes it. A Condition's message is required there, even if it is empty."""
    raw: dict[str, Any] = msgspec.to_builtins(status)
    raw["phase"] = status.phase
    # Shown as a column: no restarts is a number too.
    raw.setdefault("restarts", {}).setdefault("counted", 0)
    for condition in raw.get("conditions", ()):
        condition.setdefault("message", "")
    return raw


def _manager(raw: Any) -> str:
    """Who reconciles the job; read apart from the rest, which need not make sense to us if that is somebody else."""
    policy = raw.get("runPolicy") if isinstance(raw, dict) else None
    named = policy.get("managedBy") if isinstance(policy, dict) else None
    return named if isinstance(named, str) else MANAGER


def _queue_labels(labels: dict[str, str]) -> dict[str, str]:
    return {name: labels[name] for name in QUEUE_LABELS if labels.get(name)} if labels.get(QUEUE_LABELS[0]) else {}


def _parse_spec(raw: Any) -> tuple[JobSpec | None, Problem | None]:
    try:
        spec = msgspec.convert(raw, JobSpec)
    except msgspec.ValidationError as error:
        return None, Problem("InvalidSpec", f"the spec cannot be read: {error}")
    templates = {"spec.template": spec.template}
    templates |= {f"spec.replicaSpecs.{role}.template": own.template for role in ROLES if (own := spec.role(role))}
    for name, template in templates.items():
        try:
            check_template(template or {})
        except msgspec.ValidationError as error:
            return None, Problem("InvalidSpec", f"{name} cannot be read: {error}")
    if not spec.trainers:
        return None, Problem("InvalidSpec", "spec.replicaSpecs needs a chief or a worker with at least one replica")
    return spec, None


def _parse_status(raw: Any) -> Status:
    try:
        return msgspec.convert(raw, Status)
    except msgspec.ValidationError:
        # Written by somebody else: what is observed is worth more than what cannot be read.
        return Status()
