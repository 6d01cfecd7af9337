"""When what restarts, and at which cost: launchers, the operator and `tftj run` all ask here. Pure.

What follows from a failure, in the order in which it is decided:

    a rule, or a program that cannot start, ends the job           restart_rules.py, first_step.py
    the same failure too often, or no restarts left: the same      `why_no_restart`
    a program no longer starts in its container: a new pod for it  first_step.py: `Starts`
    one member fails again and again: a new pod on another node    same_member.py
    the others can train on: the member restarts alone             restart_scope.py
    otherwise                                                      the gang restarts: in place where launchers run

What each cause of a restart costs (`account`, backoff.py; the causes are in incident.py):

    cause                                           charged      extends the back-off  waits  begins the back-off anew
    a failure                                       by its rule  yes                   yes    no
    a loss: a disruption, a silent member (LOSSES)  no           yes                   yes    no
    replicas that differ, with onDivergence: Restore  no         yes                   yes    no
    a lost worker is back (GROWN)                   no           no                    no     no
    a person's request (ASKED_FOR)                  no           no                    no     yes

Progress since the last incident (`has_progressed`) begins the back-off anew, and refills the budget (`with_progress`).

The chief's launcher keeps the start deadline while it runs (gang/rounds.py), the operator while it does not
(plan/deadlines.py), and each member CHIEF_LATE_SECONDS later (rendezvous/chief_contact.py).

The counts are in the ledger. The chief sends it with every `start` and gets it back in every `hello`, so it outlives
the chief's launcher. It must never forget a charge: a merge takes the larger of each count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tftraining.launch.failure import same_failure, same_member
from tftraining.launch.failure.backoff import count_in_a_row
from tftraining.launch.failure.exit import Exit
from tftraining.launch.failure.same_failure import NO_FAILURE, SameFailure
from tftraining.launch.failure.same_member import NO_ROW, SameMember
from tftraining.launch.progress import QUIET_PROGRESS

EXCEEDED = "MaxRestartsExceeded"  # the reason of a job that has no restarts left
START_DEADLINE = "StartDeadlineExceeded"  # and of one whose gang does not train in time
CHIEF_LATE_SECONDS = 30.0
COPY_PROGRESS_SECONDS = 10.0  # seconds of training that make a newer backup in memory progress


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
    same_member: SameMember = NO_ROW  # the member that failed last, and how often in a row
    went_back_to: int = 0  # the step of the last copy to which the training went back because replicas differed
    went_back_from: int = 0  # and the step that it had not made yet

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Ledger:
        """Read the JSON form; ValueError or TypeError if a count is not a number."""
        counts = {field: max(0, int(raw.get(name, 0))) for field, name in _NAMES.items()}
        member = SameMember.from_json(raw.get("sameMember") or {})
        return cls(**counts, same=SameFailure.from_json(raw.get("sameFailure") or {}), same_member=member)

    def to_json(self) -> dict[str, Any]:
        """The JSON form, which the operator and all launchers read."""
        counts = {name: getattr(self, field) for field, name in _NAMES.items()}
        left_out = [
            _NAMES[each] for each in ("violations", "went_back_to", "went_back_from") if not getattr(self, each)
        ]
        same = {"sameFailure": self.same.to_json()} if self.same.count else {}
        same |= {"sameMember": self.same_member.to_json()} if self.same_member.count else {}
        return {**{name: count for name, count in counts.items() if name not in left_out}, **same}

    @property
    def failures(self) -> int:
        """The number of failures ever charged."""
        return self.process_failures + self.pod_failures

    @property
    def used(self) -> int:
        """The failures charged since the last refill of the budget."""
        return self.failures - self.refilled_at


_RISING = {
    "in_place": "inPlace", "process_failures": "processFailures", "pod_failures": "podFailures",
    "refilled_at": "refilledAt", "violations": "violations",
    "went_back_to": "wentBackTo", "went_back_from": "wentBackFrom",
}  # fmt: skip
_NAMES = {**_RISING, "without_progress": "withoutProgress", "incidents": "incidents"}


def merge(one: Ledger, other: Ledger) -> Ledger:
    """Merge two ledgers. The restarts without progress are those of the newer one, for progress resets them; the row of
    equal failures is that of the one with more failures of programs, for only these extend it; the row of one member's
    failures that of the one with more failures."""
    later = max(one, other, key=_how_late)
    failed_later = max(one, other, key=lambda each: (each.process_failures, _how_late(each)))
    member = max(one, other, key=lambda each: (each.failures, _how_late(each))).same_member
    rising = {field: max(getattr(one, field), getattr(other, field)) for field in _RISING}
    return replace(later, same=failed_later.same, same_member=member, **rising)


def _how_late(ledger: Ledger) -> tuple[Any, ...]:
    """Sort key, greater for the newer ledger. Launchers of an older version drop the fields that they do not know."""
    restarts = (ledger.incidents, ledger.in_place + ledger.failures, ledger.without_progress)
    member = ledger.same_member
    return (*restarts, ledger.same.count, ledger.same.since, ledger.same.key, member.count, member.member)


@dataclass(frozen=True)
class Reached:
    """How far a training has come: its epoch, and the steps of its newest checkpoint and backup in memory, if known."""

    epoch: int | None = None
    checkpoint: int | None = None
    copy: int | None = None


def newest(*known: int | None) -> int | None:
    """The greatest of the known numbers, if any."""
    return max((each for each in known if each is not None), default=None)


def has_progressed(before: Reached, now: Reached, trained: float | None, ran: float | None) -> bool:
    """Whether a training has come further than at its last incident, in a round that has `trained` for so many seconds,
    and has run for `ran`; None if it does not train.

    Without reports of epochs a minute is progress. Copies come every second or so: a program that fails after each
    start would never use up its budget, so they count only after a while.
    """
    has_copy = (now.copy or 0) > (before.copy or 0) and (trained or 0.0) >= COPY_PROGRESS_SECONDS
    if has_copy or (now.checkpoint or 0) > (before.checkpoint or 0):
        return True
    if now.epoch is not None:
        return now.epoch > (before.epoch or 0)
    return ran is not None and ran >= QUIET_PROGRESS


def with_progress(ledger: Ledger, budget_reset: str) -> Ledger:
    """The ledger after progress since the last incident."""
    refilled_at = ledger.refilled_at if budget_reset == "Never" else ledger.failures
    return replace(ledger, without_progress=0, refilled_at=refilled_at, same_member=NO_ROW)


def account(ledger: Ledger, reason: str, *, charged: bool, by_pod: bool = False, backed_off: bool = False) -> Ledger:
    """The ledger after an incident. `by_pod`: no launcher could count it. `backed_off`: its back-off is counted."""
    return replace(
        ledger,
        process_failures=ledger.process_failures + (charged and not by_pod),
        pod_failures=ledger.pod_failures + (charged and by_pod),
        without_progress=count_in_a_row(ledger.without_progress, reason, backed_off),
        incidents=ledger.incidents + 1,
    )


def charge_member(
    ledger: Ledger, member: str, ended: Exit | None, limit: int, others_well: bool, spoilt: bool = False
) -> tuple[Ledger, str]:
    """The ledger, which has counted a charged failure that repeats no other, with the row of this member's failures;
    and why its next pod should be on another node, "" if it may stay. `limit`: sameMemberLimit."""
    if not same_member.is_curable(ended):
        return ledger, ""
    row, why = ledger.same_member.with_failure(member, ended, limit, spoilt) if others_well else (NO_ROW, "")
    return replace(ledger, same_member=row), why


def why_no_restart(
    ledger: Ledger, message: str, repeated_at: float | None, max_restarts: int, limit: int, spread: float
) -> tuple[str, str] | None:
    """The reason and the message of a job that fails instead of restarting after a failure, which the ledger has
    counted. `repeated_at`: when it extended the row of equal failures, if it did. `limit`: sameFailureLimit."""
    if repeated_at is not None and ledger.same.too_often(limit, repeated_at, spread):
        return same_failure.REASON, f"{message}; {ledger.same.describe()}"
    if ledger.used > max_restarts:
        return EXCEEDED, f"{message}; no restarts left: spec.restartPolicy.maxRestarts is {max_restarts}"
    return None


def start_limit(seconds: float) -> str:
    """The start deadline in words."""
    return f"{seconds:.10g} s (spec.runPolicy.startDeadlineSeconds)"
