"""The backups in memory of a gang in one line, for /status and /metrics: the newest copy, who holds it, or why there is
none.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from tftraining.launch.gang.backup_report import MEMORY, PEER, STORAGE, BackupReport, first_cause
from tftraining.launch.gang.membership import summarize_names
from tftraining.launch.gang.peer import Peer


@dataclass(frozen=True)
class Summary:
    """`step` is that of the newest copy that all members hold, or all `members` that hold any; None without a copy.

    `time` is in seconds since 1970, `seconds` how long the copy has blocked the training. `reason` says why there are
    no copies, or why a restart resumes only at an epoch.
    """

    on: bool
    reason: str = ""
    step: int | None = None
    time: float | None = None
    bytes: int | None = None
    seconds: float | None = None
    members: int = 0

    def with_copy_of(self, other: Summary) -> Summary:
        """The same with the copy of `other`."""
        return replace(other, on=self.on, reason=self.reason)


def summarize(trainers: Collection[Peer]) -> Summary | None:
    """The summary of a round; None if no launcher of its members can keep copies: the job has none, or they are old."""
    if all(peer.memory_copies is None for peer in trainers):
        return None
    reports = [peer.backup for peer in trainers if peer.backup is not None]
    is_on = len(reports) == len(trainers) and all(report.on for report in reports)
    found = Summary(is_on, _reason(trainers, reports, is_on))
    copies = [(report.newest, report) for report in reports if report.newest is not None]
    if not copies:
        return found
    step, oldest = min(copies, key=lambda each: each[0])
    return replace(found, step=step, time=oldest.time, bytes=oldest.bytes, seconds=oldest.seconds, members=len(copies))


def _reason(trainers: Collection[Peer], reports: Collection[BackupReport], is_on: bool) -> str:
    """Why there are no copies, or why they do not keep the position in the epoch."""
    # A member that has not joined yet may have a place.
    if without_place := [peer.name for peer in trainers if peer.is_connected and peer.memory_copies is None]:
        return f"no place for backups in {summarize_names(without_place)}"
    told = [report.epoch_resumed if is_on else report.reason for report in reports]
    return first_cause(told)


def resumption(trainers: Collection[Peer]) -> str:
    """From where the members have restored a copy: the farthest source of all; "" if they have restored none."""
    sources = {peer.backup.resumed_from for peer in trainers if peer.backup is not None}
    return next((source for source in (STORAGE, PEER, MEMORY) if source in sources), "")
