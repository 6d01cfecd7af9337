"""The gang, the fields of the job's spec by which its launchers decide (Policy), and the JSON form of these fields.

Pure. The operator encodes the fields from the spec (`encode`, `encode_updates`); a launcher decodes them (`decode`,
`decode_updates`). A field has the name of the custom resource: in snake_case here, in camelCase in the JSON. A decoder
must accept an object without a key, because the operator may be of an earlier version: the default or, in an update,
the value so far then holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from tftraining.launch.failure.restart_rules import Rule
from tftraining.launch.roles import GANG_ROLES, WORKER, role_of, traits_of


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
        """The members that make steps."""
        return tuple(name for name in self.members if traits_of(name).makes_steps)

    def resized(self, workers: int) -> Gang:
        """The gang with another number of workers."""
        roles = {role: [name for name in self.members if role_of(name) == role] for role in GANG_ROLES}
        roles[WORKER] = [f"{WORKER}-{index}" for index in range(workers)]
        return Gang(tuple(name for names in roles.values() for name in names), self.me)


START_DEADLINE_UNSET = 600.0  # the definition's default, which the API server stores in every job


@dataclass(frozen=True)
class Policy:
    """The fields of the job's spec by which its launchers decide. A default is the value of a missing key; a limit that
    is None is off."""

    warm_start: bool = True
    termination_grace_seconds: float = 5.0
    member_timeout_seconds: float = 3.0
    max_restarts: int = 10
    same_failure_limit: int = 0  # 0 is off
    budget_reset: str = "OnProgress"
    scope: str = "Job"
    start_deadline_seconds: float = START_DEADLINE_UNSET
    stall_timeout_seconds: float | None = None
    evaluator_grace_seconds: float = 60.0
    success_policy: str = "Chief"
    rules: tuple[Rule, ...] = ()
    min_replicas: int | None = None

    @property
    def refills_budget(self) -> bool:
        """Whether progress restores the whole restart budget."""
        return self.budget_reset != "Never"

    @property
    def all_workers(self) -> bool:
        """Whether the job succeeds only when every chief and worker has exited with 0."""
        return self.success_policy == "AllWorkers"


Parse = Callable[[Any, str], Any]  # the value of a key; ValueError or TypeError if that is invalid


def _plain(kind: Callable[[Any], Any]) -> Parse:
    return lambda value, _: kind(value)


def _seconds(least: float) -> Parse:
    def parse(value: Any, key: str) -> float:
        if not least <= float(value) < float("inf"):
            raise ValueError(f"{key} must be at least {least:g} seconds")
        return float(value)

    return parse


def _optional(parse: Parse) -> Parse:
    return lambda value, key: None if value is None else parse(value, key)


def _rules(value: Any, _: str) -> tuple[Rule, ...]:
    return tuple(map(Rule.from_json, value))


@dataclass(frozen=True)
class Key:
    """One key of the JSON: the field of Policy, the field's path in the operator's JobSpec, and its parser."""

    field: str
    path: str
    parse: Parse

    @property
    def name(self) -> str:
        """The key in the JSON: the field's name in camelCase."""
        first, *others = self.field.split("_")
        return first + "".join(word.capitalize() for word in others)


# In the order of the JSON.
KEYS = (
    Key("warm_start", "launcher.warm_start", _plain(bool)),
    Key("termination_grace_seconds", "launcher.termination_grace_seconds", _seconds(0.0)),
    Key("member_timeout_seconds", "launcher.member_timeout_seconds", _seconds(0.5)),
    Key("max_restarts", "restart_policy.max_restarts", _plain(int)),
    Key("same_failure_limit", "restart_policy.same_failure_limit", _plain(int)),
    Key("budget_reset", "restart_policy.budget_reset", _plain(str)),
    Key("scope", "restart_scope", _plain(str)),
    Key("start_deadline_seconds", "run_policy.start_deadline_seconds", _seconds(0.0)),
    Key("stall_timeout_seconds", "run_policy.stall_timeout_seconds", _optional(_seconds(0.1))),
    Key("evaluator_grace_seconds", "run_policy.evaluator_grace_seconds", _seconds(0.0)),
    Key("success_policy", "success_policy", _plain(str)),
    Key("rules", "restart_policy.rules", _rules),
    Key("min_replicas", "min_replicas", _optional(_plain(int))),
)
_BY_FIELD = {key.field: key for key in KEYS}
# The fields that may change while the job runs, in the order of the JSON.
UPDATABLE = tuple(
    _BY_FIELD[field]
    for field in (
        "max_restarts",
        "same_failure_limit",
        "budget_reset",
        "success_policy",
        "start_deadline_seconds",
        "stall_timeout_seconds",
        "evaluator_grace_seconds",
    )
)


def encode(spec: Any) -> dict[str, Any]:
    """The fields of a JobSpec for a new launcher."""
    return _encoded(KEYS, spec)


def encode_updates(spec: Any) -> dict[str, Any]:
    """The fields of a JobSpec that running launchers take."""
    return _encoded(UPDATABLE, spec)


def decode(raw: Mapping[str, Any]) -> Policy:
    """The policy of a new launcher; KeyError, TypeError or ValueError if a value is invalid."""
    return _decoded(KEYS, raw, Policy())


def decode_updates(raw: Mapping[str, Any], policy: Policy) -> Policy:
    """The policy after an update; KeyError, TypeError or ValueError if a value is invalid."""
    return _decoded(UPDATABLE, raw, policy)


def _encoded(keys: Iterable[Key], spec: Any) -> dict[str, Any]:
    return {key.name: attrgetter(key.path)(spec) for key in keys}


def _decoded(keys: Iterable[Key], raw: Mapping[str, Any], policy: Policy) -> Policy:
    return replace(policy, **{key.field: key.parse(raw[key.name], key.name) for key in keys if key.name in raw})
