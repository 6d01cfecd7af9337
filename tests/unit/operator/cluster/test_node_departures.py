"""One pod in the cluster leaves its node in each interval, also after another operator has taken over."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tftraining_operator.cluster.jobs import Jobs
from tftraining_operator.cluster.node_departures import NodeDepartures
from tftraining_operator.plan.avoided_nodes import HOLDS

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def jobs(*statuses: Any) -> Jobs:
    known = Jobs(None)  # type: ignore[arg-type]  # asks nobody
    for number, status in enumerate(statuses):
        meta = {"namespace": "a", "name": f"job-{number}", "uid": str(number), "resourceVersion": "1"}
        known.update({"metadata": meta, "spec": {}, "status": status}, False, lambda key: None)
    return known


def avoiding(since: datetime) -> dict[str, Any]:
    return {"phase": "Running", "avoidedNodes": [{"name": "n", "until": (since + HOLDS).isoformat()}]}


def test_one_in_each_interval() -> None:
    turns = NodeDepartures(jobs(), MINUTE)
    assert turns.take(NOW) is None
    assert turns.take(NOW) == turns.take(NOW + timedelta(seconds=59)) == NOW + MINUTE
    assert turns.take(NOW + MINUTE) is None
    assert turns.take(NOW + MINUTE) == NOW + 2 * MINUTE


def test_the_next_operator_finds_the_last_departure_in_the_jobs() -> None:
    last = NOW - timedelta(seconds=20)
    turns = NodeDepartures(jobs(None, "odd", avoiding(NOW - timedelta(hours=3)), avoiding(last)), MINUTE)
    assert turns.take(NOW) == last + MINUTE
    assert turns.take(last + MINUTE) is None


def test_a_clock_that_was_set_back_holds_nobody_for_longer_than_the_interval() -> None:
    turns = NodeDepartures(jobs(avoiding(NOW + timedelta(days=30))), MINUTE)
    assert turns.take(NOW) == NOW + MINUTE
    assert turns.take(NOW + MINUTE) is None
