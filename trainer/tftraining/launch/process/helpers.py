"""Short-lived processes of the launcher's own, such as one that opens a bucket by the TensorFlow of the image.

None may outlive its time limit, and the end of a program must not end it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from typing import BinaryIO

from tftraining.launch.process.reaper import Reaper
from tftraining.launch.process.session import StartError, spawn
from tftraining.launch.wait_for import wait_for

OUTPUT_BYTES = 1 << 16  # read of each stream


class HelperError(Exception):
    """The process did not start, did not end in time, or failed; the message is one line."""


async def run_helper(reaper: Reaper, command: Sequence[str], env: Mapping[str, str], seconds: float) -> str:
    """The standard output of the command; HelperError if it fails or takes longer than `seconds`."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            status = await _run(reaper, spawn(command, env, (out.fileno(), err.fileno())), seconds)
        except StartError as error:
            raise HelperError(str(error)) from error
        except asyncio.TimeoutError:
            raise HelperError(f"no answer within {seconds:g} s") from None
        if status != 0:
            lines = _text(err).split("\n")
            raise HelperError(lines[-1] or f"{command[0]} ended with the status {status}")
        return _text(out)


async def _run(reaper: Reaper, pid: int, seconds: float) -> int:
    """The status of waitpid(2)."""
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    reaper.spared.add(pid)
    reaper.watch(pid, lambda status: None if ended.done() else ended.set_result(status))
    try:
        return await wait_for(ended, seconds)
    finally:
        if not ended.done() or ended.cancelled():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


def _text(file: BinaryIO) -> str:
    file.seek(0)
    return file.read(OUTPUT_BYTES).decode("utf-8", "replace").strip()
