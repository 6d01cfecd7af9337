"""A wait with a time limit that loses no cancellation."""

from __future__ import annotations

import asyncio

import pytest

from tftraining.launch.wait_for import wait_for


async def _fail() -> None:
    raise OSError("refused")


async def test_the_result_and_the_error_are_those_of_the_awaited() -> None:
    assert await wait_for(asyncio.sleep(0, "done"), 60) == "done"
    with pytest.raises(OSError, match="refused"):
        await wait_for(_fail(), 60)


async def test_after_the_time_limit_the_awaited_is_cancelled() -> None:
    forever = asyncio.ensure_future(asyncio.sleep(3600))
    with pytest.raises(asyncio.TimeoutError):
        await wait_for(forever, 0.01)
    assert forever.cancelled()


async def test_what_completes_at_its_cancellation_is_returned() -> None:
    async def reluctant() -> str:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return "done"
        return ""

    assert await wait_for(reluctant(), 0.01) == "done"


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("fails", [False, True])
async def test_a_cancellation_in_the_moment_of_the_result_is_not_lost(turns: int, fails: bool) -> None:
    unhandled: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context["message"]))
    awaited = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(wait_for(awaited, 60))
    await asyncio.sleep(0)
    if fails:
        awaited.set_exception(OSError("refused"))
    else:
        awaited.set_result("done")
    for _ in range(turns):
        await asyncio.sleep(0)
    if waiting.cancel():
        with pytest.raises(asyncio.CancelledError):
            await waiting
    else:
        await asyncio.gather(waiting, return_exceptions=True)
    del awaited, waiting
    assert unhandled == []
