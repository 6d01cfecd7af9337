"""A plain program on a real kernel: its output, its exit, and the end of all its processes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from tests.support.launchers.harness import Harness, alive, until, written


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    harness = Harness(tmp_path)
    yield harness
    await harness.close()


def sh(script: str) -> Sequence[str]:
    return ("sh", "-c", script)


@pytest.mark.parametrize(
    ("script", "code", "number"),
    [("exit 0", 0, None), ("exit 3", 3, None), ("kill -9 $$", None, 9), ("kill -TERM $$", None, 15)],
)
async def test_the_exit_of_a_program(harness: Harness, script: str, code: int | None, number: int | None) -> None:
    ended = await harness.run(*sh(script))
    assert (ended.code, ended.signal, ended.kind) == (code, number, "")


async def test_output_passes_unchanged_and_its_last_lines_are_kept(
    harness: Harness, capfd: pytest.CaptureFixture[str]
) -> None:
    ended = await harness.run(*sh(r"printf 'one\n\tt\303\244\n\033[31mred\033[0m\n'; printf 'two\n' >&2; printf end"))
    await harness.close()
    out, err = capfd.readouterr()
    assert (out, err) == ("one\n\ttä\n\x1b[31mred\x1b[0m\nend", "two\n")
    assert sorted(ended.lines) == ["\ttä", "end", "one", "red", "two"]


async def test_the_last_lines_are_complete_after_much_output(
    harness: Harness, capfd: pytest.CaptureFixture[str]
) -> None:
    script = "for number in range(50000): print('line', number)"
    ended = await harness.run(sys.executable, "-c", script)
    await harness.close()
    assert capfd.readouterr().out.count("\n") == 50000
    assert ended.lines[-1] == "line 49999"
    assert len(ended.lines) == 40


@pytest.mark.parametrize(("name", "code"), [("no-such-program", 127), ("/etc/passwd", 126), ("/no/such/file", 127)])
async def test_a_command_that_cannot_be_started(harness: Harness, name: str, code: int) -> None:
    ended = await harness.run(name)
    assert (ended.code, ended.kind) == (code, "NotFound")
    assert name in ended.lines[0]


async def test_a_command_that_cannot_be_started_for_now(harness: Harness, tmp_path: Path) -> None:
    path = tmp_path / "program"
    with path.open("w") as file:
        path.chmod(0o755)
        ended = await harness.run(str(path))
        assert (ended.code, ended.kind) == (126, "")
        assert "Text file busy" in ended.lines[0]
        file.write("#!/bin/sh\nexit 3\n")
    assert (await harness.run(str(path))).code == 3


async def test_kill_also_ends_processes_that_left_the_session(harness: Harness, tmp_path: Path) -> None:
    script = "(setsid sh -c 'setsid sleep 600 & echo $! > escaped; sleep 600') & sleep 600 & echo $! > child; sleep 600"
    program = harness.make(*sh(f"cd {tmp_path}; {script}"))
    await harness.start(program)
    pids = [int(await written(tmp_path / name)) for name in ("child", "escaped")]
    await program.kill()
    assert harness.exits == [], "whoever kills it knows"
    assert not any(alive(pid) for pid in pids)


async def test_child_processes_end_with_the_program(harness: Harness, tmp_path: Path) -> None:
    program = harness.make(*sh(f"sleep 600 & echo $! > {tmp_path}/child; exit 0"))
    await harness.start(program)
    assert (await harness.end(program)).code == 0
    await program.kill()
    assert not alive(int(await written(tmp_path / "child")))


async def test_children_in_their_own_sessions_end_with_the_program(harness: Harness, tmp_path: Path) -> None:
    helper = (
        f"setsid sh -c 'setsid sleep 600 & echo $! > {tmp_path}/grandchild; sleep 600' & echo $! > {tmp_path}/child"
    )
    program = harness.make(*sh(f"{helper}; while [ ! -s {tmp_path}/grandchild ]; do sleep 0.01; done"))
    await harness.start(program)
    assert (await harness.end(program)).code == 0
    pids = [int(await written(tmp_path / name)) for name in ("child", "grandchild")]
    await until(lambda: not any(alive(pid) for pid in pids) or None, "the end of the helpers")


async def test_terminate_waits_for_the_grace_period(harness: Harness, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    program = harness.make(*sh(f"trap 'echo bye; exit 7' TERM; echo on > {ready}; while :; do sleep 0.01; done"))
    await harness.start(program)
    await written(ready)
    await program.terminate()
    ended = await harness.end(program)
    assert (ended.code, ended.lines) == (7, ("bye",))


async def test_terminate_kills_a_program_that_ignores_sigterm(harness: Harness, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    program = harness.make(*sh(f"trap '' TERM; echo on > {ready}; while :; do sleep 0.01; done"), grace=0.3)
    await harness.start(program)
    await written(ready)
    began = time.monotonic()
    await program.terminate()
    assert time.monotonic() - began > 0.25
    assert (await harness.end(program)).signal == signal.SIGKILL


async def test_rounds_follow_each_other(harness: Harness) -> None:
    program = harness.make(*sh('echo "round $N"'))
    for number in range(3):
        harness.ended.clear()
        await program.start({**os.environ, "N": str(number)}, harness.on_exit)
        await harness.end(program)
    assert [ended.lines for ended in harness.exits] == [(f"round {number}",) for number in range(3)]


async def test_a_new_round_shows_no_progress_of_the_last_one(harness: Harness) -> None:
    """A beat in the middle of a start tells the number of the new round: with steps of the old one it would train."""
    program = harness.make(sys.executable, "-c", "import tftraining; tftraining.report(step=5)")
    await harness.start(program)
    await harness.end(program)
    assert program.snapshot().step == 5
    starting = asyncio.ensure_future(harness.start(program))
    await asyncio.sleep(0)
    assert program.snapshot().step is None
    await starting


async def test_a_start_ends_the_program_of_the_last_round(harness: Harness, tmp_path: Path) -> None:
    program = harness.make(*sh(f"echo $$ > {tmp_path}/first; sleep 600"))
    await harness.start(program)
    first = int(await written(tmp_path / "first"))
    await harness.start(program)
    assert not alive(first)
    assert program.pid not in (None, first)
    assert harness.exits == [], "the end of the first is not that of the second"


async def test_the_program_dies_with_its_launcher(tmp_path: Path) -> None:
    script = f"""
import asyncio, os, sys, time
from pathlib import Path
from tftraining.launch.process.program import Program
async def main():
    command = ["sh", "-c", "echo $$ > {tmp_path}/pid; sleep 600"]
    program = Program(command, warm=False, grace=1, directory=Path({str(tmp_path)!r}))
    await program.start(dict(os.environ), print)
    await asyncio.sleep(600)
asyncio.run(main())
"""
    launcher = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
    pid = int(await written(tmp_path / "pid"))
    launcher.kill()
    await launcher.wait()
    await until(lambda: not alive(pid), "the program has died")
