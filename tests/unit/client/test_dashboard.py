"""The dashboard: what it shows of the objects of a cluster, and which requests it answers."""

import asyncio
from typing import Any, cast

import pytest
from yarl import URL

from tests.support.client.cluster_objects import a_job, a_pod, an_event
from tftraining_client.cluster.snapshot import Snapshot, sorted_pods
from tftraining_client.commands.dashboard.feeds import Feeds
from tftraining_client.commands.dashboard.server import refused, serving
from tftraining_client.commands.dashboard.view import View, job_row, job_view

HISTORY = {
    "startTime": "2026-01-02T03:30:00Z",
    "steps": [70, 140, 210],
    "epochs": [1, 2, 3],
    "seconds": [0, 300, 900],
    "metrics": {"loss": [0.9, 0.5, 0.3], "val_loss": [None, None, 0.4]},
    "restarts": [
        {"time": "2026-01-02T03:36:00Z", "step": 150, "reason": "Killed"},
        {"time": "2026-01-02T03:39:58.5Z", "step": 180, "reason": "Error"},
    ],
}


def shown(**status: Any) -> View:
    return job_view(Snapshot(a_job(**status)))


def test_a_row_has_what_the_list_shows() -> None:
    row = job_row(a_job(message="two\nlines"))
    assert row == {
        "key": "team/digits",
        "namespace": "team",
        "name": "digits",
        "uid": "u",
        "phase": "Running",
        "deleting": False,
        "ready": "2/2",
        "restarts": 1,
        "progress": "epoch 3/10",
        "fraction": 0.3,
        "created": "2026-01-02T03:00:00+00:00",
        "ended": "",
        "reason": "Training",
        "message": "two lines",
    }


def test_the_progress_is_whole_after_success_and_unknown_without_a_number_of_epochs() -> None:
    assert job_row(a_job(phase="Succeeded"))["fraction"] == 1.0
    assert job_row(a_job(progress={"step": 3}))["fraction"] is None
    assert job_row(a_job(progress=None))["fraction"] is None


def test_a_job_has_pods_by_role_and_the_newest_event_first() -> None:
    pods = sorted_pods([a_pod(0, role="ps"), a_pod(1, "ImagePullBackOff"), a_pod(0)])
    events = (an_event("2026-01-02T03:40:00Z", "Error", "boom", "Warning"), an_event("2026-01-02T03:41:00Z", "T", "t"))
    view = job_view(Snapshot(a_job(), pods, events, ("events",)))
    assert [(role["role"], role["ready"], role["desired"]) for role in view["roles"]] == [
        ("worker", 1, 2),
        ("ps", 1, 1),
    ]
    assert [(pod["replica"], pod["reason"]) for pod in view["roles"][0]["pods"]] == [
        ("worker-0", ""),
        ("worker-1", "ImagePullBackOff"),
    ]
    assert [(event["reason"], event["warning"]) for event in view["events"]] == [("T", False), ("Error", True)]
    assert view["hidden"] == ["events"]


def test_a_failure_has_the_culprit_the_log_and_advice() -> None:
    failure = {"pod": "digits-worker-1", "exitCode": 1, "exception": "ValueError: boom", "logTail": "boom\n"}
    view = shown(phase="Failed", reason="SameFailure", failure=failure)
    assert view["failure"] == "last failure: digits-worker-1: ValueError: boom, exit code 1"
    assert view["logTail"] == "boom\n" and view["advice"]


def test_curves_are_by_step_with_the_restarts_at_their_steps() -> None:
    loss, other = shown(history=HISTORY)["curves"]
    assert (loss["name"], loss["unit"], loss["points"]) == ("loss", "step", [[70.0, 0.9], [140.0, 0.5], [210.0, 0.3]])
    assert loss["restarts"] == [150.0, 180.0]
    assert other["points"] == [[210.0, 0.4]]


@pytest.mark.parametrize(
    ("without", "unit", "places", "restarts"),
    [
        ({"steps": [None] * 3}, "epoch", [1.0, 2.0, 3.0], [2.0, 2.0]),
        ({"steps": [None] * 3, "epochs": [None] * 3}, "seconds", [0.0, 300.0, 900.0], [360.0, 598.5]),
    ],
)
def test_without_steps_curves_are_by_epoch_or_time_as_in_tftj_plot(
    without: dict[str, object], unit: str, places: list[float], restarts: list[float]
) -> None:
    loss = shown(history={**HISTORY, **without})["curves"][0]
    assert (loss["unit"], [x for x, _ in loss["points"]], loss["restarts"]) == (unit, places, restarts)


