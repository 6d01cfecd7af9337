"""The history of a training: bounds, one curve over restarts, and the merge after a pod was made anew."""

from __future__ import annotations

import itertools
import json
import math
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tftraining.launch import history
from tftraining.launch.history import Mark, Series, from_json, merged

START = 1_790_000_000.0
VALUES = st.one_of(st.floats(), st.integers(-(10**400), 10**400), st.none(), st.text(max_size=3))
NAMES = st.one_of(st.sampled_from(["loss", "accuracy", "val_loss"]), st.text(max_size=300))
REPORTS = st.tuples(
    st.one_of(st.none(), st.integers(0, 2**60)),
    st.one_of(st.none(), st.integers(0, 10**6)),
    st.floats(),
    st.dictionaries(NAMES, VALUES, max_size=6),
    st.one_of(st.none(), st.integers(0, 2**60)),
)


def trained(steps: range, *, resumed: int | None = None, into: Series | None = None, slope: float = 1.0) -> Series:
    """A series with a report at each of `steps`."""
    series = Series() if into is None else into
    for step in steps:
        series.record(step, step // 100 + 1, START + step, {"loss": slope * step}, resumed)
        resumed = None
    return series


def size(series: Series) -> int:
    return len(history.compact(series.to_json()))


def points(series: Series, name: str = "loss") -> list[tuple[int, float]]:
    return [
        (step, value) for step, value in zip(series.steps, series.metrics[name], strict=True) if not math.isnan(value)
    ]


@given(st.lists(REPORTS, max_size=60), st.integers(1, 20))
@settings(max_examples=40)
def test_any_reports_give_rising_steps_and_a_bounded_series(reports: list[Any], repeats: int) -> None:
    series = Series()
    for number in range(repeats):
        for step, epoch, time, values, resumed in reports:
            series.record(None if step is None else step + number, epoch, time, values, resumed)
            series.mark(Mark(START + number, step, "Killed"))
    places = [series.place(row) for row in range(len(series))]
    assert places == sorted(set(places))
    assert list(series.times) == sorted(series.times)
    assert all(len(column) == len(series) for column in series.metrics.values())
    assert size(series) <= history.SERIES_BYTES
    assert size(series.cut()) <= 8 * 1024
    json.loads(history.compact(series.to_json()), parse_constant=pytest.fail)
    assert size(from_json(series.to_json())) <= history.SERIES_BYTES


def test_ten_thousand_metrics_with_long_names_stay_within_the_bounds() -> None:
    series = Series()
    for step in range(300):
        series.record(
            step, 1, START, {f"𝔪é{name}" * 40: -1.23456e-300 * step for name in range(10_000 if step < 2 else 99)}
        )
    assert 0 < len(series.metrics) <= history.MOST_METRICS
    assert size(series) <= history.SERIES_BYTES
    assert len(series.cut()) > 1
    assert size(series.cut()) <= 8 * 1024


@pytest.mark.parametrize("metrics", [1, 7, 48])
def test_a_long_training_stays_within_the_bounds_and_keeps_both_ends_and_the_extremes(metrics: int) -> None:
    series = Series()
    for step in range(3_000):
        wave = math.sin(step * 12.9898) * 1.2345e-5
        series.record(step, step // 100, START + step, {f"metric_{n}": wave + n for n in range(metrics)})
    series.record(3_000, 200, START + 30_000, {"metric_0": 99.0})
    series.record(3_001, 200, START + 30_000, {"metric_0": 0.5})
    assert size(series) <= history.SERIES_BYTES
    arrays = [series.steps, series.epochs, series.times, *series.metrics.values()]
    assert sum(map(sys.getsizeof, arrays)) <= history.SERIES_BYTES
    for each in (series, series.cut()):
        kept = points(each, "metric_0")
        assert (kept[0][0], kept[-1][0]) == (0, 3_001)
        assert (3_000, 99.0) in kept
        assert max(b - a for (a, _), (b, _) in itertools.pairwise(kept)) <= 3_000 / 8


def test_steps_trained_again_after_a_restart_replace_the_old_points() -> None:
    series = trained(range(100, 1001, 100))
    series.mark(Mark(START + 1000, 1050, "Killed"))
    trained(range(750, 1501, 100), resumed=700, into=series, slope=2.0)
    assert points(series) == [
        *((step, 1.0 * step) for step in range(100, 701, 100)),
        *((step, 2.0 * step) for step in range(750, 1501, 100)),
    ]


def test_the_old_curve_stays_until_the_first_report_after_a_restart() -> None:
    series = trained(range(100, 1001, 100))
    series.mark(Mark(START, 1050, "Killed"))
    assert points(series)[-1] == (1000, 1000.0)


def test_a_cut_of_many_metrics_keeps_all_of_them_and_loses_rows() -> None:
    series = Series()
    for step in range(200):
        series.record(step, 1, START + step, {f"metric_{n}": step for n in range(8)})
    cut = series.cut()
    assert len(cut.metrics) == 8 and history.STATUS_ROWS <= len(cut) < 200


def test_the_largest_step_of_every_json_parser_is_kept() -> None:
    series = Series()
    series.record(2**53, None, 2.0**37, {"loss": 1.0})
    series.record(2**60, None, START, {"val_loss": 1.0})
    assert (list(series.steps), list(series.times)) == ([2**53], [2.0**37])


def test_reports_of_one_step_are_one_row() -> None:
    series = Series()
    series.record(10, 1, START, {"loss": 0.5})
    series.record(10, 1, START + 1, {"val_loss": 0.25, "loss": math.nan})
    assert series.to_json()["metrics"] == {"loss": [0.5], "val_loss": [0.25]}


def test_reports_without_steps_go_by_epochs() -> None:
    series = Series()
    for epoch in (1, 2, 3, 2):
        series.record(None, epoch, START + epoch, {"loss": 1 / epoch})
    assert series.to_json()["epochs"] == [1, 2]
    assert series.to_json()["steps"] == [None, None]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None, "text", [1], 10**400])
