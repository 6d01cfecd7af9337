"""status.goodput: the seconds of a job by what they went to. The operator counts them (plan/goodput.py), `tftj run` the
seconds of its own run. Pure."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from tftraining_api.model.spec import Frozen
from tftraining_api.model.times import MOST

TRAINED, START, QUEUE, IN_PLACE, RECREATED = "trained", "start", "queue", "inPlace", "recreated"
NODE, REPEATED, COPIES, STALLED, SUSPENDED = "node", "repeated", "copies", "stalled", "suspended"
WORDS = {
    TRAINED: "training",
    START: "start",
    QUEUE: "queue",
    IN_PLACE: "restarts in place",
    RECREATED: "new pods",
    NODE: "lost nodes",
    REPEATED: "lost steps",
    COPIES: "backups in memory",
    STALLED: "no step",
    SUSPENDED: "suspended",
}
LEAST_SHOWN = 0.05  # seconds


class Goodput(Frozen, frozen=True):
    """The seconds from `start_time` to `updated_time`, by cause; `cause` is what the time after that goes to, until the
    next write, and has gone to `since` then. A job that has ended has neither."""

    start_time: datetime | None = None
    updated_time: datetime | None = None
    cause: str | None = None
    since: datetime | None = None
    seconds: dict[str, float] = msgspec.field(default_factory=dict)

    def until(self, now: datetime) -> dict[str, float]:
        """The seconds by cause, with those since the last write."""
        if self.cause is None or self.updated_time is None:
            return self.seconds
        return with_more(self.seconds, self.cause, now - self.updated_time)


def with_more(seconds: Mapping[str, float], cause: str, more: timedelta) -> dict[str, float]:
    """The seconds with those of a cause. A clock that was ahead and is set back takes away what it has added: from the
    cause, and what that does not have from the largest of the others. So the sum stays the time until now."""
    found, left = dict(seconds), more.total_seconds()
    for name in (cause, *sorted(seconds, key=lambda name: (-seconds[name], name))):
        had = found.get(name, 0.0)
        found[name] = bounded(had + left)
        left += had - found[name]
        if left >= 0:
            break
    return found


def bounded(seconds: float) -> float:
    """The seconds as the status has them."""
    return round(min(max(seconds, 0.0), MOST), 3)


def in_words(seconds: Mapping[str, float]) -> str:
    """`93.1 % of 61.2 s trained; start 3.1 s, restarts in place 1.1 s`; empty where nothing is counted."""
    total = sum(seconds.values())
    if total < LEAST_SHOWN:
        return ""
    lost = sorted(((each, name) for name, each in seconds.items() if name != TRAINED), reverse=True)
    told = [f"{WORDS.get(name, name)} {_duration(each)}" for each, name in lost if each >= LEAST_SHOWN]
    kept = f"{100 * seconds.get(TRAINED, 0.0) / total:.1f} % of {_duration(total)} trained"
    return "; ".join(filter(None, (kept, ", ".join(told))))


def _duration(seconds: float) -> str:
    """`61.2 s`, `12 min`, `3.4 h`."""
    if seconds < 600:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
