"""A member that the launchers have found to be slow: the job trains on, and says so."""

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.simulated_cluster.builders import a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tftraining.launch.failure_and_restart_messages import SLOW_CAUSES
from tftraining.launch.gang import slow_member as launchers
from tftraining_api.model.status import Condition, Status
from tftraining_operator.cluster.metrics import Counted, Metrics
from tftraining_operator.model.launcher_report import parse_report

SLOW = {"member": "worker-1", "factor": 1.52, "cause": "Computes"}
NONE = {"member": None, "factor": 1.0, "cause": ""}


def training(found: dict[str, Any] | None) -> SimulatedCluster:
    cluster = SimulatedCluster(a_launched_job()).run()
    return report(cluster, found)


def report(cluster: SimulatedCluster, found: dict[str, Any] | None) -> SimulatedCluster:
    cluster.launchers.slow = found
    return cluster.wait(20).run()


def condition(cluster: SimulatedCluster) -> tuple[str, str, str] | None:
    found = cluster.status.condition("SlowMember")
    return None if found is None else (found.status, found.reason, found.message)


def told(cluster: SimulatedCluster) -> list[tuple[str, str]]:
    return [(each.type, each.message) for each in cluster.events if each.reason == "SlowMember"]


def words(cluster: SimulatedCluster, cause: str = ": it computes slowly") -> str:
    node = cluster.api.pods[cluster.name("worker-1")]["spec"]["nodeName"]
    return (
        f"the others wait for worker-1 on the node {node}, which needs 1.52 times the median of the members for a step"
        f"{cause}"
    )


def test_the_causes_are_those_of_the_launchers() -> None:
    assert tuple(SLOW_CAUSES) == (launchers.COMPUTES, launchers.WAITS_FOR_INPUT)


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        ("Computes", ": it computes slowly"),
        ("WaitsForInput", ": it waits for its input"),
        ("OfALaterVersion", ""),
    ],
)
def test_it_is_a_condition_and_one_event(cause: str, text: str) -> None:
    cluster = training({**SLOW, "cause": cause})
    assert condition(cluster) == ("True", "SlowMember", words(cluster, text))
    assert told(cluster) == [("Warning", words(cluster, text))]
    assert not cluster.step()
    assert (cluster.status.phase, cluster.status.restarts.counted) == ("Running", 0), "nothing is restarted"
    cluster.forget()
    cluster.wait(60).run()
    assert len(told(cluster)) == 1


def test_it_is_over_when_the_launchers_know_that_no_member_is_slow() -> None:
    cluster = training(SLOW)
    report(cluster, None)
    assert condition(cluster) == ("True", "SlowMember", words(cluster)), "a new launcher knows nothing yet"
    report(cluster, NONE)
    assert condition(cluster) == ("False", "Training", "no member is slow")
    assert not cluster.step()
    report(cluster, SLOW)
    assert len(told(cluster)) == 2


@pytest.mark.parametrize("found", [None, NONE, {**SLOW, "member": "worker-7"}, {**SLOW, "member": "evaluator-0"}])
def test_a_gang_without_one_says_nothing(found: dict[str, Any] | None) -> None:
    cluster = training(found)
    assert condition(cluster) is None
    assert told(cluster) == []


@pytest.mark.parametrize("odd", [{"member": "me"}, {"factor": -1}, {"factor": 1e300}, {"cause": 7}, [], 1])
def test_an_invalid_one_makes_the_report_invalid(odd: Any) -> None:
    text = json.dumps({"phase": "Training", "slowMember": odd})
    with pytest.raises(ValueError, match="slowMember"):
        parse_report(text.encode())


def test_it_is_counted_each_time_a_member_begins_to_be_slow() -> None:
    metrics, time = Metrics(list, Counter()), datetime(2026, 3, 1, tzinfo=UTC)
    found, over = (Status(conditions=(Condition("SlowMember", each, time, "x"),)) for each in ("True", "False"))
    for old, new in ((Status(), found), (found, found), (found, over), (over, found)):
        metrics.observe(old, new, Counted.since(time), time)
    assert metrics.registry.get_sample_value("tftraining_slow_members_total") == 2
