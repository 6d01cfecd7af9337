"""When the launchers are asked for the first time after a start."""

import asyncio
from collections.abc import Callable

from tests.support.virtual_time import run
from tftraining_operator.cluster.first_passes import CHECK_SECONDS, LONGEST_SECONDS, first_passes_done


async def seconds(waiting: Callable[[float], int], reconciled: Callable[[float], int]) -> float:
    """How long the operator waits, given both counts as functions of the time."""
    clock = asyncio.get_running_loop().time
    await first_passes_done(lambda: waiting(clock()), lambda: reconciled(clock()))
    return clock()


def test_the_wait_ends_when_no_job_waits_and_no_further_job_has_had_a_pass() -> None:
    done = 3.0
    waited = run(seconds(lambda now: max(0, round(100 * (done - now))), lambda now: round(100 * min(now, done))))
    assert done <= waited <= done + 2 * CHECK_SECONDS


def test_a_pass_that_is_under_way_ends_no_wait() -> None:
    """The queue is empty while the last passes run."""
    waited = run(seconds(lambda now: 0, lambda now: int(now >= 2 * CHECK_SECONDS) + int(now >= CHECK_SECONDS)))
    assert waited == 3 * CHECK_SECONDS


def test_jobs_that_never_stop_coming_hold_the_reports_up_for_a_limited_time() -> None:
    assert run(seconds(lambda now: 1, round)) == LONGEST_SECONDS


def test_without_jobs_the_wait_is_one_check() -> None:
    assert run(seconds(lambda now: 0, lambda now: 0)) == CHECK_SECONDS
