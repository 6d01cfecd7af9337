"""A TFTrainingJob as the rest of the operator sees it: parsed once, at the edge."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec

from tftraining.launch.roles import ROLES
from tftraining_api.model.names import ANNOTATION_RESTARTED_AT, MANAGER, QUEUE_LABELS, Key
from tftraining_api.model.native_gang import why_no_native_gang
from tftraining_api.model.spec import Frozen, JobSpec, Manifest, RunPolicy
from tftraining_api.model.status import Condition, Status
from tftraining_api.model.template import check_template
from tftraining_api.model.tf_config import why_not_settable
from tftraining_api.model.times import readable

EPOCH = datetime.fromtimestamp(0, UTC)
# Fields that each describe one past occurrence: unknown fields of an earlier occurrence do not hold for a new one.
OCCURRENCES = ("lastRestart", "failure")
# Pods keep so many characters of the annotation that asks for a restart; an annotation may be much longer.
LONGEST_REQUEST = 64


class Problem(Frozen, frozen=True):
    """Why a job cannot run, for users."""

    reason: str
    message: str


NOBODY_TRAINS = Problem("InvalidSpec", "spec.replicaSpecs needs a chief or a worker with at least one replica")


class Job(Frozen, frozen=True):
    """One job: identity, spec and status. `spec` is None if invalid or unreadable; `problem` or `unreadable` says why,
    and `policy_of_invalid` is the spec.runPolicy of an invalid one.

    `unreadable` is why this version of the operator cannot read the spec or the status; it must not act on the job then
    (see plan/unreadable.py). If the status is unreadable, `status` has its readable conditions only. `queue_labels` are
    the job's labels for Kueue, empty if the job names no queue. `restarted_at` is the value of the annotation that asks
    for a restart, empty without one.
    """

    key: Key
    uid: str
    generation: int
    status: Status
    spec: JobSpec | None
    problem: Problem | None = None
    policy_of_invalid: RunPolicy | None = None
    unreadable: Problem | None = None
    deleting: bool = False
    created: datetime = EPOCH
    managed_by: str = MANAGER
    queue_labels: dict[str, str] = msgspec.field(default_factory=dict)
    restarted_at: str = ""

    @property
    def ours(self) -> bool:
        """Whether this operator reconciles the job (spec.runPolicy.managedBy)."""
        return self.managed_by == MANAGER


class _Meta(Frozen, frozen=True):
    name: str
    namespace: str
    uid: str
    generation: int = 1
    creation_timestamp: datetime = EPOCH
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


def parse_job(raw: Manifest) -> Job:
    """Parse a TFTrainingJob from the API server.

    An unreadable spec or status sets `unreadable` instead of raising an error, so that the status can report it.
    """
    meta = msgspec.convert(raw["metadata"], _Meta)
    spec, unreadable = _parse_spec(raw.get("spec", {}))
    status, unknown = _parse_status(raw.get("status") or {})
    key = Key(meta.namespace, meta.name)
    queue = _queue_labels(meta.labels or {})
    problem = _problem(key, spec, queue) if spec is not None else None
    return Job(
        key=key,
        uid=meta.uid,
        generation=meta.generation,
        status=status,
        spec=spec if problem is None else None,
        problem=problem,
        policy_of_invalid=spec.run_policy if spec is not None and problem is not None else None,
        unreadable=unreadable or unknown,
        deleting=meta.deletion_timestamp is not None,
        created=meta.creation_timestamp,
        managed_by=_manager(raw.get("spec")),
        queue_labels=queue,
        restarted_at=restart_request(meta.annotations),
    )


def restart_request(annotations: dict[str, str] | None) -> str:
    """The value of the annotation that asks for a restart, as pods keep it."""
    return (annotations or {}).get(ANNOTATION_RESTARTED_AT, "")[:LONGEST_REQUEST]


def _problem(key: Key, spec: JobSpec, queue: dict[str, str]) -> Problem | None:
    if not spec.trainers:
        return NOBODY_TRAINS
    why = why_no_native_gang(spec, queue) or why_not_settable(key, spec)
    return Problem("InvalidSpec", why) if why else None


def dump_status(status: Status) -> dict[str, Any]:
    """The status as the API server accepts it. The CRD requires a condition's message, even if empty."""
    raw: dict[str, Any] = msgspec.to_builtins(status)
    raw["phase"] = status.phase
    # kubectl shows the number of restarts as a column, so 0 must be there too.
    raw.setdefault("restarts", {}).setdefault("counted", 0)
    for condition in raw.get("conditions", ()):
        condition.setdefault("message", "")
    return raw


