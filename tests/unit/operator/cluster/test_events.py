"""Kubernetes Events that are not sent are counted with the cause, and delay nothing."""

import asyncio
from collections import Counter

import pytest

from tests.support.fake_api_server import Answer, FakeServer, serving
from tests.support.simulated_cluster.builders import a_job
from tftraining_api.kube.api import Api
from tftraining_operator.cluster.events import Events
from tftraining_operator.cluster.metrics import Metrics
from tftraining_operator.plan.step import Event

WAITING = 1000  # as docs/status.md says
PARSED, _ = a_job().parsed()
PATH = f"/apis/events.k8s.io/v1/namespaces/{PARSED.key.namespace}/events"


def dropped(metrics: Metrics, cause: str) -> float:
    return metrics.registry.get_sample_value("tftraining_dropped_events_total", {"cause": cause}) or 0


async def sent(fake: FakeServer, api: Api, metrics: Metrics, count: int) -> None:
    """Publish so many events, and send what is queued."""
    events = Events(api, "operator", metrics.internals.dropped)
    for _ in range(count):
        events.publish(PARSED, Event("Normal", "Restarted", "again"))
    task = asyncio.create_task(events.run())
    async with asyncio.timeout(120):  # a busy machine took more than 20 s
        while fake.count(f"POST {PATH}") < min(count, WAITING):  # noqa: ASYNC110  # the server is not told
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    assert not task.done(), "it goes on after each fault"
    task.cancel()


async def test_what_finds_no_room_in_the_queue_is_dropped_and_the_rest_is_sent() -> None:
    metrics = Metrics(list, Counter())
    async with serving() as (fake, api):
        fake.on(f"POST {PATH}", Answer({}, 201))
        await sent(fake, api, metrics, WAITING + 3)
        assert fake.count(f"POST {PATH}") == WAITING
    assert (dropped(metrics, "QueueFull"), dropped(metrics, "NotAccepted")) == (3, 0)


@pytest.mark.parametrize("status", [403, 404, 500])
async def test_what_the_api_server_refuses_is_dropped_and_the_next_one_is_sent(status: int) -> None:
    metrics = Metrics(list, Counter())
    async with serving() as (fake, api):
        fake.on(f"POST {PATH}", Answer({"message": "no"}, status), Answer({}, 201))
        await sent(fake, api, metrics, 2)
    assert (dropped(metrics, "QueueFull"), dropped(metrics, "NotAccepted")) == (0, 1)
