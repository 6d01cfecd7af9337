"""The reflector under faults: expired watches, broken answers, silence. It never ends, and never runs hot."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest
from aiohttp import ClientTimeout

from tests.support.fake_api_server import GONE, Answer, FakeServer, events, listing, pod, serving
from tests.support.virtual_time import run as in_virtual_time
from tftraining_api.kube.api import WATCH_SILENCE, Api, ApiError
from tftraining_api.model.names import Key
from tftraining_operator.cluster import reflector
from tftraining_operator.cluster.child_store import ChildStore
from tftraining_operator.cluster.reflector import LONGEST_PAUSE, Reflector

KEY, PODS = Key("ns", "job"), "/api/v1/pods"


class Running:
    """A reflector at work on a fake server."""

    def __init__(self, fake: FakeServer, reflector: Reflector[Key], store: ChildStore, changed: list[Key]) -> None:
        self.fake, self.reflector, self.store, self.changed = fake, reflector, store, changed

    async def until_names(self, *names: str) -> None:
        await self._until(lambda: {child.name for child in self.store.of(KEY)} == set(names))

    async def until_watched(self, times: int) -> None:
        await self._until(lambda: self.fake.count(f"WATCH {PODS}") >= times)

    async def _until(self, holds: Callable[[], bool]) -> None:
        deadline = asyncio.get_running_loop().time() + 20
        while not holds():
            assert asyncio.get_running_loop().time() < deadline, (self.store.of(KEY), self.fake.asked)
            await asyncio.sleep(0.01)


@asynccontextmanager
async def reflecting(**answers: tuple[Answer, ...]) -> AsyncIterator[Running]:
    async with serving() as (fake, api):
        for method, those in answers.items():
            fake.on(f"{method} {PODS}", *those)
        store = ChildStore()
        changed: list[Key] = []
        reflector = Reflector(api, "pods", "", store, changed.append)
        task = asyncio.create_task(reflector.run())
        try:
            yield Running(fake, reflector, store, changed)
            assert not task.done(), "a reflector never ends by itself"
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_lists_in_pages_then_watches_from_there() -> None:
    pages = (listing([pod("a", 1)], 5, more="next"), listing([pod("b", 2)], 5))
    news = events(("ADDED", pod("c", 6)), ("DELETED", pod("a", 7)), hold=True)
    async with reflecting(GET=pages, WATCH=(news,)) as run:
        await run.until_names("b", "c")
        assert run.reflector.synced.is_set()
        assert [query.get("continue") for _, _, query in run.fake.asked] == [None, "next", None]
        assert run.fake.asked[-1][2]["resourceVersion"] == "5"
        assert all(query["labelSelector"] == "tftraining.dev/job-name" for _, _, query in run.fake.asked)


async def test_what_a_page_brings_is_taken_in_before_the_next_page_comes() -> None:
    pages = (listing([pod("a", 1)], 5, more="next"), Answer(b'{"metadata": {', hold=True))
    async with reflecting(GET=pages) as run:
        await run.until_names("a")
        assert not run.reflector.synced.is_set(), "who is missing is known at the end"


async def test_watches_that_end_at_once_without_an_event_are_followed_by_a_list() -> None:
    lists = (listing([pod("a", 1)], 5), listing([pod("a", 1), pod("b", 8)], 20))
    async with reflecting(GET=lists, WATCH=(events(), events(hold=True))) as run:
        await run.until_names("a", "b")


async def test_after_a_410_what_vanished_in_the_gap_is_missed() -> None:
    lists = (listing([pod("a", 1), pod("b", 2)], 5), listing([pod("b", 2)], 20))
    async with reflecting(GET=lists, WATCH=(events(GONE), events(hold=True))) as run:
        await run.until_names("b")
        assert run.changed.count(KEY) >= 2


async def test_a_watch_that_breaks_goes_on_from_the_last_bookmark() -> None:
    bookmark = ("BOOKMARK", {"metadata": {"resourceVersion": "9"}})
    watches = (events(bookmark), events(("ADDED", pod("a", 10)), hold=True))
    async with reflecting(GET=(listing([], 5),), WATCH=watches) as run:
        await run.until_names("a")
        assert [query["resourceVersion"] for method, _, query in run.fake.asked if method == "WATCH"] == ["5", "9"]
        assert run.fake.count(f"GET {PODS}") == 1


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> float:
    """The first pause of a reflector that need not be waited for so long, in seconds."""
    monkeypatch.setattr(reflector, "FIRST_PAUSE", 0.05)
    return reflector.FIRST_PAUSE


@pytest.mark.parametrize(
    "broken",
    [Answer(b"<p>proxy</p>\n"), Answer(b"[1]\n"), Answer({"message": "no"}, 500), Answer(b"no", 403), events(GONE)],
)
async def test_a_server_that_talks_nonsense_is_asked_again_ever_more_slowly(quick: float, broken: Answer) -> None:
    async with reflecting(GET=(listing([pod("a", 1)], 5),), WATCH=(broken,)) as run:
        began = time.monotonic()
        await run.until_watched(2)
        await asyncio.sleep(quick)
        # Pauses lie between them that grow.
        assert run.fake.count(f"WATCH {PODS}") <= 2 + (time.monotonic() - began) / quick


async def test_a_watch_that_the_server_ends_at_once_is_no_hot_loop(quick: float) -> None:
    async with reflecting(GET=(listing([], 5),), WATCH=(events(),)) as run:
        began = time.monotonic()
        await run.until_watched(2)
        await asyncio.sleep(quick)
        # Pauses lie between them that grow.
        assert run.fake.count(f"WATCH {PODS}") <= 2 + (time.monotonic() - began) / quick


async def test_a_long_line_is_read_whole() -> None:
    long = pod("a", 6)
    long["spec"] = {"text": "x" * 3_000_000}
    async with reflecting(GET=(listing([], 5),), WATCH=(events(("ADDED", long), hold=True),)) as run:
        await run.until_names("a")


async def test_a_watch_that_is_silent_is_broken_off_and_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tftraining_api.kube.api.WATCH_TIMEOUT", ClientTimeout(sock_read=0.2))
    async with reflecting(GET=(listing([], 5),), WATCH=(events(hold=True),)) as run:
        await run.until_watched(2)


async def test_it_is_dead_when_nothing_was_heard_for_too_long() -> None:
    async with reflecting(GET=(listing([], 5),), WATCH=(events(hold=True),)) as run:
        await asyncio.wait_for(run.reflector.synced.wait(), 5)
        assert run.reflector.alive
        heard = run.reflector.clock()
        run.reflector.clock = lambda: heard + WATCH_SILENCE + LONGEST_PAUSE + 1
        assert not run.reflector.alive


async def test_a_watch_that_the_server_opens_again_is_an_answer(quick: float) -> None:
    async with reflecting(GET=(listing([], 5),), WATCH=(events(), events(hold=True))) as run:
        await run.until_watched(1)
        began = run.reflector.clock()
        run.reflector.clock = lambda: began + WATCH_SILENCE
        await run.until_watched(2)
        await asyncio.sleep(quick)
        run.reflector.clock = lambda: began + WATCH_SILENCE + LONGEST_PAUSE + 1
        assert run.reflector.alive


async def test_the_silence_before_it_began_does_not_count() -> None:
    async with serving() as (fake, api):
        fake.on(f"GET {PODS}", Answer({"message": "busy"}, 503))
        late: Reflector[Key] = Reflector(api, "pods", "", ChildStore(), lambda key: None)
        made = late.clock()
        late.clock = lambda: made + 1000
        assert not late.alive
        task = asyncio.create_task(late.run())
        await asyncio.sleep(0.05)
        task.cancel()
        assert late.alive


class RefusingApi:
    """Refuses the list until a time of the event loop; then the watch is silent."""

    def __init__(self, until: float) -> None:
        self.until, self.asked = until, 0

    async def list(self, *_: object) -> tuple[list[object], int]:
        self.asked += 1
        if asyncio.get_running_loop().time() < self.until:
            raise ApiError(403, "Forbidden", "no Role")
        return [], 5

    async def watch(self, *_: object, **__: object) -> AsyncIterator[object]:
        await asyncio.Event().wait()
        yield None


@pytest.mark.parametrize("hours", [0.001, 1, 24])
def test_a_permission_that_comes_is_used_within_a_minute(hours: float, caplog: pytest.LogCaptureFixture) -> None:
    api, late = RefusingApi(hours * 3600), 0.0

    async def wait_for_it() -> Reflector[Key]:
        nonlocal late
        loop = asyncio.get_running_loop()
        waiting: Reflector[Key] = Reflector(cast(Api, api), "pods", "a", ChildStore(), lambda key: None)
        waiting.clock = loop.time
        task = asyncio.create_task(waiting.run())
        await waiting.tried.wait()
        assert waiting.refused and not waiting.synced.is_set()
        await asyncio.sleep(hours * 3600 - 1)
        assert waiting.alive, "it has not begun"
        await waiting.synced.wait()
        late = loop.time() - hours * 3600
        task.cancel()
        return waiting

    assert not in_virtual_time(wait_for_it()).refused
    assert late <= 60 and api.asked <= hours * 3600 / 40 + 12
    assert caplog.text.count("this account may not list and watch pods in a") == 1