def test_a_value_that_is_no_finite_number_is_left_out(value: Any) -> None:
    series = Series()
    series.record(1, 1, START, {"loss": value})
    assert (len(series), series.metrics) == (0, {})


@given(st.integers(1, 1500), st.integers(1, 1500))
@settings(max_examples=6)
def test_a_series_thinned_twice_has_the_rows_of_a_series_thinned_once(before: int, more: int) -> None:
    whole = trained(range(before + more))
    once = from_json(whole.to_json())
    parts = merged(
        from_json(trained(range(before)).cut().to_json()), trained(range(before, before + more), resumed=before)
    )
    assert from_json(once.cut().to_json()).cut().to_json() == once.cut().to_json()
    assert set(once.cut().steps) <= set(parts.cut().steps)


@given(st.lists(st.floats(0.05, 3.0), min_size=1, max_size=40), st.floats(0, 2**31))
@settings(derandomize=True, max_examples=50)
def test_a_series_without_steps_and_epochs_can_be_read_back(pauses: list[float], start: float) -> None:
    series = Series()
    for time in itertools.accumulate(pauses, initial=start):
        series.record(None, None, time, {"loss": 1.0})
    assert from_json(series.to_json(), series.after).to_json() == series.to_json()


def test_the_step_zero_has_a_place() -> None:
    series = Series()
    series.record(0, None, 1.0, {"loss": 1.0})
    assert (series.after, series.to_json()["steps"]) == (0, [0])


def test_a_new_launcher_without_the_series_continues_the_curve_of_the_status() -> None:
    old = trained(range(100, 1001, 50))
    old.mark(Mark(START + 500, 500, "Killed"))
    new = trained(range(800, 1601, 100), resumed=700, slope=2.0)
    steps = [step for step, _ in points(merged(old, new))]
    assert steps == [*range(100, 701, 50), *range(800, 1601, 100)]
    assert [mark.reason for mark in merged(old, new).marks] == ["Killed"]
    assert merged(merged(old, new), new).to_json() == merged(old, new).to_json()


def test_a_training_that_started_over_replaces_the_curve() -> None:
    assert points(merged(trained(range(100, 1001, 50)), trained(range(50, 101, 50), resumed=0, slope=3.0))) == [
        (50, 150.0),
        (100, 300.0),
    ]


def test_a_new_launcher_without_reports_leaves_the_curve() -> None:
    old = trained(range(100, 1001, 50))
    assert merged(old, Series()).to_json() == old.to_json()


def test_a_launcher_that_has_loaded_the_series_replaces_the_one_of_the_status() -> None:
    stored = trained(range(0, 10_000, 10))
    status = from_json(stored.cut().to_json())
    launcher = merged(from_json(stored.to_json(), stored.after), trained(range(9000, 12_000, 10), resumed=8990))
    assert merged(status, launcher).to_json() == launcher.to_json()


def test_a_lost_pod_is_one_mark_with_the_cause_that_the_operator_knows() -> None:
    status, launcher = trained(range(3)), trained(range(3))
    status.mark(Mark(START + 10.2, 2, "PodDeleted"))
    launcher.mark(Mark(START + 11.5, 2, "MemberLost"))
    launcher.mark(Mark(START + 60.0, 2, "Killed"))
    assert [(mark.time, mark.reason) for mark in merged(status, launcher).marks] == [
        (START + 11.5, "PodDeleted"),
        (START + 60.0, "Killed"),
    ]


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text() | st.integers(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["steps", "epochs", "seconds", "metrics", "restarts", "startTime", "time"]), inner
            )
        ),
    )
)
@settings(max_examples=50)
def test_foreign_json_is_a_series_or_a_value_error(raw: Any) -> None:
    try:
        assert size(from_json(raw)) <= history.SERIES_BYTES
    except ValueError:
        return


@pytest.mark.parametrize(
    "changed",
    [
        {"steps": [1, 1]},
        {"steps": [2, 1]},
        {"steps": [1]},
        {"metrics": {"loss": [1.0]}},
        {"startTime": "yesterday"},
        {"startTime": None},
        {"steps": [1] * 5000, "epochs": [1] * 5000, "seconds": [1] * 5000, "metrics": {"loss": [1] * 5000}},
    ],
)
def test_a_damaged_file_is_a_value_error(changed: dict[str, Any]) -> None:
    sound: dict[str, Any] = {
        "startTime": "2026-01-31T12:00:00.000Z",
        "steps": [1, 2],
        "epochs": [1, 1],
        "seconds": [0, 1],
    }
    sound["metrics"] = {"loss": [1.0, 0.5]}
    assert len(from_json(sound)) == 2
    with pytest.raises(ValueError):
        from_json({**sound, **changed})


def test_a_row_without_step_and_epoch_has_its_time_as_its_place() -> None:
    series = Series()
    for time in (10.9996, 12.0):
        series.record(None, None, time, {"loss": 1.0})
    assert [series.place(row) for row in range(len(series))] == [11, 12]
