"""spec.restartPolicy.sameFailureLimit: counts equal failures in a row; after so many, a further restart would fail too.

Pure; the operator uses it too (its plan/restart_policy.py). It must never count a failure that a restart can cure: an
end without an exception of the program, or with one that its surroundings caused, neither extends the row nor ends it.
Which failures before the first step count is in first_step.py.
"""

from __future__ import annotations

import builtins
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from tftraining.launch.failure.exit import Exit, hardware_in

REASON = "SameFailure"
SPREAD = 60.0  # least seconds between the first failure of the row and the last: passing problems get that time
KEY_LENGTH = 16

_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_OS_ERRORS = {name for name, each in vars(builtins).items() if isinstance(each, type) and issubclass(each, OSError)}
_OF_TENSORFLOW = {"AbortedError", "DeadlineExceededError", "ResourceExhaustedError", "UnavailableError"}
# Matched with the printed name of the exception: its last part, and modules in which all exceptions are OSErrors.
_OF_THE_SURROUNDINGS = frozenset(_OS_ERRORS | _OF_TENSORFLOW | {"RemoteDisconnected"})
_MODULES = (
    *("aiohttp.", "botocore.exceptions.", "google.api_core.exceptions.", "google.auth.exceptions.", "grpc."),
    *("http.client.", "httpcore.", "httpx.", "requests.exceptions.", "socket.", "ssl.", "urllib.error.", "urllib3."),
)
# Before its first step a program reads files and connects to its peers: there these blame the surroundings, too.
_OF_FILES_AND_CONNECTIONS = frozenset(
    {
        *("AlreadyExistsError", "CancelledError", "DataLossError", "FailedPreconditionError", "InternalError"),
        *("NotFoundError", "PermissionDeniedError", "UnauthenticatedError", "UnknownError"),
        *("BadZipFile", "DownloadError", "EOFError", "IncompleteReadError", "ReadError"),
    }
)
_DOWNLOAD = "Exception: URL fetch failure on "  # by Keras


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

    def too_often(self, limit: int, at: float, spread: float = SPREAD) -> bool:
        """Whether the row fails the job; a limit of 0 is off. `spread`: the least seconds since its first failure."""
        return 0 < limit <= self.count and (not spread or at - self.since >= spread)  # `since` is a whole second

    def shortened(self, backoff: float, at: float) -> float:
        """The wait before the restart after a failure of the row: `backoff`, but no longer than until the next failure
        may end the job. Nobody gains from a later one."""
        left = self.since + SPREAD - at
        return min(backoff, left) if self.count and left > 0 else backoff

    def describe(self) -> str:
        """The row in words."""
        return f"the same failure {self.count} times in a row reaches spec.restartPolicy.sameFailureLimit"


NO_FAILURE = SameFailure()


def key_of(ended: Exit | None, place: str | None, stepped: bool = True) -> str:
    """The key that equal failures share; "" for a failure that does not count. `place` is that of first_step.py;
    `stepped`: the program has made a step since its start.

    The key leaves out the member: where all members raise, each time another one may be the first.
    """
    counts = counts_as_same_failure if stepped else counts_before_first_step
    if ended is None or ended.code != 1 or place is None or not counts(ended.exception) or hardware_in(ended):
        return ""
    text = "\n".join((place, _ADDRESS.sub("0x", ended.exception)))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:KEY_LENGTH]


def counts_as_same_failure(exception: str) -> bool:
    """Whether the line of an exception blames the program, not its surroundings."""
    name = exception.partition(":")[0].strip()
    return bool(name) and not name.startswith(_MODULES) and name.rpartition(".")[2] not in _OF_THE_SURROUNDINGS


def counts_before_first_step(exception: str) -> bool:
    """The same for a program that has not made a step yet."""
    name = exception.partition(":")[0].strip().rpartition(".")[2]
    of_the_program = name not in _OF_FILES_AND_CONNECTIONS and not exception.startswith(_DOWNLOAD)
    return of_the_program and counts_as_same_failure(exception)
