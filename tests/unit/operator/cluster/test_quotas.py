"""Who is woken by a change of a quota, and what the watch of quotas costs. Real quotas: tests/control_plane."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from tests.support.fake_api_server import Answer, FakeServer, events, listing, serving
from tftraining_api.kube.api import Api, ApiError
from tftraining_api.model.names import Key
from tftraining_operator.cluster.quotas import (
    KIND,
    MOST_WATCHES,
    MOST_WOKEN,
    Quotas,
    fits,
    parse_exceeded_quota,
    room_of,
)
from tftraining_operator.model.observed import Refusal
from tftraining_operator.plan.refused_writes import judge

NOW = datetime(2026, 3, 1, tzinfo=UTC)
EVERYWHERE = f"/api/v1/{KIND}"


def refused(asked: str = "pods=1", quota: str = "q") -> Refusal:
    words = (
        f'pods "job-worker-1" is forbidden: exceeded quota: {quota}, requested: {asked}, used: pods=9, limited: pods=9'
    )
    return judge("pod/job-worker-1", 403, words, 1, NOW)


def quota(version: int, hard: int, used: int, name: str = "q", namespace: str = "ns") -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace, "uid": name, "resourceVersion": str(version)}
    return {"metadata": meta, "status": {"hard": {"pods": str(hard)}, "used": {"pods": str(used)}}}


def keys(count: int, namespace: str = "ns") -> list[Key]:
    return [Key(namespace, f"job-{number}") for number in range(count)]


class Running:
    """The quotas as a fake server tells of them, and who was woken."""

    def __init__(self, fake: FakeServer, quotas: Quotas, woken: list[Key]) -> None:
        self.fake, self.quotas, self.woken = fake, quotas, woken

    async def until(self, holds: Callable[[], bool]) -> None:
        deadline = asyncio.get_running_loop().time() + 20
        while not holds():
            assert asyncio.get_running_loop().time() < deadline, (self.woken, self.fake.asked)
            await asyncio.sleep(0.01)


@asynccontextmanager
async def watching(everywhere: bool = True) -> AsyncIterator[Running]:
    async with serving() as (fake, api):
        woken: list[Key] = []
        quotas = Quotas(api, woken.append, everywhere)
        try:
            yield Running(fake, quotas, woken)
        finally:
            await quotas.close()


@pytest.mark.parametrize(
    ("asked", "hard", "used", "room"),
    [
        ("pods=1", {"pods": "10"}, {"pods": "9"}, True),
        ("pods=1", {"pods": "9"}, {"pods": "9"}, False),
        ("pods=1", {"pods": "9"}, {"pods": "10"}, False),
        ("limits.memory=2Gi", {"limits.memory": "4096Mi"}, {"limits.memory": "2048Mi"}, True),
        ("limits.memory=2Gi", {"limits.memory": "4G"}, {"limits.memory": "2Gi"}, False),
        ("cpu=250m,pods=1", {"cpu": "1", "pods": "9"}, {"cpu": "750m", "pods": "8"}, True),
        ("cpu=251m,pods=1", {"cpu": "1", "pods": "9"}, {"cpu": "750m", "pods": "8"}, False),
        ("requests.nvidia.com/gpu=1", {"requests.nvidia.com/gpu": "8"}, {}, True),
        ("pods=1", {}, {}, True),
    ],
)
def test_room_is_what_is_left_of_what_was_refused(
    asked: str, hard: dict[str, str], used: dict[str, str], room: bool
) -> None:
    ask = parse_exceeded_quota(refused(asked).message)
    assert ask is not None and ask.quota == "q"
    assert fits(ask, room_of({"hard": hard, "used": used})) == room


@pytest.mark.parametrize("words", ["", "failed quota: q: must specify cpu", "exceeded quota: q, requested: x, used: y"])
def test_other_words_are_no_quota(words: str) -> None:
    assert parse_exceeded_quota(words) is None


async def test_a_job_is_woken_once_there_is_room() -> None:
    async with watching() as run:
        run.fake.on(f"GET {EVERYWHERE}", listing([quota(1, 9, 9)], 5))
        news = (
            ("MODIFIED", quota(6, 9, 9)),
            ("MODIFIED", quota(7, 20, 9, name="another")),
            ("MODIFIED", quota(8, 10, 9)),
        )
        run.fake.on(f"WATCH {EVERYWHERE}", events(*news, hold=True))
        (key,) = keys(1)
        run.quotas.follow(key, refused())
        await run.until(lambda: bool(run.woken))
        assert run.woken == [key] and run.quotas.has_room(key)
        run.quotas.follow(key, refused())
        assert not run.quotas.has_room(key), "its try was in vain"


async def test_room_that_there_was_before_the_watch_began_counts() -> None:
    async with watching() as run:
        run.fake.on(f"GET {EVERYWHERE}", listing([quota(1, 10, 9)], 5))
        run.fake.on(f"WATCH {EVERYWHERE}", events(hold=True))
        run.quotas.follow(keys(1)[0], refused())
        await run.until(lambda: bool(run.woken))


async def test_a_quota_that_is_gone_has_room() -> None:
    async with watching() as run:
        run.fake.on(f"GET {EVERYWHERE}", listing([quota(1, 9, 9)], 5))
        run.fake.on(f"WATCH {EVERYWHERE}", events(("DELETED", quota(6, 9, 9)), hold=True))
        run.quotas.follow(keys(1)[0], refused())
        await run.until(lambda: bool(run.woken))


async def test_nothing_is_watched_once_nobody_is_held() -> None:
    async with watching() as run:
        run.fake.on(f"GET {EVERYWHERE}", listing([], 5))
        run.fake.on(f"WATCH {EVERYWHERE}", events(hold=True))
        one, other = keys(2)
        for key in (one, other):
            run.quotas.follow(key, refused())
        await run.until(lambda: run.fake.count(f"WATCH {EVERYWHERE}") == 1)
        run.quotas.follow(one, None)
        assert run.quotas.watches == 1
        run.quotas.follow(other, judge("pod/x", 403, "denied", 1, NOW))
        assert run.quotas.watches == 0


async def test_where_namespaces_are_named_only_those_with_held_jobs_are_watched() -> None:
    async with watching(everywhere=False) as run:
        for number in range(200):
            run.quotas.follow(Key(f"ns-{number}", "job"), None)
        assert run.quotas.watches == 0
        run.quotas.follow(Key("ns-7", "job"), refused())
        await run.until(lambda: run.fake.count(f"GET /api/v1/namespaces/ns-7/{KIND}") >= 1)
        for number in range(200):
            run.quotas.follow(Key(f"ns-{number}", "job"), refused())
        assert run.quotas.watches == MOST_WATCHES
        for number in range(200):
            run.quotas.follow(Key(f"ns-{number}", "job"), None)
        assert run.quotas.watches == 0


async def test_without_the_right_it_says_so_once_until_the_right_comes(caplog: pytest.LogCaptureFixture) -> None:
    async with watching() as run:
        run.fake.on(f"GET {EVERYWHERE}", Answer({"message": "forbidden"}, 403))
        (key,) = keys(1)
        for _ in range(3):
            run.quotas.follow(key, refused())
        await run.until(lambda: run.fake.count(f"GET {EVERYWHERE}") > 1)
        assert run.quotas.refused == ["resourcequotas in all namespaces"] and run.quotas.watches == 0
        assert caplog.text.count("may not list and watch resourcequotas") == 1
        run.fake.on(f"GET {EVERYWHERE}", listing([quota(1, 10, 9)], 5))
        run.fake.on(f"WATCH {EVERYWHERE}", events(hold=True))
        await run.until(lambda: bool(run.woken))
        assert run.quotas.refused == [] and run.quotas.watches == 1


async def test_all_jobs_of_a_namespace_wait_where_the_server_has_asked_one_to_wait() -> None:
    class Overloaded:
        tries = 0

        async def list(self, path: str, selector: object) -> tuple[list[Any], int]:
            self.tries += 1
            raise ApiError(429, "TooManyRequests", "later", 0.2)

    api = Overloaded()
    quotas = Quotas(cast("Api", api), print, everywhere=True)
    for fresh in (False, True, False):
        with pytest.raises(ApiError) as told:
            await quotas.read("ns", fresh)
        assert told.value.status == 429 and 0 < told.value.retry_after <= 0.2
    assert api.tries == 1
    with pytest.raises(ApiError):
        await quotas.read("other")
    assert api.tries == 2
    await asyncio.sleep(0.21)
    with pytest.raises(ApiError):
        await quotas.read("ns")
    assert api.tries == 3


async def test_many_that_wait_are_woken_a_few_at_a_time_in_turn() -> None:
    """A thousand jobs that wait for the room of one pod must not all ask for it."""
    async with watching() as run:
        held = keys(3 * MOST_WOKEN)
        for key in held:
            run.quotas.follow(key, refused())
        for turn in range(3):
            for key in run.quotas.upsert(quota(turn, 10, 9)):
                run.quotas.note_room(key)
            woken = held[turn * MOST_WOKEN : (turn + 1) * MOST_WOKEN]
            assert set(run.woken[turn * MOST_WOKEN :]) == set(woken)
            for key in woken:
                run.quotas.follow(key, refused())
