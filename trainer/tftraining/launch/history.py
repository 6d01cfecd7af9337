"""The history of a training: a bounded series for each metric, with the restarts marked.

Pure, and used on both sides: the chief's launcher records the series, the operator merges the series of a new launcher
with the one in the job's status. The steps of a series only rise: a row of a step that is trained again after a restart
replaces the earlier rows from that step on.

A row has the metrics of one report. A full series halves its resolution: of all rows in 2^level steps the last one of
each metric stays, beside the first row and the rows with the lowest and the highest value of each metric. The rows that
stay at a level are among those that stay at the level below: a series may be thinned several times, and in several
places, and has no fewer rows than if it had been thinned once.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from tftraining.launch.failure.incident import LOSSES
from tftraining.launch.progress import rfc3339

FILE = ".tftraining-history.json"  # in the job's directory
SERIES_BYTES = 256 * 1024  # of a launcher's series, in memory and as JSON
STATUS_BYTES = 8 * 1024 - 256  # of the JSON in /status and in the job's status: 8 KiB, also as others encode numbers
MOST_ROWS = 2048
MOST_METRICS = 48
MOST_MARKS, MOST_STATUS_MARKS = 64, 16
NAME_LENGTH = 128
REASON_LENGTH = 64
STATUS_ROWS = 24  # rows that a cut series keeps at least; it rather loses its last metrics
LARGEST = 2**53  # of steps and epochs: the largest integer that every JSON parser reads exactly
HIGHEST_LEVEL = 54
LATEST = 2.0**37  # of times: the latest that progress.rfc3339 does not clamp
ROW_BYTES, VALUE_BYTES, MARK_BYTES, HEAD_BYTES = 56, 20, 160, 512  # the largest sizes in JSON
SAME_RESTART_SECONDS = 5.0  # a new launcher of the chief estimates when the earlier one was lost
UNKNOWN = -1


@dataclass(frozen=True)
class Mark:
    """A restart: the time in seconds since 1970, the newest step before it, and its reason."""

    time: float
    step: int | None
    reason: str


class Series:
    """The rows in columns. `after` is the step after which the series has every report; None if it has none yet."""

    def __init__(self) -> None:
        self.steps = array("q")
        self.epochs = array("q")
        self.times = array("d")
        self.metrics: dict[str, array[float]] = {}
        self.marks: list[Mark] = []
        self.after: int | None = None
        self.level = 0
        self._capacity = MOST_ROWS
        self._is_full = False  # no other metric fits
        self.revision = 0  # rises with each change

    def __len__(self) -> int:
        return len(self.steps)

    def record(
        self, step: int | None, epoch: int | None, time: float, values: Mapping[str, Any], resumed: int | None = None
    ) -> None:
        """Add the metrics of a report; without a finite number it adds nothing. `resumed` is the step from which a
        round has resumed, at its first report: later rows of earlier rounds are about steps that it trains again."""
        named = ((_name(name), value) for name, value in values.items())
        sound = ((name, _number(value)) for name, value in named if name in self.metrics or not self._is_full)
        known = [(name, value) for name, value in sound if value is not None and self._has_room_for(name)]
        if not known:
            return
        step, epoch, time = _bounded(step), _bounded(epoch), round(time, 3) if 0.0 <= time <= LATEST else 0.0
        place = _place(step, epoch, time)
        if resumed is not None:
            self._drop_after(resumed)
        if self.after is None:
            self.after = resumed if resumed is not None else max(0, place - 1)
        self._drop_after(place)
        if not len(self) or self.place(len(self) - 1) < place:
            self._append(step, epoch, time)
        for name, value in known:
            self.metrics[name][-1] = value
        self.revision += 1
        self._thin_if_full()

    def mark(self, mark: Mark) -> None:
        """Add a restart, or replace the newest mark if it has the same time."""
        if self.marks and self.marks[-1] == mark:
            return
        if self.marks and self.marks[-1].time == mark.time:
            self.marks.pop()
        self.marks = [*self.marks, Mark(mark.time, _bounded(mark.step), mark.reason[:REASON_LENGTH])][-MOST_MARKS:]
        self.revision += 1

    def to_json(self) -> dict[str, Any]:
        """The JSON form: columns, with null for a value that a row lacks."""
        marks = [{"time": rfc3339(each.time), "step": each.step, "reason": each.reason} for each in self.marks]
        if not len(self):
            return {"restarts": marks}
        return {
            "startTime": rfc3339(self.times[0]),
            "steps": [_known(each) for each in self.steps],
            "epochs": [_known(each) for each in self.epochs],
            "seconds": [round(each - self.times[0], 3) for each in self.times],
            "metrics": {name: [_finite(each) for each in column] for name, column in self.metrics.items()},
            "restarts": marks,
        }

    def cut(self, limit: int = STATUS_BYTES) -> Series:
        """A copy whose JSON has at most `limit` bytes: of fewer rows, and of fewer metrics if there are very many."""
        names, marks = list(self.metrics), self.marks[-MOST_STATUS_MARKS:]
        while True:
            found = self._cut(names, marks, limit)
            if found is not None:
                return found
            if len(names) > 1:
                names = names[: len(names) * 3 // 4]
            else:
                marks = marks[1:]

    def _cut(self, names: list[str], marks: list[Mark], limit: int) -> Series | None:
        """The rows and these metrics at the highest resolution that fits; None if too few rows fit."""
        found = self._copy(names, marks)
        least = min(STATUS_ROWS, len(found)) if len(names) > 1 else 1
        fewest = self._copy(names, marks)
        fewest._keep(fewest._rows_at(HIGHEST_LEVEL))
        if fewest._is_larger_than(limit):  # so is every level: the launcher need not look at each
            return None
        while found._is_larger_than(limit):
            before = len(found)
            found._thin_to(before - 1)
            if len(found) < least or len(found) == before:
                return None
        return found

    def _is_larger_than(self, limit: int) -> bool:
        """Whether the JSON has more bytes; with the comma a whole number has at least two, any other value four."""
        least = len(self) * (2 + 2 + 4 + 4 * len(self.metrics))
        return least > limit or len(compact(self.to_json())) > limit

    def _copy(self, names: Iterable[str], marks: list[Mark]) -> Series:
        """A copy of these metrics, without rows that have none of them."""
        copied = Series()
        copied.metrics = {name: self.metrics[name] for name in names}
        copied.steps, copied.epochs, copied.times = self.steps, self.epochs, self.times
        copied.marks, copied.after, copied.level, copied.revision = list(marks), self.after, self.level, self.revision
        columns = copied.metrics.values()
        copied._keep([row for row in range(len(self)) if any(not math.isnan(column[row]) for column in columns)])
        return copied

    # Rows.

    def place(self, row: int) -> int:
        """The place of a row on the axis."""
        return _place(_known(self.steps[row]), _known(self.epochs[row]), self.times[row])

    def _append(self, step: int | None, epoch: int | None, time: float) -> None:
        self.steps.append(UNKNOWN if step is None else step)
        self.epochs.append(UNKNOWN if epoch is None else epoch)
        # The clocks of two nodes may differ; the curve of a chief that moves between them must not run backwards.
        self.times.append(max(time, self.times[-1]) if len(self.times) else time)
        for column in self.metrics.values():
            column.append(math.nan)

    def _has_room_for(self, name: str) -> bool:
        """Whether the series has the metric; a new one is added while the rows of all metrics fit."""
        if name not in self.metrics:
            if self._is_full:
                return False
            columns, capacity = len(self.metrics) + 1, _capacity([*self.metrics, name])
            self._is_full = columns >= MOST_METRICS or capacity < 4 * columns + 16
            if capacity < 4 * columns + 16:
                return False
            self._capacity = capacity
            self.metrics[name] = array("d", [math.nan] * len(self))
        return True

    def _drop_after(self, place: int) -> None:
        """Drop the rows of later places."""
        count = len(self)
        while count and self.place(count - 1) > place:
            count -= 1
        if count < len(self):
            self._keep(list(range(count)))
        if self.after is not None:
            self.after = min(self.after, place)

    def _thin_if_full(self) -> None:
        if len(self) > self._capacity:
            self._thin_to(self._capacity * 3 // 4)

    def _thin_to(self, rows: int) -> None:
        """Halve the resolution until at most so many rows are left, if possible."""
        self._keep(self._rows_at(self.level))
        while len(self) > rows and self.level < HIGHEST_LEVEL:
            self.level += 1
            self._keep(self._rows_at(self.level))

    def _rows_at(self, level: int) -> list[int]:
        """The rows that stay at a level."""
        kept = {0} if len(self) else set()
        buckets = [self.place(row) >> level for row in range(len(self))]
        for column in self.metrics.values():
            rows = [row for row, value in enumerate(column) if not math.isnan(value)]
            kept.update({buckets[row]: row for row in rows}.values())
            if rows:
                kept |= {min(rows, key=column.__getitem__), max(rows, key=column.__getitem__)}
        return sorted(kept)

    def _keep(self, rows: list[int]) -> None:
        self.steps = array("q", [self.steps[row] for row in rows])
        self.epochs = array("q", [self.epochs[row] for row in rows])
        self.times = array("d", [self.times[row] for row in rows])
        self.metrics = {name: array("d", [column[row] for row in rows]) for name, column in self.metrics.items()}


def from_json(raw: Any, after: int | None = None) -> Series:
    """The series of its JSON form; ValueError if the form is invalid, as it comes from files and from pods."""
    try:
        return _decoded(raw, after)
    except (TypeError, KeyError, AttributeError, OverflowError) as error:
        raise ValueError(f"no history: {error!r}") from None


def _decoded(raw: Any, after: int | None) -> Series:
    series = Series()
    rows = list(zip(raw.get("steps", ()), raw.get("epochs", ()), raw.get("seconds", ())))
    columns = {str(name): list(column) for name, column in raw.get("metrics", {}).items()}
    lengths = {len(raw.get(name, ())) for name in ("steps", "epochs", "seconds")} | set(map(len, columns.values()))
    if len(lengths) > 1 or len(rows) > MOST_ROWS:
        raise ValueError("the columns of a history have different lengths, or too many rows")
    start = seconds_of(raw["startTime"]) if rows else 0.0
    last = -1
    for row, (step, epoch, seconds) in enumerate(rows):
        if _place(_bounded(step), _bounded(epoch), start + float(seconds)) <= last:
            raise ValueError("the steps of a history do not rise")
        series.record(step, epoch, start + float(seconds), {name: column[row] for name, column in columns.items()})
        last = series.place(len(series) - 1) if len(series) else last
    series.after = after if after is not None else series.after
    for each in raw.get("restarts") or ():
        series.mark(Mark(seconds_of(each["time"]), each.get("step"), str(each.get("reason") or "")))
    return series


def merged(old: Series, new: Series) -> Series:
    """The series of a launcher after the one that an earlier launcher, or the status of the job, has kept."""
    series = Series()
    kept = [row for row in range(len(old)) if not len(new) or old.place(row) <= _boundary(new)]
    for source, rows in ((old, kept), (new, range(len(new)))):
        for row in rows:
            values = {name: column[row] for name, column in source.metrics.items()}
            series.record(_known(source.steps[row]), _known(source.epochs[row]), source.times[row], values)
    series.after = old.after if kept or not len(new) else new.after
    series.marks = merge_marks(old.marks, new.marks)
    return series


def _boundary(new: Series) -> int:
    first = new.place(0) - 1
    return first if new.after is None else min(first, new.after)


def merge_marks(old: list[Mark], new: list[Mark]) -> list[Mark]:
    """The marks of both. Of a lost pod the launchers know only that it is gone, the operator also the cause."""
    marks = list(new)
    for each in old:
        same = next((index for index, mark in enumerate(new) if is_same_restart(each, mark)), None)
        if same is None:
            marks.append(each)
        elif new[same].reason in LOSSES and each.reason not in LOSSES:
            marks[same] = Mark(new[same].time, new[same].step, each.reason)
    return sorted(marks, key=lambda mark: mark.time)[-MOST_MARKS:]


def is_same_restart(one: Mark, other: Mark) -> bool:
    """Whether two marks are about the same restart."""
    apart = abs(one.time - other.time)
    is_loss = one.reason in LOSSES or other.reason in LOSSES
    return apart < 0.002 or (is_loss and apart <= SAME_RESTART_SECONDS)


def compact(document: Mapping[str, Any]) -> str:
    """The document as JSON in ASCII without spaces."""
    return json.dumps(document, separators=(",", ":"))


def seconds_of(time: str) -> float:
    """Seconds since 1970 of an RFC 3339 time in UTC; ValueError if it is none."""
    if not time.endswith("Z"):
        raise ValueError(f"{time!r} is not a time in UTC")
    return datetime.fromisoformat(time[:-1]).replace(tzinfo=timezone.utc).timestamp()


def _place(step: int | None, epoch: int | None, time: float) -> int:
    """The place of a row on the axis: its step, otherwise its epoch, otherwise its time."""
    if step is not None:
        return step
    return epoch if epoch is not None else int(time + 0.0005)  # the JSON has milliseconds


def _bounded(number: int | None) -> int | None:
    return None if number is None else min(max(int(number), 0), LARGEST)


def _known(number: int) -> int | None:
    return None if number == UNKNOWN else number


def _name(name: object) -> str:
    return str(name)[:NAME_LENGTH].encode(errors="replace").decode()


def _number(value: Any) -> float | None:
    """The value with six digits; None if it is no finite number."""
    try:
        number = float(f"{float(value):.6g}")
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else value


def _capacity(names: Iterable[str]) -> int:
    """How many rows with a value of each metric fit into SERIES_BYTES, whatever the values are."""
    sizes = [len(json.dumps(name)) + 6 for name in names]
    head = HEAD_BYTES + MOST_MARKS * MARK_BYTES + sum(sizes)
    return min(MOST_ROWS, (SERIES_BYTES - head) // (ROW_BYTES + VALUE_BYTES * len(sizes)))
