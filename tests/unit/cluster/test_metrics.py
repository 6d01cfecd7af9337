"""What the operator tells Prometheus of restarts."""

from collections import Counter
from datetime import UTC, datetime

import pytest

from tftraining_operator.cluster.metrics import Metrics
from tftraining_operator.model.status import LastRestart, Restarts, Status


@pytest.mark.parametrize(
    ("reason", "charged"), [("Killed", "true"), ("MemberLost", "false"), ("Resized", "false"), ("Grown", "false")]
)
def test_a_restart_in_place_says_whether_it_was_charged(reason: str, charged: str) -> None:
    metrics = Metrics(list, Counter())
    after = Status(
        restarts=Restarts(in_place=1), last_restart=LastRestart(time=datetime(2026, 3, 1, tzinfo=UTC), reason=reason)
    )
    metrics.observe(Status(), after)
    labels = {"reason": reason, "charged": charged, "mode": "InPlace"}
    assert metrics.registry.get_sample_value("tftraining_restarts_total", labels) == 1
