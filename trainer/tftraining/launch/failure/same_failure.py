"""spec.restartPolicy.sameFailureLimit: counts equal failures in a row; after so many, a further restart would fail too.

Pure; the operator uses it too (its plan/restart_policy.py). It must never count a failure that a restart can cure: an
end without an exception of the program, or with one that its surroundings caused, neither extends the row nor ends it.
"""

from __future__ import annotations

import builtins
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from tftraining.launch.failure.exit import Exit
from tftraining.launch.progress import QUIET_START, Snapshot

REASON = "SameFailure"
SPREAD = 60.0  # least seconds between the first failure of the row and the last: passing problems get that time
WITHOUT_STEPS = 600.0  # seconds after which a program that reports nothing has certainly come further than before
KEY_LENGTH = 16

_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_OS_ERRORS = {name for name, each in vars(builtins).items() if isinstance(each, type) and issubclass(each, OSError)}
_OF_TENSORFLOW = {"AbortedError", "DeadlineExceededError", "ResourceExhaustedError", "UnavailableError"}
# Matched with the printed name of the exception: its last part, and modules in which all exceptions are OSErrors.
_OF_THE_SURROUNDINGS = frozenset(_OS_ERRORS | _OF_TENSORFLOW | {"RemoteDisconnected"})
_MODULES = ("requests.exceptions.", "socket.", "ssl.", "urllib.error.")


@dataclass(frozen=True)
class SameFailure:
    """The key of the last failure, its count in a row, and the time of the row's first one (seconds since 1970)."""

    key: str = ""
    count: int = 0
    since: int = 0

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> SameFailure:
        """The row from its JSON between launcher and operator; ValueError or TypeError if that is invalid."""
        return cls(str(raw.get("key", ""))[:KEY_LENGTH], int(raw.get("count", 0)), int(raw.get("since", 0)))

    def to_json(self) -> dict[str, Any]:
        """The row as JSON between launcher and operator."""
        return {"key": self.key, "count": self.count, "since": self.since}

    def with_failure(self, key: str, at: float) -> SameFailure:
        """The row after a counted failure, `at` seconds since 1970."""
        if key != self.key:
            return SameFailure(key, 1, ceil(at))
        return SameFailure(key, self.count + 1, min(self.since, ceil(at)))  # a clock may have been set back

    def too_often(self, limit: int, at: float) -> bool:
        """Whether the row fails the job; a limit of 0 is off."""
        return 0 < limit <= self.count and at - self.since >= SPREAD

    def describe(self) -> str:
        """The row in words."""
        return f"the same failure {self.count} times in a row reaches spec.restartPolicy.sameFailureLimit"


NO_FAILURE = SameFailure()


def key_of(ended: Exit | None, place: str | None) -> str:
    """The key that equal failures share; "" for a failure that does not count. `place` is from `place_of`.

    The key leaves out the member: where all members raise, each time another one may be the first.
    """
    if ended is None or ended.code != 1 or place is None or not counts_as_same_failure(ended.exception):
        return ""
    text = "\n".join((place, _ADDRESS.sub("0x", ended.exception)))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:KEY_LENGTH]


def counts_as_same_failure(exception: str) -> bool:
    """Whether the line of an exception blames the program, not its surroundings."""
    name = exception.partition(":")[0].strip()
    return bool(name) and not name.startswith(_MODULES) and name.rpartition(".")[2] not in _OF_THE_SURROUNDINGS


def place_of(told: Snapshot, reporter: bool, ran: float) -> str | None:
    """Where a program failed after `ran` seconds: "epoch/step"; None if it made no step since its start.

    A program that reports nothing is assumed to make steps after QUIET_START, as everywhere; its place is then "".
    """
    if reporter:
        return None if told.first_step_time is None else f"{told.epoch}/{told.step}"
    return "" if QUIET_START <= ran <= WITHOUT_STEPS else None
