"""Retry-After of an overloaded API server: the request is sent again after that pause, and not for ever."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from tftraining_api.kube.api import MOST_ASKED, TRIES, Api, ApiError
from tftraining_operator.cluster.fence import Fence, FencedApi


@asynccontextmanager
async def overloaded(status: int, retry_after: str, times: int) -> AsyncIterator[tuple[Api, list[float]]]:
    """An API server that puts off the first requests; the moments of all requests."""
    asked: list[float] = []

    async def handle(_: web.Request) -> web.Response:
        asked.append(asyncio.get_running_loop().time())
        if len(asked) > times:
            return web.json_response({})
        return web.json_response({"message": "busy"}, status=status, headers={"Retry-After": retry_after})

    app = web.Application()
    app.router.add_route("*", "/x", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api = Api(RESTClientObject(Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")))
    try:
        yield api, asked
    finally:
        await api.close()
        await runner.cleanup()


@pytest.mark.parametrize("status", [429, 503])
async def test_the_pause_is_kept_and_the_answer_comes(status: int) -> None:
    async with overloaded(status, "1", times=1) as (api, asked):
        answers: list[tuple[str, int]] = []
        api.answered = lambda method, code, seconds: answers.append((method, code))
        assert await api.request("GET", "/x") == {}
        assert 1 <= asked[1] - asked[0] < 3
        assert answers == [("GET", status), ("GET", 200)] and api.requests["GET"] == 2


async def test_a_long_pause_is_left_to_the_caller() -> None:
    async with overloaded(429, "60", times=9) as (api, asked):
        with pytest.raises(ApiError) as error:
            await api.request("GET", "/x")
        assert (error.value.status, error.value.retry_after, len(asked)) == (429, 60, 1)


async def test_no_caller_waits_for_an_hour() -> None:
    async with overloaded(503, "3600", times=9) as (api, asked):
        with pytest.raises(ApiError) as error:
            await api.request("GET", "/x")
        assert (error.value.retry_after, len(asked)) == (MOST_ASKED, 1)


async def test_the_pauses_of_one_request_are_bounded_together() -> None:
    async with overloaded(429, "1", times=9) as (api, asked):
        api.retry_seconds = 0.0
        with pytest.raises(ApiError):
            await api.request("GET", "/x")
        api.retry_seconds = 1.5
        with pytest.raises(ApiError):
            await api.request("GET", "/x")
        assert len(asked) == 1 + 2


async def test_a_write_is_not_sent_again_behind_the_end_of_the_lease() -> None:
    now = 0.0
    async with overloaded(429, "1", times=9) as (api, asked):
        fence = Fence(lambda: now)
        fenced = FencedApi(api, fence)
        fence.extend(100.0)
        write = asyncio.create_task(fenced.request("DELETE", "/x"))
        await asyncio.wait({write}, timeout=0.5)  # it is put off for a second
        assert len(asked) == 1
        now = 200.0  # the machine was suspended: no timer of the event loop has run
        await asyncio.wait({write}, timeout=1.2)
        assert not write.done() and len(asked) == 1
        write.cancel()
        await asyncio.gather(write, return_exceptions=True)


@pytest.mark.parametrize(("status", "given"), [(429, "soon"), (429, "-1"), (403, "1"), (429, "²")])
async def test_what_asks_for_no_pause_is_not_repeated(status: int, given: str) -> None:
    async with overloaded(status, given, times=9) as (api, asked):
        with pytest.raises(ApiError) as error:
            await api.request("GET", "/x")
        assert (error.value.retry_after, len(asked)) == (0, 1)


async def test_the_tries_end(monkeypatch: pytest.MonkeyPatch) -> None:
    paused = []

    async def sleep(seconds: float) -> None:
        paused.append(seconds)

    async with overloaded(429, "7", times=99) as (api, asked):
        with monkeypatch.context() as patch:
            patch.setattr("tftraining_api.kube.api.asyncio.sleep", sleep)
            with pytest.raises(ApiError):
                await api.request("GET", "/x")
        assert len(asked) == TRIES and all(7 <= each <= 8.4 for each in paused)
