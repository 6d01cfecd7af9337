"""The wall clock of a launcher's machine jumps, while it trains: nothing is lost, blamed or waited for by that.

Linux has no namespace for CLOCK_REALTIME, and to set the clock of this machine would disturb everybody else on it, so a
preloaded library moves it for the processes of one member, launcher and program, at any moment and for each apart
(clock.c; libfaketime also rewrites sleeps, and Python's then fail). What this does not show is a timer of the kernel's
on the wall clock: neither the launcher nor asyncio has one.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.launchers.gang import LocalGang
from tests.support.needed import need_or_skip

SOURCE = Path(__file__).with_name("clock.c")
DAY = 86400
JUMPS = {"a day ahead": DAY, "a day back": -DAY, "before 1980": -50 * 365 * DAY, "beyond 2038": 50 * 365 * DAY}


class Clock:
    """The wall clock of one member."""

    def __init__(self, place: Path, library: Path) -> None:
        self._file = place
        self.jump(0)
        self.wrapper = ["env", f"LD_PRELOAD={library}", f"TESTS_CLOCK={place}"]

    def jump(self, seconds: int) -> None:
        """It is so many seconds ahead of the machine's from now on."""
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("l", seconds))


@pytest.fixture
def library(tmp_path: Path) -> Path:
    need_or_skip("gcc")
    built = tmp_path / "clock.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-nostdlib", "-o", str(built), str(SOURCE)], check=True)
    return built


def clocks(gang: LocalGang, library: Path) -> dict[str, Clock]:
    """A clock of its own for each member."""
    made = {name: Clock(gang.place / f"clock-{name}", library) for name in gang.names}
    gang.wrappers = {name: clock.wrapper for name, clock in made.items()}
    return made


def test_the_library_moves_the_wall_clock_and_no_other(tmp_path: Path, library: Path) -> None:
    clock = Clock(tmp_path / "clock", library)
    ask = "import sys, time\nfor _ in sys.stdin: print(time.time(), time.monotonic(), flush=True)"
    command = [*clock.wrapper, sys.executable, "-c", ask]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        for seconds in JUMPS.values():
            clock.jump(seconds)
            print(file=process.stdin, flush=True)
            wall, monotonic = map(float, process.stdout.readline().split())
            assert abs(wall - time.time() - seconds) < 60
            assert abs(monotonic - time.monotonic()) < 60
        process.stdin.close()


@pytest.mark.parametrize("member", ["worker-0", "worker-1"])
@pytest.mark.parametrize(
    "jump", ["a day ahead", *(pytest.param(each, marks=pytest.mark.slow_fault) for each in [*JUMPS][1:])]
)
def test_a_jump_of_the_clock_during_training_ends_no_round(
    tmp_path: Path, library: Path, member: str, jump: str
) -> None:
    with LocalGang(tmp_path, {"worker": 2}, "--epochs", "8", "--steps", "40", stallTimeoutSeconds=2) as gang:
        clock = clocks(gang, library)[member]
        gang.start()
        gang.wait_for_phase("Training")
        year = time.gmtime(time.time() + JUMPS[jump]).tm_year
        clock.jump(JUMPS[jump])
        told = gang.wait_for(lambda: (found := gang.status(member)).get("progress") and found)
        gang.wait_for(lambda: gang.status(member)["progress"]["updatedTime"].startswith(str(max(year, 1970))))
        assert told["state"] == "running"
        clock.jump(-JUMPS[jump])
        time.sleep(3.0)  # more than the timeouts of the member and of the watchdog
        status = gang.status()
        assert (status["round"], status["lastRestart"]) == (1, None), gang.describe()
        assert gang.wait() == {"worker-0": 0, "worker-1": 0}
        assert gang.message("worker-0")["ledger"]["inPlace"] == 0


@pytest.mark.parametrize("jump", ["a day back", pytest.param("beyond 2038", marks=pytest.mark.slow_fault)])
def test_a_jump_of_the_clock_during_a_restart_changes_no_duration(tmp_path: Path, library: Path, jump: str) -> None:
    with LocalGang(tmp_path, {"worker": 2}, "--epochs", "10", "--steps", "20", stallTimeoutSeconds=5) as gang:
        clock = clocks(gang, library)
        clock["worker-1"].jump(DAY // 2)  # no two machines agree anyway
        gang.start()
        gang.wait_for_phase("Training")
        gang.kill_program("worker-1")
        clock["worker-0"].jump(JUMPS[jump])
        status = gang.wait_for_phase("Training", 2)
        assert 0 < status["lastRestart"]["downSeconds"] < 60
        assert (status["lastRestart"]["member"], status["lastRestart"]["reason"]) == ("worker-1", "Killed")
        assert gang.wait() == {"worker-0": 0, "worker-1": 0}
        ledger = gang.message("worker-0")["ledger"]
        assert (ledger["processFailures"], ledger["inPlace"]) == (1, 1)
        assert not gang.violations()
