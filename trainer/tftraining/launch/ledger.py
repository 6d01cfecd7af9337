"""How many restarts there were, what they cost of the budget, and how long the next one waits. Pure.

The ledger travels with every `start` and comes back in every `hello`, so it outlives the chief's launcher. It must
never forget a charge: two ledgers are merged by the larger of each count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tftraining.launch.same_failure import NO_FAILURE, SameFailure

LONGEST_WAIT = 60.0


@dataclass(frozen=True)
class Ledger:
    """Counts since the job began; they only rise, except `without_progress`."""

    in_place: int = 0
    process_failures: int = 0
    pod_failures: int = 0  # counted by the operator
    refilled_at: int = 0  # how many failures there were when progress last made the budget whole
    without_progress: int = 0  # restarts in a row with no progress between them
    incidents: int = 0  # everything that ended a round, charged or not: which of two ledgers is the later one
    same: SameFailure = NO_FAILURE  # how often the last failure has come in a row

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Ledger:
        """From the form of the contract; ValueError or TypeError if a count is not a number."""
        in_place, processes, pods, refilled, in_a_row, incidents = (max(0, int(raw.get(name, 0))) for name in _NAMES)
        same = SameFailure.from_json(raw.get("sameFailure") or {})
        return cls(in_place, processes, pods, refilled, in_a_row, incidents, same)

    def to_json(self) -> dict[str, Any]:
        """The form of the contract."""
        counts = (self.in_place, self.process_failures, self.pod_failures, self.refilled_at, self.without_progress)
        same = {"sameFailure": self.same.to_json()} if self.same.count else {}
        return {**dict(zip(_NAMES, (*counts, self.incidents))), **same}

    @property
    def failures(self) -> int:
        """All failures that were ever charged."""
        return self.process_failures + self.pod_failures

    @property
    def used(self) -> int:
        """How much of the budget is used up now."""
        return self.failures - self.refilled_at


_NAMES = ("inPlace", "processFailures", "podFailures", "refilledAt", "withoutProgress", "incidents")


def merge(one: Ledger, other: Ledger) -> Ledger:
    """What both know. Only the later one can tell what comes in a row, for progress or another failure ends that."""
    later = max(one, other, key=_how_late)
    return Ledger(
        in_place=max(one.in_place, other.in_place),
        process_failures=max(one.process_failures, other.process_failures),
        pod_failures=max(one.pod_failures, other.pod_failures),
        refilled_at=max(one.refilled_at, other.refilled_at),
        without_progress=later.without_progress,
        incidents=later.incidents,
        same=later.same,
    )


def _how_late(ledger: Ledger) -> tuple[Any, ...]:
    """Greater in the later one; launchers of an older version pass a ledger on without what they do not know."""
    restarts = (ledger.incidents, ledger.in_place + ledger.failures, ledger.without_progress)
    return (*restarts, ledger.same.count, ledger.same.since, ledger.same.key)


def account(ledger: Ledger, *, charged: bool, progressed: bool, refill: bool, failed: bool = True) -> Ledger:
    """The ledger after an incident; `refill` says whether progress since the last one makes the budget whole.

    What was asked for has not `failed`: the next round need not wait for it.
    """
    if progressed:
        ledger = replace(ledger, without_progress=0, refilled_at=ledger.failures if refill else ledger.refilled_at)
    return replace(
        ledger,
        process_failures=ledger.process_failures + charged,
        without_progress=ledger.without_progress + failed,
        incidents=ledger.incidents + 1,
    )


def wait(ledger: Ledger) -> float:
    """Seconds before the next round: none at first, then 1, 2, 4 … 60."""
    if ledger.without_progress <= 1:
        return 0.0
    return min(LONGEST_WAIT, 2.0 ** min(ledger.without_progress - 2, 10))
