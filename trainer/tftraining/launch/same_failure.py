"""The same failure again and again: by how many in a row the next restart is known to end the same.

Pure, and the operator's own decision too (its plan/restart_policy.py). It must never count what a restart can mend:
what is not an exception of the program, or one that tells of the surroundings, neither adds to the row nor ends it.
"""

from __future__ import annotations

import builtins
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from tftraining.launch.ending import Exit
from tftraining.launch.progress import QUIET_START
from tftraining.launch.snapshot import Snapshot

REASON = "SameFailure"
SPREAD = 60.0  # seconds between the first of the row and the last: what passes by itself is given that time
WITHOUT_STEPS = 600.0  # seconds after which a program that reports nothing has certainly come further than before
KEY_LENGTH = 16

_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_OS_ERRORS = {name for name, each in vars(builtins).items() if isinstance(each, type) and issubclass(each, OSError)}
_OF_TENSORFLOW = {"AbortedError", "DeadlineExceededError", "ResourceExhaustedError", "UnavailableError"}
# By the name as it is printed: its last part, and modules in which all exceptions are OSErrors.
_OF_THE_SURROUNDINGS = frozenset(_OS_ERRORS | _OF_TENSORFLOW | {"RemoteDisconnected"})
_MODULES = ("requests.exceptions.", "socket.", "ssl.", "urllib.error.")


@dataclass(frozen=True)
class SameFailure:
    """What failed last, how many times in a row, and since when (seconds since 1970)."""

    key: str = ""
    count: int = 0
    since: int = 0

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> SameFailure:
        """From the form of the contract; ValueError or TypeError if it is none."""
        return cls(str(raw.get("key", ""))[:KEY_LENGTH], int(raw.get("count", 0)), int(raw.get("since", 0)))

    def to_json(self) -> dict[str, Any]:
        """The form of the contract."""
        return {"key": self.key, "count": self.count, "since": self.since}

    def then(self, key: str, at: float) -> SameFailure:
        """The row after a failure that counts, `at` seconds since 1970."""
        if key != self.key:
            return SameFailure(key, 1, ceil(at))
        return SameFailure(key, self.count + 1, min(self.since, ceil(at)))  # a clock may have been put back

    def too_often(self, limit: int, at: float) -> bool:
        """Whether that is the job's end; a limit of 0 is none."""
        return 0 < limit <= self.count and at - self.since >= SPREAD

    def describe(self) -> str:
        """For people."""
        return f"the same failure {self.count} times in a row (spec.restartPolicy.sameFailureLimit)"


NO_FAILURE = SameFailure()


def key_of(member: str, ended: Exit | None, place: str | None) -> str:
    """What a failure is known again by; "" for one that does not count. `place` as below."""
    if ended is None or ended.code != 1 or place is None or not counts(ended.exception):
        return ""
    text = "\n".join((member, place, _ADDRESS.sub("0x", ended.exception)))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:KEY_LENGTH]


def counts(exception: str) -> bool:
    """Whether the line of an exception tells of the program, not of what is around it."""
    name = exception.partition(":")[0].strip()
    return bool(name) and not name.startswith(_MODULES) and name.rpartition(".")[2] not in _OF_THE_SURROUNDINGS


def place_of(told: Snapshot, reporter: bool, ran: float) -> str | None:
    """Where a program has failed that ran for so many seconds; None if it has made no step since it was started.

    One that reports nothing is taken to make steps after QUIET_START, as everywhere; nobody knows which.
    """
    if reporter:
        return None if told.first_step_time is None else f"{told.epoch}/{told.step}"
    return "" if QUIET_START <= ran <= WITHOUT_STEPS else None
