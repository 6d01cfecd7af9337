"""What the operator tells Prometheus of restarts."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tftraining_api.model.goodput import WORDS
from tftraining_api.model.status import LastRestart, Restarts, Status
from tftraining_operator.cluster.metrics import MOST_RESTARTS, STEPS_PER_SECOND, Counted, Metrics

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def restarted(metrics: Metrics, reason: str) -> None:
    """Tell the metrics of one restart in place."""
    last = LastRestart(time=NOW, reason=reason)
    metrics.observe(Status(), Status(restarts=Restarts(in_place=1), last_restart=last), Counted.since(NOW), NOW)


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


def test_what_a_launcher_reports_is_counted_as_far_as_it_can_have_happened() -> None:
    """Each value is at the bound of the report; the metrics are of all jobs of the cluster."""
    metrics, counted = Metrics(list, Counter()), Counted.since(NOW)
    old, ten = Status(), timedelta(seconds=10)
    for number in (1, 2):
        last = LastRestart(
            time=NOW + number * ten, reason="Killed", resumed_from="Memory", lost_steps=2**53, lost_seconds=1e9,
            down_seconds=1e9,
        )  # fmt: skip
        new = Status(restarts=Restarts(in_place=number * 10**6 // 2), last_restart=last)
        metrics.observe(old, new, counted, NOW + number * ten)
        old = new
    values = {each.name: each.value for family in metrics.registry.collect() for each in family.samples if each.value}
    assert values["tftraining_restarts_total"] == 2 * 11
    assert values["tftraining_recovery_seconds_sum"] == values["tftraining_job_lost_seconds_total"] == 20
    assert values["tftraining_job_lost_steps_total"] == 20 * STEPS_PER_SECOND

    new = Status(restarts=Restarts(in_place=10**6), last_restart=last)
    metrics.observe(Status(), new, Counted.since(NOW), NOW + timedelta(days=30))
    total = {each.name: each.value for family in metrics.registry.collect() for each in family.samples if each.value}
    assert total["tftraining_restarts_total"] - 2 * 11 == MOST_RESTARTS


def test_the_time_of_all_jobs_is_added_up_and_goes_on_between_the_writes() -> None:
    ago = (datetime.now(UTC) - timedelta(seconds=100)).isoformat()
    jobs: list[dict[str, Any]] = [
        {},
        {"status": {"goodput": {"seconds": {"trained": 50.0, "start": 7}}}},  # has ended
        {"status": {"goodput": {"updatedTime": ago, "cause": "queue", "seconds": {"start": 3.0}}}},
        {"status": {"goodput": {"updatedTime": "0000-01-01T00:00:00+99:00", "seconds": {"start": "nonsense"}}}},
        {"status": {"goodput": "nonsense"}},
    ]
    families = Metrics(lambda: jobs, Counter()).registry.collect()
    samples = [each for family in families for each in family.samples if each.name == "tftraining_goodput_seconds"]
    values = {each.labels["cause"]: each.value for each in samples}
    assert values.pop("queue") == pytest.approx(100, abs=30)
    assert values == dict.fromkeys(values, 0) | {"trained": 50, "start": 10} and len(values) == len(WORDS) - 1
    standby = Metrics(lambda: jobs, Counter(), leading=lambda: False).registry.collect()
    assert not [each for each in standby if each.name == "tftraining_goodput_seconds"]
