"""The history as the client gives it: points by metric, from the columns of the status."""

from typing import Any

import pytest

from tftraining_client import Event, History, Point, RestartMark

COLUMNS: dict[str, Any] = {
    "startTime": "2026-03-01T12:00:00Z",
    "steps": [100, None, 300],
    "epochs": [1, 2, None],
    "seconds": [0, 12.5, 86400],
    "metrics": {"loss": [0.5, 0.25, 1], "val_loss": [None, 0.3, None]},
    "restarts": [
        {"time": "2026-03-01T12:00:10.250Z", "step": 150, "reason": "Killed"},
        {"time": "2026-03-01T12:01:00Z"},
    ],
}


def test_points_by_metric_and_restarts() -> None:
    history = History.of(COLUMNS)
    assert history.metrics == {
        "loss": [
            Point(100, 1, "2026-03-01T12:00:00.000Z", 0.5),
            Point(None, 2, "2026-03-01T12:00:12.500Z", 0.25),
            Point(300, None, "2026-03-02T12:00:00.000Z", 1.0),
        ],
        "val_loss": [Point(None, 2, "2026-03-01T12:00:12.500Z", 0.3)],
    }
    assert history.restarts == [
        RestartMark("2026-03-01T12:00:10.250Z", 150, "Killed"),
        RestartMark("2026-03-01T12:01:00Z", None, ""),
    ]
    assert history.to_dict()["metrics"]["val_loss"] == [
        {"step": None, "epoch": 2, "time": "2026-03-01T12:00:12.500Z", "value": 0.3}
    ]


@pytest.mark.parametrize(
    "columns",
    [
        None,
        {},
        {"steps": 5, "metrics": [1], "restarts": "no"},
        {"steps": [1], "epochs": [1], "seconds": [1e300], "startTime": "soon", "metrics": {"loss": 3, "x": ["y"]}},
        {**COLUMNS, "metrics": {}, "restarts": [], "startTime": "9999-12-31T23:59:59-23:59"},
        {**COLUMNS, "metrics": {"loss": [float("inf"), float("nan"), None]}, "restarts": [5]},
    ],
)
def test_foreign_columns_are_left_out(columns: Any) -> None:
    history = History.of(columns)
    assert not any(history.metrics.values()) and history.restarts == []


@pytest.mark.parametrize("time", ["0000-01-01T00:00:00.000000Z", "9999-12-31T23:59:59-23:59", "soon"])
def test_an_event_with_a_time_that_python_does_not_know_is_listed(time: str) -> None:
    event = Event.of({"metadata": {}, "eventTime": time, "reason": "Odd"})
    assert event.reason == "Odd" and event.time.tzinfo is not None
    assert event.time.astimezone().year in (1969, 1970, 8999, 9000)
