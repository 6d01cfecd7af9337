"""What the operator tells Prometheus of restarts."""

from collections import Counter
from datetime import UTC, datetime

import pytest

from tftraining_api.model.status import LastRestart, Restarts, Status
from tftraining_operator.cluster.metrics import Metrics


def restarted(metrics: Metrics, reason: str) -> None:
    """Tell the metrics of one restart in place."""
    last = LastRestart(time=datetime(2026, 3, 1, tzinfo=UTC), reason=reason)
    metrics.observe(Status(), Status(restarts=Restarts(in_place=1), last_restart=last))


@pytest.mark.parametrize(
    ("reason", "charged"),
    [("Killed", "true"), ("MemberLost", "false"), ("Resized", "false"), ("Grown", "false"), ("PodDeleted", "false")],
)
def test_a_restart_in_place_says_whether_it_was_charged(reason: str, charged: str) -> None:
    metrics = Metrics(list, Counter())
    restarted(metrics, reason)
    labels = {"reason": reason, "charged": charged, "mode": "InPlace"}
    assert metrics.registry.get_sample_value("tftraining_restarts_total", labels) == 1


def test_reasons_that_pods_make_up_are_one_time_series() -> None:
    metrics = Metrics(list, Counter())
    for number in range(100):
        restarted(metrics, f"MadeUp{number}")
    labels = {"reason": "Other", "charged": "false", "mode": "InPlace"}
    assert metrics.registry.get_sample_value("tftraining_restarts_total", labels) == 100


@pytest.mark.parametrize("reason", ["OOMKilled", "Keras3Fit", "NodeLost", "KeyLost", "SpecChanged", "PodDeleted"])
def test_reasons_that_the_operator_knows_are_told_apart(reason: str) -> None:
    metrics = Metrics(list, Counter())
    restarted(metrics, reason)
    names = {
        sample.labels["reason"]
        for metric in metrics.registry.collect()
        for sample in metric.samples
        if "reason" in sample.labels
    }
    assert names == {reason}


@pytest.mark.parametrize("leads", [True, False])
def test_only_the_leader_counts_the_jobs(leads: bool) -> None:
    metrics = Metrics(lambda: [{"status": {"phase": "Running"}}], Counter(GET=1), lambda: leads)
    assert metrics.registry.get_sample_value("tftraining_leader") == leads
    running = metrics.registry.get_sample_value("tftraining_jobs", {"phase": "Running"})
    assert running == (1 if leads else None)
    assert metrics.registry.get_sample_value("tftraining_api_requests_total", {"method": "GET"}) == 1
