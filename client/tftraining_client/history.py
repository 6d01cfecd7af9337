"""The history of a training: the curves of its metrics and its restarts, as `status.history` has them. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any, Self


@dataclass(frozen=True)
class Point:
    """The value of a metric at a step and in an epoch (None if the program reports none); `time` is RFC 3339."""

    step: int | None
    epoch: int | None
    time: str
    value: float


@dataclass(frozen=True)
class RestartMark:
    """A restart: its time (RFC 3339), the newest step before it (None if unknown) and its reason."""

    time: str
    step: int | None
    reason: str


@dataclass(frozen=True)
class History:
    """By metric the points in the order of the steps, and the restarts in the order of time."""

    metrics: dict[str, list[Point]] = field(default_factory=dict)
    restarts: list[RestartMark] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The history as an object of JSON."""
        return asdict(self)

    @classmethod
    def of(cls, columns: Mapping[str, Any] | None) -> Self:
        """The history in `status.history` of a job, or in a launcher's file; empty if there is none. A part that is not
        of its type is left out."""
        columns = columns or {}
        rows = list(zip(_list(columns, "steps"), _list(columns, "epochs"), _list(columns, "seconds"), strict=False))
        start = _time(columns.get("startTime"))
        metrics = columns.get("metrics")
        named = metrics.items() if isinstance(metrics, Mapping) else ()
        return cls(
            metrics={str(name): _points(rows, start, values) for name, values in named if isinstance(values, list)},
            restarts=[
                RestartMark(str(each.get("time", "")), _whole(each.get("step")), str(each.get("reason", "")))
                for each in _list(columns, "restarts")
                if isinstance(each, Mapping)
            ],
        )


def _points(rows: list[tuple[Any, Any, Any]], start: datetime | None, values: list[Any]) -> list[Point]:
    return [
        Point(_whole(step), _whole(epoch), _after(start, seconds), float(value))
        for (step, epoch, seconds), value in zip(rows, values, strict=False)
        if _is_number(value)
    ]


def _list(columns: Mapping[str, Any], name: str) -> list[Any]:
    found = columns.get(name)
    return found if isinstance(found, list) else []


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and isfinite(value)


def _time(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return None


def _after(start: datetime | None, seconds: Any) -> str:
    """The time of a row; "" if it is unknown."""
    if start is None or not _is_number(seconds):
        return ""
    try:
        return (start + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return ""
