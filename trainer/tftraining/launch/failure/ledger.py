"""The ledger of restarts: their counts, the use of the restart budget, and the back-off before the next one. Pure.

The chief sends the ledger with every `start` and gets it back in every `hello`, so it outlives the chief's launcher. It
must never forget a charge: a merge takes the larger of each count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tftraining.launch.failure.same_failure import NO_FAILURE, SameFailure

LONGEST_BACKOFF = 60.0
EXCEEDED = "MaxRestartsExceeded"  # the reason of a job that has no restarts left


@dataclass(frozen=True)
class Ledger:
    """Counts since the job began; they only rise, except `without_progress`."""

    in_place: int = 0
    process_failures: int = 0
    pod_failures: int = 0  # counted by the operator
    refilled_at: int = 0  # the number of failures when progress last refilled the budget
    without_progress: int = 0  # restarts in a row with no progress between them
    incidents: int = 0  # all incidents, charged or not: tells which of two ledgers is newer
    same: SameFailure = NO_FAILURE  # the last failure, and how often in a row it came
    violations: int = 0  # rounds whose resumed training was found to differ; it ends the backups in memory

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Ledger:
        """Read the JSON form; ValueError or TypeError if a count is not a number."""
        in_place, processes, pods, refilled, in_a_row, incidents = (max(0, int(raw.get(name, 0))) for name in _NAMES)
        same, violations = SameFailure.from_json(raw.get("sameFailure") or {}), max(0, int(raw.get("violations", 0)))
        return cls(in_place, processes, pods, refilled, in_a_row, incidents, same, violations)

    def to_json(self) -> dict[str, Any]:
        """The JSON form, which the operator and all launchers read."""
        counts = (self.in_place, self.process_failures, self.pod_failures, self.refilled_at, self.without_progress)
        same = {"sameFailure": self.same.to_json()} if self.same.count else {}
        violations = {"violations": self.violations} if self.violations else {}
        return {**dict(zip(_NAMES, (*counts, self.incidents))), **same, **violations}

    @property
    def failures(self) -> int:
        """The number of failures ever charged."""
        return self.process_failures + self.pod_failures

    @property
    def used(self) -> int:
        """The failures charged since the last refill of the budget."""
        return self.failures - self.refilled_at


_NAMES = ("inPlace", "processFailures", "podFailures", "refilledAt", "withoutProgress", "incidents")


def merge(one: Ledger, other: Ledger) -> Ledger:
    """Merge two ledgers. Counts in a row come from the newer one, for progress or another failure resets them."""
    later = max(one, other, key=_how_late)
    return Ledger(
        in_place=max(one.in_place, other.in_place),
        process_failures=max(one.process_failures, other.process_failures),
        pod_failures=max(one.pod_failures, other.pod_failures),
        refilled_at=max(one.refilled_at, other.refilled_at),
        without_progress=later.without_progress,
        incidents=later.incidents,
        same=later.same,
        violations=max(one.violations, other.violations),
    )


def _how_late(ledger: Ledger) -> tuple[Any, ...]:
    """Sort key, greater for the newer ledger. Launchers of an older version drop the fields that they do not know."""
    restarts = (ledger.incidents, ledger.in_place + ledger.failures, ledger.without_progress)
    return (*restarts, ledger.same.count, ledger.same.since, ledger.same.key)


def account(ledger: Ledger, *, charged: bool, progressed: bool, refill: bool, failed: bool = True) -> Ledger:
    """The ledger after an incident; with `refill`, progress since the last incident refills the budget.

    `failed` is False for intended restarts: they add nothing to the back-off.
    """
    if progressed:
        ledger = replace(ledger, without_progress=0, refilled_at=ledger.failures if refill else ledger.refilled_at)
    return replace(
        ledger,
        process_failures=ledger.process_failures + charged,
        without_progress=ledger.without_progress + failed,
        incidents=ledger.incidents + 1,
    )


def backoff(without_progress: int) -> float:
    """The seconds before a restart that is the `without_progress`th in a row: 0 at first, then 1, 2, 4 … 60."""
    if without_progress <= 1:
        return 0.0
    return min(LONGEST_BACKOFF, 2.0 ** min(without_progress - 2, 10))


def used_up(max_restarts: int) -> str:
    """Why a job fails instead of restarting, in words."""
    return f"no restarts left: spec.restartPolicy.maxRestarts is {max_restarts}"
