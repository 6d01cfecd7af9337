"""The lease of a program ends on time whatever its launcher does, and no round starts before."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.launchers.gang import LocalGang
from tests.support.launchers.harness import alive
from tests.support.launchers.relay import Relay
from tests.support.needed import need_or_skip
from tests.support.ports import free_ports
from tftraining.launch.process.lease_watchdog import NAME
from tftraining.launch.process.reaper import children

ENDLESS = ("--epochs", "100000", "--steps", "10", "--stamps")
HANGING = Path(__file__).parents[2] / "support/launchers/hanging.py"


def replace(gang: LocalGang, name: str, **options: Any) -> None:
    """A new launcher of a member, while the old one is there and holds its port."""
    gang.retired.append(gang.launchers[name])
    (gang.ports[name],) = free_ports(1)
    gang.start(name, **options)


def name_of(pid: int) -> bytes:
    """The name that `ps` shows of a process; empty if there is no such process any more."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_bytes().strip()
    return b""


def watchdog(gang: LocalGang, name: str) -> int:
    """The running watchdog of a member's program. A killed one stays a zombie of that name until its launcher reads
    its exit status."""

    def found() -> list[int]:
        running = children(gang.launchers[name].pid)
        return [pid for pid in running if name_of(pid) == NAME and alive(pid)]

    pid: int = gang.wait_for(found)[0]
    return pid


def started(gang: LocalGang, number: int) -> bool:
    """Whether a program of that round has started."""
    return number in {each for _, each, _ in gang.starts()}


