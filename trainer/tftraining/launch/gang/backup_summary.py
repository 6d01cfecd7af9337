"""The backups in memory of a gang in one line, for /status and /metrics: the newest copy, who holds it, or why there is
none.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from tftraining.launch.failure_and_restart_messages import summarize_names
from tftraining.launch.gang.backup_report import MEMORY, PEER, RESUMES_AT, STORAGE, BackupReport, first_cause
from tftraining.launch.gang.peer import Peer


@dataclass(frozen=True)
class Summary:
    """`step` is that of the newest copy that all members hold, or all `members` that hold any; None without a copy.

    `time` is in seconds since 1970, `seconds` how long the copy has blocked the training. `reason` says why there are
    no copies, or why a restart resumes only at an epoch. A restart `resumes_at` one of RESUMES_AT, for which
    `resumes_at_reason` has the cause; `begins_anew` names what it does not restore. `violation` says how a resumed
    training of this job was found to differ from the undisturbed one, in so many rounds (`violations`). `last_step` is
    that of the last copy, once the copies have ended. All copies of the round have blocked the training for
    `blocked_seconds`.
    """

    on: bool
    reason: str = ""
    step: int | None = None
    time: float | None = None
    bytes: int | None = None
    seconds: float | None = None
    members: int = 0
    resumes_at: str = ""
    resumes_at_reason: str = ""
    input_not_reproducible: bool = False
    violation: str = ""
    violations: int = 0
    begins_anew: tuple[str, ...] = ()
    last_step: int | None = None
    blocked_seconds: float | None = None

    def with_copy_of(self, other: Summary) -> Summary:
        """The same with the copy of `other`."""
        copy = {name: getattr(other, name) for name in ("step", "time", "bytes", "seconds", "members")}
        return replace(self, **copy)


def summarize(trainers: Collection[Peer]) -> Summary | None:
    """The summary of a round; None if no launcher of its members can keep copies: the job has none, or they are old."""
    if all(peer.memory_copies is None for peer in trainers):
        return None
    reports = [peer.backup for peer in trainers if peer.backup is not None]
    is_on = len(reports) == len(trainers) and all(report.on for report in reports)
    found = _with_resumption(Summary(is_on, _reason(trainers, reports, is_on)), reports)
    copies = [(report.newest, report) for report in reports if report.newest is not None]
    if not copies:
        return found
    step, oldest = min(copies, key=lambda each: each[0])
    return replace(found, step=step, time=oldest.time, bytes=oldest.bytes, seconds=oldest.seconds, members=len(copies))


def _with_resumption(summary: Summary, reports: Collection[BackupReport]) -> Summary:
    """The summary with the place where a restart resumes: the worst one that a member tells."""
    known = [report for report in reports if report.resumes_at]
    worst = max(known, key=lambda report: RESUMES_AT.index(report.resumes_at), default=None)
    return replace(
        summary,
        resumes_at=worst.resumes_at if worst else "",
        resumes_at_reason=worst.resumes_at_reason if worst else "",
        input_not_reproducible=any(report.input_not_reproducible for report in reports),
        violation=violation_of(reports),
        violations=int(bool(violation_of(reports))),
        begins_anew=next((report.begins_anew for report in reports if report.begins_anew), ()),
        last_step=min((report.last_step for report in reports if report.last_step is not None), default=None),
        blocked_seconds=max((each for report in reports if (each := report.blocked_seconds) is not None), default=None),
    )


def violation_of(reports: Iterable[BackupReport | None]) -> str:
    """How the resumed training of a round was found to differ from the undisturbed one; "" if it was not."""
    return next((report.violation for report in reports if report and report.violation), "")


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
