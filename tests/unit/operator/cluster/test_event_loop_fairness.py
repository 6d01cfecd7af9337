"""Nothing that the operator does with a large job keeps everybody else waiting: others have their turn in between.

How long a turn takes is measured by benchmarks.event_loop; here it is counted how many there are.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, cast

import pytest

from tests.support.fake_api_server import Answer, Manifest, events, listing, pod, serving
from tests.support.simulated_cluster.builders import a_job
from tests.unit.operator.cluster.test_reconcile import KEY, job, reconciling
from tftraining_api.kube import api as api_module
from tftraining_api.kube.api import LARGE_ANSWER, Api
from tftraining_api.kube.pages import AT_ONCE, FIRST_PAGE, LEAST, MOST, PAGE_BYTES, next_limit
from tftraining_api.model.job import Job
from tftraining_api.model.names import Key
from tftraining_api.model.status import Status
from tftraining_operator.cluster.child_store import ChildStore
from tftraining_operator.cluster.children import CONCURRENCY, LEAST_CONCURRENCY, LONG_BUILD, Children
from tftraining_operator.cluster.node_store import NodeStore
from tftraining_operator.cluster.reflector import Reflector
from tftraining_operator.model.observed import Observed
from tftraining_operator.plan.step import PodDeletion, Step
from tftraining_operator.reconcile import LARGE

PODS = "/api/v1/pods"


class LongPollTurns:
    """Counts the turns of the event loop."""

    def __init__(self) -> None:
        self.count = 0

    async def run(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)


@asynccontextmanager
async def counting() -> AsyncIterator[LongPollTurns]:
    turns = LongPollTurns()
    task = asyncio.create_task(turns.run())
    await asyncio.sleep(0)
    try:
        yield turns
    finally:
        task.cancel()


async def test_others_have_their_turn_while_a_page_is_taken_in() -> None:
    seen: list[int] = []

    class Counted(ChildStore):
        def upsert(self, raw: Manifest) -> set[Key]:
            seen.append(turns.count)
            return super().upsert(raw)

    async with serving() as (fake, api), counting() as turns:
        fake.on(f"GET {PODS}", listing([pod(f"p-{number}", number + 1) for number in range(500)], 600))
        fake.on(f"WATCH {PODS}", events(hold=True))
        reflector = Reflector(api, "pods", "", Counted(), lambda key: None)
        task = asyncio.create_task(reflector.run())
        async with asyncio.timeout(20):
            await reflector.synced.wait()
        task.cancel()
    taken = seen[:500]
    assert max(taken.count(each) for each in set(taken)) <= AT_ONCE + 1


@pytest.mark.parametrize(
    ("objects", "size", "following"),
    [(100, 100 * 4_000, MOST), (100, 100 * 8_000, 262), (10, 10 * 130_000, 16), (1, 1_500_000, LEAST), (0, 0, LEAST)],
)
def test_the_size_of_a_page_follows_that_of_its_objects(objects: int, size: int, following: int) -> None:
    assert next_limit(objects, size) == following


async def test_the_next_page_is_asked_for_by_what_the_last_one_weighed() -> None:
    heavy = pod("a", 1) | {"spec": {"containers": [{"env": [{"name": "TF_CONFIG", "value": "x" * 100_000}]}]}}
    pages = (listing([heavy], 5, more="next"), listing([pod("b", 2)], 5))
    async with serving() as (fake, api):
        fake.on(f"GET {PODS}", *pages)
        raws, listed_at = await api.list(PODS, [])
        assert ([each["metadata"]["name"] for each in raws], listed_at) == (["a", "b"], 5)
        assert [query["limit"] for _, _, query in fake.asked] == [str(FIRST_PAGE), str(PAGE_BYTES // 100_200)]


class Counting:
    """In place of the API server: counts how many tasks there are at each request."""

    def __init__(self) -> None:
        self.most = self.requests = 0

    async def request(self, *_: Any) -> Manifest:
        """Answer one."""
        await asyncio.sleep(0)
        self.requests += 1
        self.most = max(self.most, len(asyncio.all_tasks()))
        return {}


# The passes that begin while others write have fewer parallel writes: 64, 32, 21, then 16 each.
@pytest.mark.parametrize(("passes", "writes"), [(1, CONCURRENCY), (3, 117), (16, 117 + 13 * LEAST_CONCURRENCY)])
async def test_hundreds_of_deletions_are_no_hundreds_of_tasks(passes: int, writes: int) -> None:
    counting = Counting()
    stand_in = cast(Api, counting)
    children = Children(stand_in, ChildStore(), ChildStore(), NodeStore(stand_in))
    deletions = tuple(PodDeletion(f"mnist-worker-{number}", f"uid-{number}", 1) for number in range(500))
    parsed, _ = a_job().parsed()
    step = Step(status=Status(), delete_pods=deletions)
    assert await asyncio.gather(*(children.change(parsed, step) for _ in range(passes))) == [[]] * passes
    assert counting.requests == passes * len(deletions)
    assert writes <= counting.most <= writes + passes + 1


@pytest.mark.parametrize("workers", [LARGE, 10 * LARGE])
async def test_others_have_their_turn_while_the_step_of_a_large_gang_is_decided(workers: int) -> None:
    def decide(job: Job, seen: Observed, now: datetime) -> Step:
        before, deadline = turns.count, time.monotonic() + 20
        while turns.count < before + 3:
            assert time.monotonic() < deadline, "nobody else has had a turn"
            time.sleep(0.001)
        return Step(status=job.status)

    async with reconciling(decide) as (_, jobs, reconcile), counting() as turns:
        raw = job(5)
        raw["spec"]["replicaSpecs"]["worker"]["replicas"] = workers
        jobs.update(raw, False, lambda key: None)
        await reconcile(KEY)


class Slow(Sequence[Manifest]):
    """Manifests that take longer to make than LONG_BUILD; `made` is in which turn of the event loop each was made."""

    def __init__(self, turns: LongPollTurns) -> None:
        self._turns = turns
        self.made: list[int] = []

    def __len__(self) -> int:
        return 2 * CONCURRENCY

    def __getitem__(self, number: Any) -> Any:
        self.made.append(self._turns.count)
        until = time.monotonic() + 1.5 * LONG_BUILD
        while time.monotonic() < until:
            pass
        return {"metadata": {"name": f"p-{number}"}, "spec": {"nodeName": ""}}


async def test_others_have_their_turn_while_large_pods_are_made() -> None:
    class Created:
        async def request(self, method: str, path: str, body: Any, query: Any) -> Manifest:
            await asyncio.sleep(0)
            return pod(body["metadata"]["name"], 1)

    stand_in = cast(Api, Created())
    children = Children(stand_in, ChildStore(), ChildStore(), NodeStore(stand_in))
    parsed, _ = a_job().parsed()
    async with counting() as turns:
        manifests = Slow(turns)
        await children.create(parsed, Step(status=Status(), create_pods=manifests))
    assert len(set(manifests.made)) == len(manifests), "one in each turn"


async def test_others_have_their_turn_while_large_answers_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = api_module._decoded
    seen: list[int] = []

    def decode(text: bytes, kind: Any) -> Any:
        seen.append(turns.count)
        return decoded(text, kind)

    monkeypatch.setattr(api_module, "_decoded", decode)
    large = pod("a", 1) | {"spec": {"nodeName": "x" * LARGE_ANSWER}}
    async with serving() as (fake, api), counting() as turns:
        fake.on(f"GET {PODS}", Answer(large))
        answers = await asyncio.gather(*(api.request("GET", PODS) for _ in range(16)))
    assert answers == [large] * 16 and len(set(seen)) == 16