def replaced_status(raw: Any, status: Status) -> dict[str, Any]:
    """The status that replaces `raw`, with those fields of `raw` that only another version of the operator knows."""
    return _with_unknown(raw or {}, dump_status(_parse_status(raw or {})[0]), dump_status(status))


def patched_conditions(raw: Any, condition: Condition) -> dict[str, Any]:
    """A merge patch that sets one condition in the status `raw`, and changes nothing else."""
    others = unset_condition(raw, condition.type)["conditions"]
    return {"conditions": [*others, *dump_status(Status(conditions=(condition,)))["conditions"]]}


def unset_condition(raw: Any, kind: str) -> dict[str, Any]:
    """A merge patch that removes one condition from the status `raw`, and changes nothing else."""
    held = (raw or {}).get("conditions") or ()
    return {"conditions": [each for each in held if not (isinstance(each, dict) and each.get("type") == kind)]}


def has_condition(raw: Any, kind: str) -> bool:
    """Whether the status `raw` has a condition of that type."""
    return len(unset_condition(raw, kind)["conditions"]) < len((raw or {}).get("conditions") or ())


def readable_status(raw: Any) -> Status:
    """The status `raw` as far as this version of the operator can read it: all of it, or its conditions."""
    return _parse_status(raw or {})[0]


def _with_unknown(raw: dict[str, Any], known: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """`new` with the fields of `raw` that are in neither `new` nor `known`, the part of `raw` that was understood."""
    kept = {name: value for name, value in raw.items() if name not in known and name not in new}
    for name, value in new.items():
        old, read = raw.get(name), known.get(name, {})
        same = isinstance(value, dict) and isinstance(old, dict) and not (name in OCCURRENCES and _other(read, value))
        kept[name] = _with_unknown(old or {}, read, value) if same else value
    return kept


def _other(old: dict[str, Any], new: dict[str, Any]) -> bool:
    return bool(old.get("time") != new["time"]) if "time" in new else old != new


def _manager(raw: Any) -> str:
    """The controller that reconciles the job. Read apart from the spec, which may be unreadable if it is another's."""
    policy = raw.get("runPolicy") if isinstance(raw, dict) else None
    named = policy.get("managedBy") if isinstance(policy, dict) else None
    return named if isinstance(named, str) else MANAGER


def _queue_labels(labels: dict[str, str]) -> dict[str, str]:
    return {name: labels[name] for name in QUEUE_LABELS if labels.get(name)} if labels.get(QUEUE_LABELS[0]) else {}


def _parse_spec(raw: Any) -> tuple[JobSpec | None, Problem | None]:
    try:
        spec = msgspec.convert(raw, JobSpec)
    except msgspec.ValidationError as error:
        return None, Problem("SpecUnreadable", f"the spec cannot be read: {error}")
    if unknown := sorted(set(raw["replicaSpecs"]) - set(ROLES)):
        return None, Problem("SpecUnreadable", f"spec.replicaSpecs.{unknown[0]}: unknown role")
    templates = {"spec.template": spec.template}
    templates |= {f"spec.replicaSpecs.{role}.template": own.template for role in ROLES if (own := spec.role(role))}
    for name, template in templates.items():
        try:
            check_template(template or {})
        except msgspec.ValidationError as error:
            return None, Problem("SpecUnreadable", f"{name} cannot be read: {error}")
    return spec, None


def _parse_status(raw: Any) -> tuple[Status, Problem | None]:
    try:
        return msgspec.convert(readable(raw), Status), None
    except msgspec.ValidationError as error:
        known = Status(conditions=tuple(_conditions(raw)))
        return known, Problem("StatusUnreadable", f"the status cannot be read: {error}")


def _conditions(raw: Any) -> Iterator[Condition]:
    """The readable conditions."""
    held = raw.get("conditions") if isinstance(raw, dict) else None
    for each in held if isinstance(held, list) else ():
        with suppress(msgspec.ValidationError):
            yield msgspec.convert(readable(each), Condition)
