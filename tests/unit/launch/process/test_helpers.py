"""Helpers of the launcher: their output, their errors, and their end at the time limit."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tftraining.launch.process.helpers import HelperError, run_helper
from tftraining.launch.process.reaper import Reaper
from tftraining.launch.process.session import kill_children


@pytest.fixture
async def reaper() -> AsyncIterator[Reaper]:
    reaper = Reaper()
    reaper.install()
    yield reaper
    reaper.uninstall()


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


async def test_the_output_is_the_result(reaper: Reaper) -> None:
    assert await run_helper(reaper, python("print('{}')"), os.environ, 30) == "{}"


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (python("raise SystemExit('no such bucket')"), "no such bucket"),
        (["/not/there"], "command not found: /not/there"),
    ],
)
async def test_a_failure_is_told_by_its_last_line(reaper: Reaper, command: list[str], problem: str) -> None:
    with pytest.raises(HelperError, match=f"^{problem}$"):
        await run_helper(reaper, command, os.environ, 30)


async def test_a_helper_that_hangs_is_killed(reaper: Reaper, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    with pytest.raises(HelperError, match="no answer within 1 s"):
        await run_helper(reaper, python(code), os.environ, 1)
    await reaper.wait_for_exit(10)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


async def test_the_end_of_a_program_spares_it(reaper: Reaper) -> None:
    helper = asyncio.ensure_future(
        run_helper(reaper, python("import time; time.sleep(0.5); print('ok')"), os.environ, 30)
    )
    await asyncio.sleep(0.1)
    assert kill_children(reaper) == set()
    assert await helper == "ok"
