"""When the first passes after a start or a take-over are done.

Until then no launcher is asked: thousands of first requests would delay these passes.
"""

import asyncio
from collections.abc import Callable

CHECK_SECONDS = 0.5
LONGEST_SECONDS = 10.0  # new jobs may come without an end


async def first_passes_done(waiting: Callable[[], int], reconciled: Callable[[], int]) -> None:
    """Return once no job waits for a pass and no further job has had its first one, or after LONGEST_SECONDS.

    `waiting` returns the number of jobs that wait for a pass, `reconciled` that of the jobs that have had one.
    """
    before = -1
    for _ in range(round(LONGEST_SECONDS / CHECK_SECONDS)):
        if waiting() == 0 and reconciled() == before:
            return
        before = reconciled()
        await asyncio.sleep(CHECK_SECONDS)
