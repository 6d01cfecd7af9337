"""The messages of launchers: the chief's /status, and the first line of a termination message.

They come from users' pods and are not trusted: a message of a wrong type or size is refused as a whole (ValueError or
None), and strings are cut. Never does I/O, and never decides what a report means.
"""

import json
import re
from collections.abc import Collection
from datetime import datetime
from math import isfinite
from typing import Annotated, Any, Literal, Self, TypeVar

import msgspec

from tftraining.launch import history as series
from tftraining.launch.failure.restart_budget import Ledger
from tftraining.launch.progress import Snapshot
from tftraining.launch.roles import ROLES
from tftraining_api.model.resumes_at import RESUMES_AT
from tftraining_api.model.spec import Frozen
from tftraining_api.model.status import RESUMED_TRAINING_DIFFERS, Backup, History, Progress
from tftraining_api.model.times import saturated

LONGEST_REASON, LONGEST_MESSAGE, LONGEST_TAIL, MOST_METRICS, MOST_MISSING = 128, 1024, 4096, 64, 16
LONGEST_EXCEPTION = 300
MOST_BEGIN_ANEW = 8
MOST_FINISHED = 10_000
LONGEST_HISTORY = 8 * 1024  # bytes of JSON
# Texts beyond LONG bytes are decoded strictly, see _decode. The lists and metrics of a gang of 10,000 are shorter than
# LONGEST_LISTS.
LONG_TEXT, LONGEST_LISTS = 256 * 1024, 512 * 1024
RESULT_PREFIX = "tftraining/1 "
# Where the state is from that a training resumes from.
SOURCES = ("Memory", "Peer", "Storage", "Start")

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Tally = Annotated[int, msgspec.Meta(ge=0, le=10**6)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Time = Annotated[datetime, msgspec.Meta(tz=True)]
Member = Annotated[str, msgspec.Meta(pattern=rf"^({'|'.join(ROLES)})-\d{{1,5}}$")]
Code = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Phase = Literal["Waiting", "Starting", "Training", "Restarting", "Succeeded", "Failed"]
Decoded = TypeVar("Decoded", bound="Frozen")


class ReportedSameFailure(Frozen, frozen=True):
    """How often in a row the last counted failure has occurred; `since` is in seconds since 1970."""

    key: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{1,16}$")]
    count: Tally
    since: Annotated[int, msgspec.Meta(ge=0, le=2**37)]


class ReportedSameMember(Frozen, frozen=True):
    """The member that failed last, and how often in a row."""

    member: Member
    count: Tally


class ReportedLedger(Frozen, frozen=True):
    """The launchers' count of restarts and their charges. All fields but the last three only rise."""

    in_place: Tally = 0
    process_failures: Tally = 0
    pod_failures: Tally = 0
    refilled_at: Tally = 0
    without_progress: Tally = 0
    same_failure: ReportedSameFailure | None = None
    same_member: ReportedSameMember | None = None

    def ledger(self) -> Ledger:
        """The counts as launchers and operator merge them."""
        return Ledger.from_json(msgspec.to_builtins(self))


class ReportedRestart(Frozen, frozen=True):
    """The last restart inside the running pods. Without `down_seconds` the restart is not over."""

    time: Time | None = None
    member: Member | None = None
    exit_code: Code | None = None
    signal: Annotated[int, msgspec.Meta(ge=0, le=64)] | None = None
    reason: str = ""
    exception: str = ""
    down_seconds: Seconds | None = None
    resumed_from_epoch: Count | None = None
    resumed_from_step: Count | None = None
    resumed_from: str | None = None
    lost_steps: Count | None = None
    lost_seconds: Seconds | None = None
    backup_skipped: str = ""
    alone: bool = False


class ReportedFailure(Frozen, frozen=True):
    """The last failure of a program."""

    member: Member | None = None
    exit_code: Code | None = None
    signal: Annotated[int, msgspec.Meta(ge=0, le=64)] | None = None
    reason: str = ""
    exception: str = ""
    log_tail: str | None = None


class ReportedProgress(Frozen, frozen=True):
    """The training's progress. `first_epoch` and `first_step` are the progress at the start of the programs;
    `checkpoint` is the step of the newest known checkpoint, `fit` the number of the present `fit`. `total_steps` and
    `first_total_steps` count those of the program's earlier `fit`s, too, of which these programs made `made_before`
    before the one that resumed. Older launchers tell none of these."""

    epoch: Count | None = None
    epochs: Count | None = None
    step: Count | None = None
    steps_per_epoch: Count | None = None
    first_epoch: Count | None = None
    first_step: Count | None = None
    checkpoint: Count | None = None
    steps_per_second: Seconds | None = None
    metrics: dict[str, float | None] = msgspec.field(default_factory=dict)
    updated_time: Time | None = None
    fit: Count | None = None
    total_steps: Count | None = None
    first_total_steps: Count | None = None
    made_before: Count = 0

    def progress(self) -> Progress:
        """The progress as a field of the status, without metrics that are not finite (NaN)."""
        known = [(_sound(name[:LONGEST_REASON]), value) for name, value in self.metrics.items() if value is not None]
        known = [(name, value) for name, value in known if isfinite(value)]
        rate = None if self.steps_per_second is None else round(self.steps_per_second, 2)
        return Progress(
            epoch=self.epoch,
            epochs=self.epochs,
            step=self.step,
            steps_per_epoch=self.steps_per_epoch,
            steps_per_second=rate,
            checkpoint=self.checkpoint,
            metrics=dict(known[:MOST_METRICS]),
            updated_time=self.updated_time,
            display=self._display(),
            fit=self.fit or None,
            total_steps=self.total_steps,
        )

    def first(self) -> Snapshot:
        """Where these programs resumed."""
        return Snapshot(
            first_step=self.first_total_steps,
            first_fit_start=(self.first_total_steps or 0) - (self.first_step or 0),
            made_before=self.made_before,
        )

    def _display(self) -> str | None:
        if self.epoch is not None:
            return f"epoch {self.epoch}/{self.epochs}" if self.epochs else f"epoch {self.epoch}"
        return None if self.step is None else f"step {self.step}"


class ReportedBackup(Frozen, frozen=True):
    """The newest backup in memory, which so many `members` hold. `reason` says why there are no more (not `on`), and
    `resumes_at_reason` why a restart does not resume at the step. `begins_anew` names what a restart does not restore;
    a `violation` is a resumed training that was found to differ. `replicas_compared` copies were equal in all
    replicas; `replicas` says how those of another one were not, and `replicas_differ` if by more than rounding. All
    copies of the round have stopped the training for `blocked_seconds`. The programs skip `skipping` batches of input
    to where they resume."""

    step: Count | None = None
    time: Time | None = None
    where: str | None = None
    bytes: Count | None = None
    seconds: Seconds | None = None
    members: Tally | None = None
    on: bool = False
    reason: str = ""
    resumes_at: str = ""
    resumes_at_reason: str = ""
    input_not_reproducible: bool = False
    violation: str = ""
    begins_anew: tuple[str, ...] = ()
    replicas: str = ""
    replicas_differ: bool = False
    replicas_compared: Count = 0
    blocked_seconds: Seconds | None = None
    skipping: Count = 0

    def backup(self) -> Backup | None:
        """The backup as a field of the status; None if there is none."""
        if self.step is None:
            return None
        seconds = None if self.seconds is None else round(self.seconds, 4)
        return Backup(
            step=self.step,
            time=self.time,
            where=self.where or None,
            bytes=self.bytes,
            seconds=seconds,
            resumes_at=self.resumes_at or None,
            blocked_seconds=None if self.blocked_seconds is None else round(self.blocked_seconds, 3),
        )

    def bounded(self) -> Self:
        """The same with strings that are cut, and words that are known."""
        return msgspec.structs.replace(
            self,
            time=_within(self.time),
            where=_known(self.where or "", SOURCES),
            reason=_exception(self.reason),
            resumes_at=_known(self.resumes_at, RESUMES_AT),
            resumes_at_reason=_exception(self.resumes_at_reason),
            violation=_exception(self.violation),
            replicas=_exception(self.replicas),
            begins_anew=tuple(_cut(each)[:LONGEST_REASON] for each in self.begins_anew[:MOST_BEGIN_ANEW]),
        )


class ReportedHistory(History, frozen=True):
    """The history that the launcher knows: every report after the step `after`."""

    after: int | None = None

    @property
    def is_sound(self) -> bool:
        """Whether the columns are equally long, and all numbers and times can be written to the status."""
        rows = len(self.steps)
        columns = (self.epochs, self.seconds, *self.metrics.values())
        numbers = [each for column in (self.steps, *columns) for each in column if each is not None]
        places = [each for column in (self.steps, self.epochs, (self.after,)) for each in column if each is not None]
        times = [self.start_time, *(each.time for each in self.restarts)]
        return (
            rows > 0
            and all(len(column) == rows for column in columns)
            and all(map(isfinite, numbers))
            and all(0 <= each <= series.LARGEST for each in places)
            and all(each is not None and each.tzinfo is not None for each in times)
            and len(self.metrics) <= series.MOST_METRICS
            and len(msgspec.json.encode(self)) <= LONGEST_HISTORY
        )


class ReportedSlowMember(Frozen, frozen=True):
    """The member that the others wait for, its own time of a step as a multiple of the median, and what it does
    meanwhile. Without a member: none is slow."""

    member: Member | None = None
    factor: Seconds = 1.0
    cause: str = ""


class ReportedGangSize(Frozen, frozen=True):
    """How many members make steps in this round (`size`), and in a complete gang (`full`)."""

    size: Tally
    full: Tally


class ReportedJob(Frozen, frozen=True):
    """The job that the launcher belongs to."""

    uid: str = ""


class Report(Frozen, frozen=True):
    """The report of the chief's launcher on the gang. The `finished` members have completed their work before the
    others; in the `lingering` ones only the main thread of the program has ended. TensorFlow in the `no_gpu` members
    sees none of the GPUs that the container requests; the `trains_alone` ones train without the others. `revision`
    changes with everything but the progress; it is empty if the launcher does not support long polls."""

    phase: Phase
    version: Literal[1] = 1
    job: ReportedJob = ReportedJob()
    round: Count = 0
    reason: str = ""
    message: str = ""
    missing: tuple[Member, ...] = ()
    finished: tuple[Member, ...] = ()
    trains_alone: tuple[Member, ...] = ()
    lingering: tuple[Member, ...] = ()
    no_gpu: tuple[Member, ...] = ()
    gang: ReportedGangSize | None = None
    slow_member: ReportedSlowMember | None = None
    ledger: ReportedLedger = ReportedLedger()
    last_restart: ReportedRestart | None = None
    failure: ReportedFailure | None = None
    progress: ReportedProgress | None = None
    backup: ReportedBackup | None = None
    history: Any = None  # of parse_report a ReportedHistory, or None: an invalid one does not invalidate the rest
    revision: str = ""

    @property
    def input_not_reproducible(self) -> bool:
        """Whether backups are made inside an epoch of an input that is not known to be reproducible."""
        return self.backup is not None and self.backup.input_not_reproducible

    @property
    def skipping(self) -> int:
        """The batches of input that the programs skip to where they resume."""
        return self.backup.skipping if self.backup is not None else 0

    @property
    def violation(self) -> str:
        """How a resumed training was found to differ; "" if it was not. The restart that follows tells it too, for a
        report that nobody saw."""
        if self.backup is not None and self.backup.violation:
            return self.backup.violation
        last = self.last_restart
        if last is None or last.reason != RESUMED_TRAINING_DIFFERS:
            return ""
        return last.exception.partition(f"{RESUMED_TRAINING_DIFFERS}: ")[2] or "the log of its program tells how"


class _Lists(Frozen, frozen=True):
    """The fields of a report that may be too long to decode, as raw bytes."""

    missing: msgspec.Raw = msgspec.Raw()
    finished: msgspec.Raw = msgspec.Raw()
    trains_alone: msgspec.Raw = msgspec.Raw()
    lingering: msgspec.Raw = msgspec.Raw()
    no_gpu: msgspec.Raw = msgspec.Raw()
    progress: msgspec.Raw = msgspec.Raw()
    backup: msgspec.Raw = msgspec.Raw()
    history: msgspec.Raw = msgspec.Raw()


class ReportedResult(Frozen, frozen=True):
    """A launcher's final result. An empty verdict means that the launcher received SIGTERM, or failed."""

    verdict: Literal["Succeeded", "Failed", ""]
    reason: str = ""
    message: str = ""
    member: Member | None = None
    exit_code: Code | None = None
    signal: Annotated[int, msgspec.Meta(ge=0, le=64)] | None = None
    exception: str = ""
    ledger: ReportedLedger = ReportedLedger()
    progress: ReportedProgress | None = None


def parse_report(text: bytes) -> Report:
    """Parse an answer of /status. ValueError if it is not a valid report."""
    report = _decode(text.decode(errors="replace"), Report)
    last, failure, progress, backup = report.last_restart, report.failure, report.progress, report.backup
    return msgspec.structs.replace(
        report,
        reason=_word(report.reason),
        message=_cut(report.message),
        revision=report.revision if re.fullmatch(r"[A-Za-z0-9.-]{1,64}", report.revision) else "",
        missing=report.missing[:MOST_MISSING],
        finished=report.finished[:MOST_FINISHED],
        trains_alone=report.trains_alone[:MOST_MISSING],
        lingering=report.lingering[:MOST_MISSING],
        no_gpu=report.no_gpu[:MOST_FINISHED],
        progress=progress
        and msgspec.structs.replace(
            progress, metrics=progress.progress().metrics, updated_time=_within(progress.updated_time)
        ),
        history=_history(report.history),
        backup=backup and backup.bounded(),
        last_restart=last
        and msgspec.structs.replace(
            last,
            time=_within(last.time),
            reason=_word(last.reason),
            exception=_exception(last.exception),
            resumed_from=_known(last.resumed_from or "", SOURCES),
            backup_skipped=_exception(last.backup_skipped),
        ),
        failure=failure
        and msgspec.structs.replace(
            failure,
            reason=_word(failure.reason),
            exception=_exception(failure.exception),
            log_tail=_sound((failure.log_tail or "")[-LONGEST_TAIL:]) or None,
        ),
    )


def _within(time: datetime | None) -> datetime | None:
    """The time within the years that the rest of the operator, and the API server, can count with."""
    return None if time is None else saturated(time)


def _history(raw: Any) -> ReportedHistory | None:
    """The history, with bounded names; None if it is invalid."""
    try:
        found = msgspec.convert(raw, ReportedHistory)
        bounded = msgspec.structs.replace(
            found,
            metrics={_sound(name[: series.NAME_LENGTH]): column for name, column in found.metrics.items()},
            restarts=tuple(
                msgspec.structs.replace(each, reason=_word(each.reason[: series.REASON_LENGTH]))
                for each in found.restarts[-series.MOST_STATUS_MARKS :]
            ),
        )
        # The times of the restarts are bounded where they are merged (tftraining_operator/model/history.py).
        return msgspec.structs.replace(bounded, start_time=_within(bounded.start_time)) if bounded.is_sound else None
    except (msgspec.MsgspecError, OverflowError, RecursionError):
        return None


def split_result(message: str) -> tuple[ReportedResult | None, str]:
    """Split a termination message into the verdict in its first line, if any, and the log lines after it."""
    first, _, rest = message.partition("\n")
    if not first.startswith(RESULT_PREFIX):
        return None, message
    try:
        verdict = _decode(first.removeprefix(RESULT_PREFIX), ReportedResult)
    except ValueError:
        return None, rest
    reason, message, exception = _word(verdict.reason), _cut(verdict.message), _exception(verdict.exception)
    return msgspec.structs.replace(verdict, reason=reason, message=message, exception=exception), rest


def _decode(text: str, kind: type[Decoded]) -> Decoded:
    """Decode JSON as Python writes it: a NaN among the metrics must not invalidate the rest.

    A long text comes from a large gang, or from an attack that makes the operator build objects for half a second. Only
    its known fields are decoded, and only if its lists are not too long. It must be strict JSON, as launchers write it.
    """
    try:
        if len(text) > LONG_TEXT:
            _refuse_long_lists(text)
            return msgspec.json.decode(text, type=kind)
        raw: Any = json.loads(text, parse_constant=lambda _: None)
        return msgspec.convert(raw, kind)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error


def _refuse_long_lists(text: str) -> None:
    lists = msgspec.json.decode(text, type=_Lists)
    size = sum(len(memoryview(getattr(lists, name))) for name in _Lists.__struct_fields__)
    if size > LONGEST_LISTS:
        raise ValueError(f"its lists and metrics have {size} bytes, more than {LONGEST_LISTS}")


def _word(text: str) -> str:
    """The text if it is a valid reason of a condition, otherwise ""."""
    return text if re.fullmatch(rf"[A-Za-z][A-Za-z0-9_]{{0,{LONGEST_REASON - 1}}}", text) else ""


def _known(text: str, words: Collection[str]) -> str:
    """The text if it is one of the words, otherwise ""."""
    return text if text in words else ""


def _cut(text: str) -> str:
    return _sound(" ".join(text[: 2 * LONGEST_MESSAGE].split())[:LONGEST_MESSAGE])


def _exception(text: str) -> str:
    return _cut(text)[:LONGEST_EXCEPTION]


def _sound(text: str) -> str:
    """The text without lone surrogates ("\\ud800"), which JSON can contain but UTF-8 cannot encode."""
    return text.encode(errors="replace").decode()
