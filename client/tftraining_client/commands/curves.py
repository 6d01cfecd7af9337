"""The curves of a history as `tftj plot` draws them: one axis for all metrics, and the places of the restarts. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tftraining_client.errors import UserError
from tftraining_client.history import History, Point, RestartMark
from tftraining_client.visible import visible_line

SIGNIFICANT = 5


@dataclass(frozen=True)
class Curve:
    """The curve of one metric."""

    name: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]

    @property
    def summary(self) -> str:
        """`0.25 at 700, lowest 0.24 at 640, highest 2.3 at 10`."""
        return ", ".join(self.parts)

    @property
    def parts(self) -> tuple[str, ...]:
        """The last, the lowest and the highest value, each with its place."""
        low, high = [choose(self.ys) for choose in (min, max)]
        lowest, highest = [f"{number(each)} at {number(self.xs[self.ys.index(each)])}" for each in (low, high)]
        return f"{number(self.ys[-1])} at {number(self.xs[-1])}", f"lowest {lowest}", f"highest {highest}"


@dataclass(frozen=True)
class Restart:
    """A restart at its place on the axis."""

    x: float
    time: str
    reason: str


@dataclass(frozen=True)
class Curves:
    """The curves of a job. `axis` is step, epoch or seconds; `omitted` are metrics that were not asked for."""

    job: str
    axis: str
    curves: tuple[Curve, ...]
    restarts: tuple[Restart, ...]
    omitted: tuple[str, ...] = ()

    @property
    def limits(self) -> tuple[float, float]:
        """The first and the last place of all curves."""
        return min(curve.xs[0] for curve in self.curves), max(curve.xs[-1] for curve in self.curves)

    @property
    def shown_restarts(self) -> tuple[Restart, ...]:
        """The restarts within the limits."""
        first, last = self.limits
        return tuple(each for each in self.restarts if first <= each.x <= last)


def curves_of(job: str, history: History, wanted: Sequence[str] = (), limit: int | None = None) -> Curves:
    """The curves of the `wanted` metrics, by default of the first `limit`. UserError if there is no such metric."""
    known = {name: points for name, points in history.metrics.items() if points}
    if not known:
        raise UserError(
            f"{job} has no history: its program has reported no metrics yet, or the cluster has an older definition of "
            "TFTrainingJobs (`tftj doctor` compares it)"
        )
    for name in wanted:
        if name not in known:
            raise UserError(f"{job} has no metric {name!r}; there are: {', '.join(map(visible_line, known))}")
    names = list(wanted) or list(known)[:limit]
    axis, start = _axis(known), min(seconds_of(points[0]) for points in known.values())
    curves = tuple(
        Curve(
            visible_line(name),
            tuple(_x(point, axis, start) for point in known[name]),
            tuple(point.value for point in known[name]),
        )
        for name in names
    )
    every = sorted({(seconds_of(point), _x(point, axis, start)) for name in names for point in known[name]})
    restarts = tuple(
        Restart(_place(mark, axis, start, every), visible_line(mark.time), visible_line(mark.reason))
        for mark in history.restarts
    )
    omitted = tuple(visible_line(name) for name in known if name not in names and not wanted)
    return Curves(visible_line(job), axis, curves, restarts, omitted)


def _axis(metrics: dict[str, list[Point]]) -> str:
    points = [point for each in metrics.values() for point in each]
    if all(point.step is not None for point in points):
        return "step"
    return "epoch" if all(point.epoch is not None for point in points) else "seconds"


def _x(point: Point, axis: str, start: float) -> float:
    number = {"step": point.step, "epoch": point.epoch, "seconds": None}[axis]
    return seconds_of(point) - start if number is None else number


def _place(mark: RestartMark, axis: str, start: float, points: list[tuple[float, float]]) -> float:
    """The place of a restart: its step, or that of the last point before it."""
    if axis == "step" and mark.step is not None:
        return mark.step
    at = _seconds(mark.time)
    if axis == "seconds":
        return at - start
    return next((x for time, x in reversed(points) if time <= at), points[0][1])


def seconds_of(point: Point) -> float:
    """The time of a point in seconds since 1970; 0 if it is unknown."""
    return _seconds(point.time)


def _seconds(time: str) -> float:
    try:
        return datetime.fromisoformat(time).timestamp()
    except ValueError:
        return 0.0


def number(value: float) -> str:
    """A number with at most five significant digits; a whole number with all."""
    if float(value).is_integer() and abs(value) < 1e9:
        return str(int(value))
    return f"{value:.{SIGNIFICANT}g}"


def nice_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers from `low` to `high`, at steps of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw)) if raw > 1e-300 else 1e-300
    step = next((factor * power for factor in (1, 2, 5, 10) if factor * power >= raw), 10 * power)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first
    return [(first + each) * step for each in range(min(count, 2 * most) + 1)]
