"""The history in the status: what launchers report, over pods made anew, within 8 KiB and without writes of its own."""

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from tftraining.launch.history import Mark, Series
from tftraining_api.model.job import Job, dump_status
from tftraining_api.model.names import Key
from tftraining_api.model.status import History, LastRestart, Progress, RestartMark, Status
from tftraining_operator.model.history import with_history
from tftraining_operator.model.launcher_report import ReportedHistory, parse_report
from tftraining_operator.plan.status_writes import can_wait, due, is_written

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECONDS = START.timestamp()


def launcher(steps: range, *, resumed: int | None = None, scale: float = 1.0, marks: tuple[Mark, ...] = ()) -> Any:
    """What a launcher reports that has heard the program at each of `steps`."""
    series = Series()
    for step in steps:
        series.record(step, step // 100 + 1, SECONDS + step, {"loss": scale * step, "accuracy": 1 / step}, resumed)
        resumed = None
    for mark in marks:
        series.mark(mark)
    return {**series.cut().to_json(), "after": series.after}


def reported(history: Any) -> ReportedHistory | None:
    found: ReportedHistory | None = parse_report(json.dumps({"phase": "Training", "history": history}).encode()).history
    return found


def heard(status: Status, *histories: Any) -> Status:
    for each in histories:
        status = with_history(status, reported(each))
    return status


def steps(status: Status) -> list[int | None]:
    assert status.history is not None
    return list(status.history.steps)


def size(status: Status) -> int:
    return len(json.dumps(dump_status(status)["history"], separators=(",", ":")))


def test_the_status_has_the_history_of_the_launcher() -> None:
    status = heard(Status(), launcher(range(100, 401, 100)))
    raw = json.loads(json.dumps(dump_status(status)["history"]))
    assert raw == {
        "startTime": "2026-03-01T12:01:40Z",
        "steps": [100, 200, 300, 400],
        "epochs": [2, 3, 4, 5],
        "seconds": [0.0, 100.0, 200.0, 300.0],
        "metrics": {"loss": [100.0, 200.0, 300.0, 400.0], "accuracy": [0.01, 0.005, 0.00333333, 0.0025]},
    }
    assert msgspec.convert(dump_status(status), Status) == status


def test_a_chief_in_a_new_pod_without_storage_continues_the_curve() -> None:
    before = heard(Status(), launcher(range(10, 1001, 10), marks=(Mark(SECONDS + 500, 505, "Killed"),)))
    lost = LastRestart(time=START + timedelta(seconds=1003), reason="PodDeleted")
    before = msgspec.structs.replace(before, last_restart=lost)
    new = launcher(range(960, 2001, 10), resumed=950, scale=2.0, marks=(Mark(SECONDS + 1004.5, 1000, "MemberLost"),))
    after = heard(before, new)
    assert steps(after)[0] == 10 and steps(after)[-1] == 2000
    assert steps(after) == sorted(set(steps(after)), key=lambda step: step or 0)
    assert after.history is not None
    loss = dict(zip(after.history.steps, after.history.metrics["loss"], strict=True))
    assert all(value == (step or 0) * (2.0 if (step or 0) > 950 else 1.0) for step, value in loss.items())
    assert [(each.reason, each.step) for each in after.history.restarts] == [("Killed", 505), ("PodDeleted", 1000)]
    assert heard(after, new) == after, "the same report changes nothing"
    assert size(after) <= 8 * 1024


def test_a_new_launcher_that_has_no_report_yet_leaves_the_curve() -> None:
    before = heard(Status(), launcher(range(10, 101, 10)))
    assert heard(before, None, {}, {"restarts": []}) == before


def test_many_new_pods_leave_one_curve_within_8_kib() -> None:
    status = Status()
    for pod in range(20):
        first = pod * 500 + 1
        marks = tuple(Mark(SECONDS + first + each, first, "Killed") for each in range(30))
        status = heard(status, launcher(range(first, first + 700), resumed=max(0, first - 1), marks=marks))
    assert steps(status)[0] == 1 and steps(status)[-1] == 20 * 500 + 200
    assert steps(status) == sorted(set(steps(status)), key=lambda step: step or 0)
    gaps = [(b or 0) - (a or 0) for a, b in zip(steps(status), steps(status)[1:], strict=False)]
    assert max(gaps) <= 10_200 / 30
    assert 4 * 1024 < size(status) <= 8 * 1024


def test_a_restart_that_only_the_operator_knows_is_marked() -> None:
    restarted = Status(last_restart=LastRestart(time=START, reason="NodeLost"))
    status = heard(restarted, launcher(range(1, 9)), launcher(range(1, 12)))
    assert status.history is not None
    assert status.history.restarts == (RestartMark(START, None, "NodeLost"),)


@pytest.mark.parametrize("value", [1.0, 0.5, 123456.0, 1e-12, -1.23456e-300, 9.99999e14])
@pytest.mark.parametrize("metrics", [1, 20])
def test_what_a_launcher_cuts_fits_into_the_status(value: float, metrics: int) -> None:
    series = Series()
    for step in range(700):
        values = {f"metric {number}": value * (step % 7 - 3) for number in range(metrics)}
        series.record(10**6 + step, step // 100, SECONDS + step / 3, values)
        series.mark(Mark(SECONDS + step, step, "DeletionByTaintManager"))
    told = {**series.cut().to_json(), "after": series.after}
    status = heard(Status(), told)
    assert steps(status) == told["steps"] and len(steps(status)) > 20
    assert size(status) <= 8 * 1024


SOUND = launcher(range(1, 4))


@pytest.mark.parametrize(
    "wrong",
    [
        5,
        [],
        "text",
        {**SOUND, "steps": [1, 2]},
        {**SOUND, "steps": ["1", 2, 3]},
        {**SOUND, "steps": [-1, 2, 3]},
        {**SOUND, "steps": [2**60, 2, 3]},
        {**SOUND, "metrics": {"loss": [1, 2, math.inf]}},
        {**SOUND, "metrics": {"loss": [1, 2, 10**400]}},
        {**SOUND, "metrics": {f"metric {number}": [1, 2, 3] for number in range(60)}},
        {**SOUND, "metrics": {"\ud800" * 9000: [1, 2, 3]}, "seconds": [None, None, None]},
        {**SOUND, "startTime": "2026-03-01T12:00:00"},
        {**SOUND, "startTime": None},
        {**SOUND, "restarts": [{"time": "2026-03-01"}]},
        {name: [1] * 3000 for name in ("steps", "epochs", "seconds")} | {"startTime": SOUND["startTime"]},
    ],
)
def test_a_history_that_is_none_costs_only_itself(wrong: Any) -> None:
    text = json.dumps({"phase": "Training", "round": 3, "history": wrong}).replace("Infinity", "1e999")
    report = parse_report(text.encode())
    assert (report.round, report.history) == (3, None)


def test_names_of_users_are_bounded() -> None:
    found = reported({**SOUND, "metrics": {"é" * 300: [1, 2, 3], "\ud800": [1, 2, 3]}})
    assert found is not None and list(found.metrics) == ["é" * 128, "?"]


def test_a_status_that_somebody_has_edited_gives_way_to_the_report() -> None:
    edited = Status(history=History(start_time=START, steps=(1, 1), epochs=(1, 1), seconds=(0.0, 0.0)))
    assert steps(heard(edited, launcher(range(5, 9)))) == [5, 6, 7, 8]


def a_job(status: Status) -> Job:
    return Job(key=Key("ns", "job"), uid="uid", generation=1, status=status, spec=None)


def test_the_history_is_written_only_with_other_news() -> None:
    old = Status(phase="Running", progress=Progress(epoch=1, step=10))
    new = heard(old, launcher(range(1, 9)))
    assert new != old and is_written(old, new), "an older definition of the resource drops it from every write"
    later = msgspec.structs.replace(new, progress=Progress(epoch=1, step=20))
    assert not is_written(old, later)
    assert due(a_job(old), later, START, 1) >= START + timedelta(seconds=10)
    assert can_wait(old, msgspec.structs.replace(new, ready="1/2"))


def test_a_history_that_is_not_ours_and_too_large_stops_no_pass() -> None:
    rows = 600  # of one step, which no launcher reports
    forged = ReportedHistory(
        start_time=START, steps=(7,) * rows, epochs=(None,) * rows, seconds=(0.0,) * rows, metrics={"a": (1.0,) * rows}
    )
    marks = tuple(RestartMark(START + timedelta(minutes=minute), minute, "x" * 64) for minute in range(16))
    found = with_history(Status(history=History(restarts=marks)), forged).history
    assert found is not None and len(found.restarts) == 16
    assert len(msgspec.json.encode(found)) <= 8 * 1024