def test_the_time_line_has_each_restart_once_and_the_last_one_with_its_price() -> None:
    assert [each["text"] for each in shown(history=HISTORY)["timeline"]] == [
        "Killed at step 150",
        "digits-worker-1 ValueError: boom, resumed from epoch 2, 3.1 s without training, 42 steps lost",
    ]
    assert len(shown()["timeline"]) == 1
    assert shown(lastRestart=None)["timeline"] == [] and shown()["curves"] == []


def test_a_restart_without_a_time_is_not_on_the_time_line() -> None:
    for time in ("", "soon"):
        history = {**HISTORY, "restarts": [{"time": time, "step": 150, "reason": "Killed"}]}
        view = shown(history=history, lastRestart=None)
        assert view["timeline"] == [] and view["begin"].startswith("2026-01-02T03:00:00")


CREATED, STARTED = "2026-01-02T03:00:00+00:00", "2026-01-02T03:50:00+00:00"


def suspended(status: str, reason: str) -> dict[str, Any]:
    since = "2026-01-02T03:50:00Z"
    return {"type": "Suspended", "status": status, "reason": reason, "message": "", "lastTransitionTime": since}


@pytest.mark.parametrize(
    ("conditions", "history", "begin", "texts"),
    [
        ([], None, STARTED, []),
        # An earlier job of the same storage has begun before.
        ([], {**HISTORY, "startTime": "2026-01-02T02:00:00Z", "restarts": []}, "2026-01-02T02:00:00.000Z", []),
        ([suspended("False", "Resumed")], None, CREATED, [(False, "resumed after a suspension")]),
        ([suspended("True", "Suspended")], None, CREATED, [(False, "suspended")]),
        # It has ended while it was suspended.
        ([suspended("False", "DeadlineExceeded")], None, CREATED, []),
    ],
)
def test_the_time_line_begins_before_a_suspension_and_shows_it(
    conditions: list[Any], history: Any, begin: str, texts: list[tuple[bool, str]]
) -> None:
    view = shown(startTime="2026-01-02T03:50:00Z", lastRestart=None, conditions=conditions, history=history)
    assert view["begin"] == begin and [(each["restart"], each["text"]) for each in view["timeline"]] == texts


def test_the_time_line_of_a_resumed_job_has_the_restarts_before_in_their_order() -> None:
    view = shown(startTime="2026-01-02T03:50:00Z", conditions=[suspended("False", "Resumed")], history=HISTORY)
    assert view["begin"] == CREATED
    assert [each["restart"] for each in view["timeline"]] == [True, True, False]


HOST = {"Host": "127.0.0.1:8001"}


@pytest.mark.parametrize("host", ["127.0.0.1:8001", "localhost:9000", "[::1]:80", "localhost"])
def test_the_page_is_served_on_this_machine(host: str) -> None:
    assert refused("GET", {"Host": host}) == ""
    assert refused("POST", {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}) == ""


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("GET", {}),
        ("GET", {"Host": "rebound.example:8001"}),
        ("GET", {"Host": "127.0.0.1.rebound.example"}),
        ("GET", {"Host": "localhost.example"}),
        ("GET", {"Host": "["}),
        ("GET", {**HOST, "Origin": "http://127.0.0.1:9999"}),
        ("GET", {**HOST, "Origin": "null"}),
        ("GET", {**HOST, "Sec-Fetch-Site": "cross-site"}),
        ("GET", {**HOST, "Sec-Fetch-Site": "same-site"}),
        ("POST", HOST),
    ],
)
def test_another_site_gets_nothing(method: str, headers: dict[str, str]) -> None:
    assert refused(method, headers)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("OPTIONS", "*", 403),
        ("OPTIONS", "/%ff/", 403),
        ("GET", "//", 403),
        ("OPTIONS", "/TOKEN/", 405),
        ("HEAD", "/TOKEN/", 200),
        # Its answer would have no end.
        ("HEAD", "/TOKEN/api/jobs", 405),
        ("HEAD", "/TOKEN/api/jobs/team/digits", 405),
        ("HEAD", "/TOKEN/api/jobs/team/digits/logs", 405),
    ],
)
async def test_an_unusual_request_is_refused(method: str, path: str, status: int) -> None:
    async with serving(cast(Feeds, None), 0) as address:
        url = URL(address)
        assert await raw_status(url, method, path.replace("TOKEN", url.parts[1])) == status


async def raw_status(url: URL, method: str, path: str) -> int:
    """The status of the answer to a request with that target, which no client would send."""
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: {url.authority}\r\nOrigin: {url.origin()}\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.readline(), 10)
    writer.close()
    return int(answer.split()[1])