def assert_one_after_the_other(gang: LocalGang) -> None:
    """Nothing of the first round ran when the second one began."""
    begun = min(at for _, number, at in gang.starts() if number > 1)
    beside = {name: at - begun for name, at in gang.last_stamps(1).items() if at > begun}
    assert not beside, f"seconds beside the next round: {beside}"
    assert not gang.violations()


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[Path]:
    """What a launcher hangs in; released at the end, whoever still hangs."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    yield path
    release(path)


def release(path: Path) -> None:
    """Who hangs hangs no more, if anybody does."""
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))


@pytest.mark.parametrize("how", ["stopped", "hanging"])
def test_a_suspended_launchers_program_ends_before_the_next_round(tmp_path: Path, fifo: Path, how: str) -> None:
    with LocalGang(tmp_path, {"worker": 2}, *ENDLESS) as gang:
        gang.wrappers["worker-1"] = [sys.executable, str(HANGING), str(tmp_path)]
        gang.start()
        gang.wait_for_phase("Training")
        gang.wait_for(lambda: len(gang.last_stamps(1)) == 4)
        if how == "stopped":
            gang.kill("worker-1", signal.SIGSTOP)
        else:
            (tmp_path / "hang-read").touch()
            gang.wait_for((tmp_path / "hangs-read").exists)
        gang.wrappers.clear()
        replace(gang, "worker-1")
        gang.wait_for_phase("Training", 2)
        time.sleep(1.0)
        assert_one_after_the_other(gang)


def test_a_start_that_outlasts_the_lease_starts_nothing(tmp_path: Path, fifo: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, *ENDLESS) as gang:
        gang.wrappers["worker-1"] = [sys.executable, str(HANGING), str(tmp_path)]
        (tmp_path / "hang-create").touch()
        gang.start()
        gang.wait_for((tmp_path / "hangs-create").exists)
        gang.wait_for_phase("Restarting")
        old = gang.launchers["worker-1"]
        gang.wrappers.clear()
        replace(gang, "worker-1")
        gang.wait_for_phase("Training", 2)
        (tmp_path / "hang-create").unlink()
        release(fifo)
        gang.wait_for(lambda: "another launcher of worker-1 is connected" in gang.log("worker-1"))
        assert not [pid for pid in children(old.pid) if name_of(pid) != NAME]
        assert ("worker-1", 1) not in {(name, number) for name, number, _ in gang.starts()}
        assert_one_after_the_other(gang)


def test_the_chiefs_program_ends_with_its_lease(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, *ENDLESS) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        gang.wait_for(lambda: len(gang.last_stamps(1)) == 4)
        pid = gang.pid("worker-0")
        gang.kill("worker-0", signal.SIGSTOP)
        gang.wait_for(lambda: not alive(pid))
        gang.wait_for(lambda: max(gang.last_stamps(1).values()) < time.monotonic() - 0.5)
        gang.kill("worker-0", signal.SIGCONT)
        status = gang.wait_for_phase("Training", 2)
        assert status["ledger"]["processFailures"] == 0, "it was no failure of the program"
        assert_one_after_the_other(gang)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a process namespace")
def test_the_program_of_a_launcher_that_is_pid_1(tmp_path: Path) -> None:
    need_or_skip("unshare")
    with LocalGang(tmp_path, {"worker": 2}, *ENDLESS) as gang:
        gang.wrappers["worker-1"] = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        gang.start()
        gang.wait_for_phase("Training")
        gang.wait_for(lambda: len(gang.last_stamps(1)) == 4)
        (launcher,) = children(gang.launchers["worker-1"].pid)
        names = {pid: name_of(pid) for pid in children(launcher)}
        assert gang.status("worker-1")["pid"] not in names, "it has numbers of its own"
        os.kill(launcher, signal.SIGSTOP)
        (program,) = [pid for pid, name in names.items() if name != NAME]
        gang.wait_for(lambda: not alive(program))
        gang.wait_for(lambda: max(gang.last_stamps(1).values()) < time.monotonic() - 0.5)
        os.kill(launcher, signal.SIGCONT)
        gang.wait_for_phase("Training", 2)
        assert {name_of(pid) for pid in children(launcher)} == {*names.values()}
        assert_one_after_the_other(gang)


def test_a_killed_watchdog_is_replaced_and_ends_with_the_launcher(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, *ENDLESS) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        first, pid = watchdog(gang, "worker-1"), gang.pid("worker-1")
        os.kill(first, signal.SIGKILL)
        gang.wait_for(lambda: not alive(first))
        second = watchdog(gang, "worker-1")
        os.kill(second, signal.SIGTERM)
        gang.kill("worker-1", signal.SIGSTOP)
        gang.wait_for(lambda: not alive(pid))
        gang.kill("worker-1", signal.SIGCONT)
        gang.wait_for_phase("Training", 2)
        assert watchdog(gang, "worker-1") == second
        gang.kill("worker-1")
        gang.wait_for(lambda: not alive(second))


def test_a_watchdog_that_does_not_answer_is_replaced_before_the_next_round(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, *ENDLESS) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        first = watchdog(gang, "worker-1")
        os.kill(first, signal.SIGSTOP)
        gang.kill_program("worker-0")
        gang.wait_for(lambda: not alive(first))
        gang.wait_for_phase("Training", gang.status()["round"])
        assert watchdog(gang, "worker-1") != first
        assert not gang.violations()


def test_the_watchdog_is_shown_by_its_own_name_and_keeps_nothing_of_the_launcher_open(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, *ENDLESS) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        place = Path("/proc") / str(watchdog(gang, "worker-1"))
        command = (place / "cmdline").read_bytes()
        assert b"standin" not in command and b"tftraining" not in command
        assert b"STANDIN" not in (place / "environ").read_bytes()
        assert [str(each.readlink()).partition(":")[0] for each in (place / "fd").iterdir()] == ["socket"]


def test_a_success_leaves_the_other_members_their_grace(tmp_path: Path) -> None:
    """The job is over, so nobody is heard of any more, and nobody starts another round."""
    script = f"""
        cd {tmp_path}; [ $STANDIN = worker-0 ] && exec "$@"
        trap "" TERM; "$@" & while [ ! -e done ]; do sleep 0.1; done; sleep 4; touch graceful"""
    with LocalGang(tmp_path, {"worker": 2}, *ENDLESS, terminationGraceSeconds=20) as gang:
        gang.command = ["sh", "-c", script, "sh", *gang.command]
        gang.start()
        gang.wait_for_phase("Training")
        gang.order("worker-0", "exit 0")
        gang.wait_for(lambda: gang.launchers["worker-0"].poll() == 0)
        (tmp_path / "done").touch()
        assert gang.wait() == {"worker-0": 0, "worker-1": 0}
        assert (tmp_path / "graceful").exists()


@pytest.mark.slow_fault
def test_a_new_chief_waits_for_the_lease_of_an_unreachable_member(tmp_path: Path) -> None:
    """It may go on as long as it hears a member, however long the new one is there already."""
    with LocalGang(tmp_path, {"worker": 2}, *ENDLESS) as gang, Relay(gang.rendezvous) as relay:
        gang.start("worker-0")
        gang.start("worker-1", rendezvous=f"127.0.0.1:{relay.port}")
        gang.wait_for_phase("Training")
        gang.wait_for(lambda: len(gang.last_stamps(1)) == 4)
        (gang.rendezvous,) = free_ports(1)
        replace(gang, "worker-0")
        gang.wait_for(lambda: gang.status().get("phase") == "Waiting")
        time.sleep(6.0)
        relay.to = gang.rendezvous
        relay.silence()
        gang.wait_for_phase("Training", 2)
        assert_one_after_the_other(gang)


def test_an_unsigned_end_of_a_connection_proves_nothing(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, *ENDLESS) as gang, Relay(gang.rendezvous) as relay:
        gang.start("worker-0")
        gang.start("worker-1", rendezvous=f"127.0.0.1:{relay.port}")
        gang.wait_for_phase("Training")
        gang.wait_for(lambda: len(gang.last_stamps(1)) == 4)
        relay.close_towards_the_chief()
        replace(gang, "worker-1")
        gang.wait_for_phase("Training", 2)
        assert_one_after_the_other(gang)


def test_a_member_that_said_bye_is_replaced_without_waiting(tmp_path: Path) -> None:
    timeout = 40
    with LocalGang(tmp_path, {"worker": 2}, *ENDLESS, memberTimeoutSeconds=timeout) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        for number, name in enumerate(gang.names[::-1], 2):
            gang.kill(name, signal.SIGTERM)
            assert gang.launchers[name].wait(60) == 143
            left = time.monotonic()
            gang.start(name)
            gang.wait_for(partial(started, gang, number))
            assert time.monotonic() - left < timeout
        assert_one_after_the_other(gang)
