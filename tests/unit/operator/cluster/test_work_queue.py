"""The work queue: one worker a key, nothing lost, nothing twice, and no pass that fails stops the others."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tftraining_api.kube.api import ApiError
from tftraining_api.model.names import Key
from tftraining_operator.cluster.work_queue import Lane, WorkQueue

A, B = Key("ns", "a"), Key("ns", "b")


@asynccontextmanager
async def working(queue: WorkQueue, work: Callable[[Key], Awaitable[None]], workers: int = 2) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(queue.run(work)) for _ in range(workers)]
    try:
        yield
    finally:
        queue.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110  # the queue tells nobody
            await asyncio.sleep(0.001)


async def test_many_reasons_are_one_pass_and_one_more_for_those_that_came_during_it() -> None:
    queue, passes, go = WorkQueue(), [], asyncio.Event()

    async def work(key: Key) -> None:
        passes.append(key)
        await go.wait()

    for _ in range(5):
        queue.add(A)
    async with working(queue, work):
        await asyncio.sleep(0.01)
        for _ in range(5):
            queue.add(A)
        await asyncio.sleep(0.01)
        assert passes == [A], "never two workers on one key"
        go.set()
        await asyncio.sleep(0.01)
    assert passes == [A, A]


async def test_the_earliest_timer_wins_and_an_earlier_pass_cancels_it() -> None:
    queue, passes = WorkQueue(), []

    async def work(key: Key) -> None:
        passes.append(key)

    queue.add_after(A, 30)
    queue.add_after(A, 0.02)
    queue.add_after(A, 20)
    queue.add_after(B, 0.02)
    queue.add(B)
    async with working(queue, work):
        await asyncio.sleep(0.1)
    assert passes == [B, A]
    assert not queue._timers


async def test_a_failing_pass_is_tried_again_later_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    queue, passes = WorkQueue(), []

    async def work(key: Key) -> None:
        passes.append(key)
        if key == A and passes.count(A) < 2:
            raise ApiError(500, "InternalError", "etcd is away")

    queue.add(A)
    queue.add(B)
    async with working(queue, work, workers=1):
        await asyncio.sleep(0.1)
        assert passes == [A, B]
        await asyncio.sleep(0.6)
    assert passes == [A, B, A]
    assert not queue._failures, "a success is the end of it"
    assert "ns/a: reconcile failed: 500 InternalError: etcd is away; retrying in 0.5 s" in caplog.text
    assert "Traceback" not in caplog.text


async def test_a_fault_of_the_program_is_logged_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    queue = WorkQueue()

    async def work(key: Key) -> None:
        raise KeyError("bug")

    queue.add(A)
    with caplog.at_level(logging.ERROR):
        async with working(queue, work):
            await asyncio.sleep(0.02)
    assert "Traceback" in caplog.text


async def test_the_pause_grows_to_a_minute() -> None:
    queue = WorkQueue()
    loop = asyncio.get_running_loop()
    pauses = []
    for _ in range(10):
        queue._retry(A, ApiError(500, "", ""))
        pauses.append(round(queue._timers[A].when() - loop.time(), 1))
        queue.close()
    assert pauses == [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60]


async def test_a_paused_queue_keeps_nothing() -> None:
    queue, passes = WorkQueue(), []

    async def work(key: Key) -> None:
        passes.append(key)

    queue.pause()
    queue.add(A)
    async with working(queue, work):
        await asyncio.sleep(0.01)
        queue.resume([B])
        await asyncio.sleep(0.01)
    assert passes == [B]


async def test_the_wait_for_a_worker_is_measured_and_the_depth_is_that_of_the_waiting() -> None:
    queue = WorkQueue()
    waits: list[float] = []
    queue.waited = waits.append

    async def work(key: Key) -> None:
        assert queue.depth == (1 if key == A else 0)

    queue.add(A)
    queue.add(B)
    assert queue.depth == 2
    await asyncio.sleep(0.05)
    async with working(queue, work, workers=1):
        await asyncio.sleep(0.01)
    assert len(waits) == 2 and all(0.04 < each < 5 for each in waits)


async def test_a_report_of_a_failing_pass_that_fails_itself_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    queue, reports, passes = WorkQueue(), [], []

    async def work(key: Key) -> None:
        passes.append(key)
        if key == A:
            raise KeyError("bug")

    async def failed(key: Key, error: Exception, failures: int) -> None:
        reports.append((key, repr(error), failures))
        raise ApiError(409, "Conflict", "changed")

    queue.failed = failed
    queue.add(A)
    queue.add(B)
    async with working(queue, work, workers=1):
        await asyncio.sleep(0.7)
        assert queue.failing == 1
    assert passes == [A, B, A]
    assert reports == [(A, "KeyError('bug')", 1), (A, "KeyError('bug')", 2)]
    assert "ns/a: cannot report the failing pass: 409 Conflict: changed" in caplog.text


@pytest.mark.parametrize(
    ("waiting", "order"),
    [
        ({"other": 3, "new": 8}, [*["new"] * 3, "other", *["new"] * 3, "other", *["new"] * 2, "other"]),
        ({"interrupted": 2, "other": 6}, [*["other"] * 3, "interrupted", *["other"] * 3, "interrupted"]),
    ],
    ids=["new jobs come first", "interrupted passes come last"],
)
async def test_each_lane_gets_turns(waiting: dict[str, int], order: list[str]) -> None:
    queue, passes = WorkQueue(), []
    queue.lane = lambda key: Lane[key.namespace.upper()]

    async def work(key: Key) -> None:
        passes.append(key.namespace)

    for namespace, count in waiting.items():
        for number in range(count):
            queue.add(Key(namespace, f"{number}"))
    async with working(queue, work, workers=1):
        await until(lambda: len(passes) == len(order))
    assert passes == order


async def test_the_queue_is_crowded_when_a_key_waits_and_no_worker_is_free() -> None:
    queue, go, begun = WorkQueue(), asyncio.Event(), []

    async def work(key: Key) -> None:
        begun.append(key)
        await go.wait()

    async with working(queue, work):
        for number, key in enumerate((A, B)):
            queue.add(key)
            await until(lambda number=number: len(begun) > number)  # type: ignore[misc]
            queue.add(key)
            assert not queue.crowded, "a key that a worker has is not waited for"
        queue.add(Key("ns", "c"))
        assert queue.crowded
        go.set()
        await until(lambda: not queue.crowded)


async def test_a_pass_that_is_due_in_time_is_enough() -> None:
    queue, passes = WorkQueue(), []

    async def work(key: Key) -> None:
        passes.append(key)

    queue.add_after(A, 20)
    queue.add_within(A, 30)
    queue.add_after(B, 20)
    queue.add_within(B, 10)
    async with working(queue, work):
        await asyncio.sleep(0.01)
        assert passes == [B], "its timer would fire too late"
        queue.add_within(B, 10)
        await asyncio.sleep(0.01)
        assert passes == [B, B], "it has no timer any more"
