"""The history of the training in the status: the launchers' series, continued when the chief's pod was made anew.

A new launcher of the chief without storage knows only the part since its start. The status has the part before.
"""

from datetime import UTC, datetime

import msgspec

from tftraining.launch.history import (
    MOST_STATUS_MARKS,
    SAME_RESTART_SECONDS,
    Mark,
    Series,
    from_json,
    is_same_restart,
    merge_marks,
    merged,
)
from tftraining_api.model.status import History, LastRestart, RestartMark, Status
from tftraining_api.model.times import FIRST, LAST
from tftraining_operator.model.launcher_report import LONGEST_HISTORY, ReportedHistory


def with_history(status: Status, reported: ReportedHistory | None) -> Status:
    """The status with the history that the launcher reports, after the one that the status has."""
    if reported is None:
        return status
    old = status.history or History()
    rows = _continued(old, reported) if _has_earlier_rows(old, reported) else _as_history(reported)
    restarts = _restarts(old, reported, status.last_restart)
    history = msgspec.structs.replace(rows, restarts=restarts)
    if len(msgspec.json.encode(history)) > LONGEST_HISTORY:
        history = _cut(history)
    return msgspec.structs.replace(status, history=history)


def _cut(history: History) -> History:
    try:
        return _history(_series(history, None).cut())
    except ValueError:  # the launcher is not ours
        return History(restarts=history.restarts)


def _has_earlier_rows(old: History, new: ReportedHistory) -> bool:
    """Whether the status has rows from before the launcher's."""
    return bool(old.steps) and _first(old) < _first(new) and (new.after is None or _first(old) <= new.after)


def _first(history: History) -> int:
    step, epoch = history.steps[0], history.epochs[0] if history.epochs else None
    if step is not None:
        return step
    return epoch if epoch is not None else 0


def _continued(old: History, new: ReportedHistory) -> History:
    """The rows of both, at the same resolution as those of one launcher."""
    try:
        return _history(merged(_series(old, None), _series(new, new.after)).cut())
    except ValueError:  # somebody has edited the status, or the launcher is not ours
        return _as_history(new)


def _restarts(old: History, new: History, last: LastRestart | None) -> tuple[RestartMark, ...]:
    """The restarts of both, and the last one, of which the launchers may know nothing."""
    earlier, reported = [list(map(_mark, each.restarts)) for each in (old, new)]
    if last is not None:
        own = Mark(last.time.timestamp(), None, last.reason or "")
        if not any(_is_known(own, each) for each in (*earlier, *reported)):
            earlier.append(own)
    marks = merge_marks(earlier, reported)[-MOST_STATUS_MARKS:]
    return tuple(RestartMark(_time(each.time), each.step, each.reason) for each in marks)


def _is_known(own: Mark, mark: Mark) -> bool:
    is_near = abs(own.time - mark.time) <= SAME_RESTART_SECONDS and own.reason == mark.reason
    return is_near or (is_same_restart(own, mark) and own.time == mark.time)


def _mark(restart: RestartMark) -> Mark:
    return Mark(restart.time.timestamp(), restart.step, restart.reason)


def _time(seconds: float) -> datetime:
    within = min(max(round(seconds, 3), FIRST.timestamp()), LAST.timestamp())
    return datetime.fromtimestamp(within, UTC)


def _as_history(reported: ReportedHistory) -> History:
    return History(**{name: getattr(reported, name) for name in History.__struct_fields__})


def _series(history: History, after: int | None) -> Series:
    return from_json(msgspec.to_builtins(history), after)


def _history(series: Series) -> History:
    return msgspec.convert(series.to_json(), History)
