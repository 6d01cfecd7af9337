"""The report of a member's program on its backups in memory, as heartbeats bring it to the chief's launcher.

Pure. The program writes the report, so nothing in it is trusted: a wrong field counts as absent, and never ends a
connection, because a failure of a backup must not fail a training.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from tftraining.launch.gang.replica_values import MOST_REPLICAS, ReplicaSummary, digests_of, summary_of
from tftraining.launch.in_user_process.shared.copy_reasons import OTHER_MEMBER

MEMORY, PEER, STORAGE = "Memory", "Peer", "Storage"  # the sources of a restored copy
RESUMES_AT = ("Step", "StepDrawnAnew", "Epoch", "Storage")  # where a restart resumes, the least loss first
LONGEST_REASON = 200
MOST_NAMES, LONGEST_NAME, MOST_ASIDE = 8, 64, 4


@dataclass(frozen=True)
class BackupReport:
    """The newest copy that the program has made in this round, and the copy that it has resumed from.

    Steps are those that the model counts; `begun` is their number at the begin of this round. `reason` says why there
    are no copies, `epoch_resumed` why a restart resumes only at an epoch; "" otherwise. `time` is in seconds since
    1970; `seconds` is how long the copy has blocked the training, `interval` the steps to the next one. A restart
    `resumes_at` one of RESUMES_AT, "" if that is unknown; `begins_anew` names what it does not restore. `violation`
    says how the resumed training was found to differ from the undisturbed one. `last_step` is that of the last copy,
    once the copies have ended. `digests` and `summary` are for the comparison of the replicas. The copies that are
    `set_aside` have the digests of all replicas if this program has made them; `set_aside_reason` says why there can be
    none. All copies of this round have blocked the training for `blocked_seconds`. Before its first step the program
    skips `skipping` batches of its input; 0 behind it.
    """

    on: bool
    reason: str
    step: int | None
    time: float | None
    bytes: int | None
    seconds: float | None
    interval: int | None
    resumed_from: str
    resumed_step: int | None
    epoch_resumed: str
    begun: int | None
    resumes_at: str
    resumes_at_reason: str
    input_not_reproducible: bool
    violation: str
    begins_anew: tuple[str, ...]
    last_step: int | None
    digests: Mapping[int, tuple[str, ...]]
    summary: ReplicaSummary | None
    set_aside: Mapping[tuple[int, int], tuple[str, ...]]
    set_aside_reason: str
    blocked_seconds: float | None
    skipping: int

    @property
    def newest(self) -> int | None:
        """The step of the newest copy that the program has made or resumed from."""
        return max((step for step in (self.step, self.resumed_step) if step is not None), default=None)


def from_frame(told: object) -> BackupReport | None:
    """The report of a heartbeat; None if it brings none. Never raises."""
    if not isinstance(told, Mapping):
        return None
    raw = told.get("resumed")
    resumed: Mapping[str, Any] = raw if isinstance(raw, Mapping) and raw.get("from") in (MEMORY, PEER, STORAGE) else {}
    return BackupReport(
        on=told.get("on") is True,
        reason=_text(told.get("reason")),
        step=_count(told.get("step")),
        time=_number(told.get("time")),
        bytes=_count(told.get("bytes")),
        seconds=_number(told.get("seconds")),
        interval=_count(told.get("interval")),
        resumed_from=resumed.get("from", ""),
        resumed_step=_count(resumed.get("step")),
        epoch_resumed=_text(told.get("epochResumed")),
        begun=_count(told.get("begun")),
        resumes_at=where if (where := told.get("resumesAt")) in RESUMES_AT else "",
        resumes_at_reason=_text(told.get("resumesAtReason")),
        input_not_reproducible=told.get("inputNotReproducible") is True,
        violation=_text(told.get("violation")),
        begins_anew=_names(told.get("beginsAnew")),
        last_step=_count(told.get("lastStep")),
        digests=digests_of(told.get("digests")),
        summary=summary_of(told.get("summary")),
        set_aside=_copies(told.get("setAside")),
        set_aside_reason=_text(told.get("setAsideReason")),
        blocked_seconds=_number(told.get("blockedSeconds")),
        skipping=_count(told.get("skipping")) or 0,
    )


def _number(value: Any) -> float | None:
    """The value, if it is a number of at least 0 that JSON and a date can hold."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
        return None
    return value if 0 <= value < 2**53 else None


def _count(value: Any) -> int | None:
    return None if (number := _number(value)) is None else int(number)


def _copies(value: object) -> Mapping[tuple[int, int], tuple[str, ...]]:
    """The digests of the copies that are set aside, by round and step."""
    found: dict[tuple[int, int], tuple[str, ...]] = {}
    for each in value[:MOST_ASIDE] if isinstance(value, list) else ():
        number, step, digests = each if isinstance(each, list) and len(each) == 3 else (None, None, None)
        copy = (_count(number), _count(step))
        if copy[0] is not None and copy[1] is not None and isinstance(digests, list):
            found[copy[0], copy[1]] = tuple(str(digest)[:16] for digest in digests[:MOST_REPLICAS])
    return found


def _names(value: object) -> tuple[str, ...]:
    names = [_text(each)[:LONGEST_NAME] for each in value[:MOST_NAMES]] if isinstance(value, list) else []
    return tuple(filter(None, names))


def _text(value: object) -> str:
    return " ".join(value.split())[:LONGEST_REASON] if isinstance(value, str) else ""


def first_cause(reasons: Iterable[str]) -> str:
    """The first reason; that of a member which only hears that another one cannot copy comes last. "" for none."""
    return next((reason for reason in sorted(reasons, key=OTHER_MEMBER.__eq__) if reason), "")
