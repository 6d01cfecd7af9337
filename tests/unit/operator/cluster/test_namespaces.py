"""When a namespace is served: one that the API server refuses waits for its permission, and holds up no other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support.fake_api_server import Answer, FakeServer, events, listing, serving
from tftraining_operator.cluster.child_store import ChildStore
from tftraining_operator.cluster.children import Children
from tftraining_operator.cluster.namespaces import Namespace
from tftraining_operator.cluster.node_store import NodeStore

FORBIDDEN = Answer({"reason": "Forbidden", "message": "no Role"}, 403)
ABSENT = Answer({"reason": "NotFound", "message": "no such thing"}, 404)
BUSY = Answer({"message": "busy"}, 503)
FINE = listing([], 5)
CORE, JOBS = "/api/v1/namespaces/a/{}", "/apis/tftraining.dev/v1/namespaces/a/tftrainingjobs"


class Running:
    """The watches of the namespace `a`, or of all namespaces, on a fake server, and which namespaces are served."""

    def __init__(self, fake: FakeServer, namespace: Namespace, served: list[str]) -> None:
        self.fake, self.namespace, self.served = fake, namespace, served

    async def is_settled(self, seconds: float = 20) -> bool:
        try:
            await asyncio.wait_for(self.namespace.settled(), seconds)
        except TimeoutError:
            return False
        return True


@asynccontextmanager
async def watching(pods: Answer, services: Answer, jobs: Answer, name: str = "a") -> AsyncIterator[Running]:
    async with serving() as (fake, api):
        core = CORE if name else "/api/v1/{}"
        for kind, answer in (("pods", pods), ("services", services), ("events", FINE)):
            fake.on(f"GET {core.format(kind)}", answer)
            fake.on(f"WATCH {core.format(kind)}", events(hold=True))
        fake.on(f"GET {JOBS}", jobs)
        served: list[str] = []

        async def serve(name: str) -> None:
            served.append(name)

        children = Children(api, ChildStore(), ChildStore(), NodeStore(api))
        namespace = Namespace(api, name, children, lambda key: None, serve)
        tasks = [asyncio.create_task(each) for each in namespace.parts().values()]
        try:
            yield Running(fake, namespace, served)
            assert not any(task.done() for task in tasks), "a part that ends counts as a fault"
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("answers", "refused"),
    [
        ((FORBIDDEN, FINE, FINE), ["pods in a"]),
        ((FINE, FORBIDDEN, FINE), ["services in a"]),
        ((FINE, FINE, FORBIDDEN), ["jobs in a"]),
        ((FINE, FINE, ABSENT), ["jobs in a"]),
    ],
)
async def test_a_namespace_is_served_only_once_all_of_it_is_allowed(
    answers: tuple[Answer, Answer, Answer], refused: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async with watching(*answers) as run:
        assert await run.is_settled() and run.namespace.refused == refused and run.served == []
        assert f"this account may not list and watch {refused[0]}; it is tried again" in caplog.text
        for path in (CORE.format("pods"), CORE.format("services"), JOBS):
            run.fake.on(f"GET {path}", FINE)
        deadline = asyncio.get_running_loop().time() + 20
        while not run.fake.count(f"WATCH {CORE.format('events')}"):
            assert asyncio.get_running_loop().time() < deadline, run.fake.asked
            await asyncio.sleep(0.01)
        assert run.served == ["a"] and run.namespace.refused == []


@pytest.mark.parametrize("answers", [(BUSY, FINE, FINE), (FINE, BUSY, FINE), (FINE, FINE, BUSY)])
async def test_an_error_that_passes_is_waited_for(answers: tuple[Answer, Answer, Answer]) -> None:
    async with watching(*answers) as run:
        assert not await run.is_settled(seconds=0.3) and run.served == [] and run.namespace.refused == []


async def test_of_all_namespaces_the_jobs_are_watched_by_kopf_from_the_start() -> None:
    async with watching(FINE, FINE, BUSY, name="") as run:
        assert await run.is_settled() and run.served == [""]
        assert run.fake.count(f"GET {JOBS}") == 0


async def test_no_event_is_watched_before_the_pods_are_there() -> None:
    async with watching(FORBIDDEN, FINE, FINE) as run:
        assert await run.is_settled()
        assert run.fake.count(f"WATCH {CORE.format('events')}") == 0
