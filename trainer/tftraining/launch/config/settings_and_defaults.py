"""The gang, and the fields of the job's spec by which its launchers decide: one table, Policy.

Pure. A row is a setting: its name in the operator's JobSpec and here, in camelCase that of the custom resource and of
the JSON; its default, which the operator's types take from here (a test holds that of the definition in crds/ equal);
its parser; and whether it may change while the job runs. The operator writes the JSON (`JobSpec.launcher_settings`), a
launcher reads it here. A decoder must accept an object without a key, because the operator may be of an earlier
version: the default or, in an update, the value so far then holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from tftraining.launch.failure.restart_rules import Rule
from tftraining.launch.roles import GANG_ROLES, WORKER, role_of, traits_of

Parse = Callable[[Any, str], Any]  # the value of a key; ValueError or TypeError if that is invalid
T = TypeVar("T")


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


def setting(default: Any, parse: Parse, **more: Any) -> Any:
    """A row of a table of settings. `changes=True`: it may change while the job runs. `before`: what holds for the jobs
    of an operator that does not know it, if that is not the default."""
    return field(default=default, metadata={"parse": parse, **more})


def plain(kind: Callable[[Any], Any]) -> Parse:
    """The parser of a value of this type."""
    return lambda value, _: kind(value)


def optional(parse: Parse) -> Parse:
    """The parser of a value that may be null."""
    return lambda value, key: None if value is None else parse(value, key)


def _seconds(least: float) -> Parse:
    def parse(value: Any, key: str) -> float:
        if not least <= float(value) < float("inf"):
            raise ValueError(f"{key} must be at least {least:g} seconds")
        return float(value)

    return parse


def _rules(value: Any, _: str) -> tuple[Rule, ...]:
    return tuple(map(Rule.from_json, value))


@dataclass(frozen=True)
class Policy:
    """The settings, in the order of the JSON. A limit that is None is off."""

    warm_start: bool = setting(True, plain(bool))
    termination_grace_seconds: float = setting(5, _seconds(0.0))
    member_timeout_seconds: float = setting(3, _seconds(0.5))
    max_restarts: int = setting(10, plain(int), changes=True)
    same_failure_limit: int = setting(3, plain(int), changes=True, before=0)  # 0 is off
    same_member_limit: int = setting(3, plain(int), changes=True, before=0)  # 0 is off
    on_divergence: str = setting("Report", plain(str), changes=True)
    budget_reset: str = setting("OnProgress", plain(str), changes=True)
    scope: str = setting("Job", plain(str))
    start_deadline_seconds: float = setting(600, _seconds(0.0), changes=True)
    stall_timeout_seconds: float | None = setting(None, optional(_seconds(0.1)), changes=True)
    evaluator_grace_seconds: float = setting(60, _seconds(0.0), changes=True)
    success_policy: str = setting("Chief", plain(str), changes=True)
    rules: tuple[Rule, ...] = setting((), _rules)
    min_replicas: int | None = setting(None, optional(plain(int)))

    @property
    def all_workers(self) -> bool:
        """Whether the job succeeds only when every chief and worker has exited with 0."""
        return self.success_policy == "AllWorkers"

    @property
    def restores(self) -> bool:
        """Whether all go back to a backup in memory when replicas differ."""
        return self.on_divergence == "Restore"


def _column(table: type[Any], column: str) -> dict[str, Any]:
    return {each.name: each.metadata[column] for each in fields(table) if column in each.metadata}


def names(table: type[Any]) -> tuple[str, ...]:
    """The settings of the table, in the order of the JSON."""
    return tuple(_column(table, "parse"))


UPDATABLE = tuple(_column(Policy, "changes"))  # the settings that may change while the job runs


def key_of(name: str) -> str:
    """The key in the JSON: the setting's name in camelCase."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def decode(table: type[T], raw: Mapping[str, Any], within: str = "") -> T:
    """The settings of this table for a new launcher; KeyError, TypeError or ValueError if a value is invalid. `within`
    is the part of the JSON that has them, for messages."""
    return table(**{**_column(table, "before"), **_parsed(table, raw, within)})


def decode_updates(raw: Mapping[str, Any], policy: Policy) -> Policy:
    """The policy after an update; KeyError, TypeError or ValueError if a value is invalid."""
    return replace(policy, **_parsed(Policy, {name: raw[name] for name in map(key_of, UPDATABLE) if name in raw}))


def _parsed(table: type[Any], raw: Mapping[str, Any], within: str = "") -> dict[str, Any]:
    """The settings that the JSON has."""
    rows = ((name, key_of(name), parse) for name, parse in _column(table, "parse").items())
    return {name: parse(raw[key], within + key) for name, key, parse in rows if key in raw}
