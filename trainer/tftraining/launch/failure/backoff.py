"""The back-off: how long a restart waits, which grows with the restarts in a row that made no progress. Pure.

Launchers, the operator and `tftj run` ask here. Progress (restart_budget.py) and a person's request begin it anew.
"""

from __future__ import annotations

from tftraining.launch.failure.incident import ASKED_FOR, PLANNED
from tftraining.launch.failure.same_failure import SameFailure

LONGEST_BACKOFF = 60.0


def count_in_a_row(before: int, reason: str, backed_off: bool) -> int:
    """The restarts in a row without progress, with one for this reason. `backed_off`: its back-off is counted."""
    return (0 if reason in ASKED_FOR else before) + (reason not in PLANNED and not backed_off)


def wait(in_a_row: int, same: SameFailure, limit: int, repeated_at: float | None) -> float:
    """The seconds before a restart; the counts include its incident. `limit`: sameFailureLimit. `repeated_at`: when a
    failure extended the row of equal ones, if it did."""
    seconds = backoff(in_a_row)
    return same.shortened(seconds, repeated_at) if limit and repeated_at is not None else seconds


def backoff(in_a_row: int) -> float:
    """The seconds before a restart that is the `in_a_row`th without progress: 0 at first, then 1, 2, 4 … 60."""
    return 0.0 if in_a_row <= 1 else min(LONGEST_BACKOFF, 2.0 ** min(in_a_row - 2, 10))
