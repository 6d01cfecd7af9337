"""Silent members are lost within the member timeout, slow ones are not, and no two rounds run at once."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.support.launchers.gang import LocalGang
from tests.support.needed import need_or_skip

ENDLESS = ("--epochs", "100000", "--steps", "10")
CPU = Path("/sys/fs/cgroup/cpu")
ROOT = os.geteuid() == 0


def test_a_suspended_launcher_is_lost_within_three_seconds_and_rejoins(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, *ENDLESS) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        old = gang.pid("worker-1")
        frozen = time.monotonic()
        gang.kill("worker-1", signal.SIGSTOP)
        status = gang.wait_for_phase("Restarting")
        assert time.monotonic() - frozen > 2.0
        assert (status["lastRestart"]["member"], status["lastRestart"]["reason"]) == ("worker-1", "MemberLost")
        gang.kill("worker-1", signal.SIGCONT)
        status = gang.wait_for_phase("Training", 2)
        assert status["ledger"]["processFailures"] == 0
        assert not Path(f"/proc/{old}").exists()
        assert not gang.violations()


def test_a_suspended_chief_is_left_and_rejoins(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, *ENDLESS, memberTimeoutSeconds=1) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        gang.kill("worker-0", signal.SIGSTOP)
        gang.wait_for(lambda: gang.status("worker-1")["state"] == "waiting")
        assert gang.status("worker-1")["pid"] is None
        gang.kill("worker-0", signal.SIGCONT)
        assert gang.wait_for_phase("Training", 2)["ledger"]["processFailures"] == 0
        assert not gang.violations()


def test_a_blocked_log_delays_no_heartbeat(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as log:
        reader = threading.Thread(target=read_all, args=[log])
        with LocalGang(tmp_path, {"worker": 2}, "--chatter", "50000", *ENDLESS) as gang:
            gang.start("worker-0")
            gang.start("worker-1", out=writing)
            os.close(writing)
            gang.wait_for_phase("Training")
            time.sleep(4.0)
            status = gang.status()
            assert (status["round"], status["lastRestart"]) == (1, None)
            assert status["members"]["worker-1"]["silentSeconds"] < 2
            step = status["members"]["worker-1"]["step"]
            assert step < 100, "the program itself waits for its reader"
            reader.start()
            gang.wait_for(lambda: gang.status()["members"]["worker-1"]["step"] > step + 20)
        reader.join()


def read_all(log: BinaryIO) -> None:
    while log.read(65536):
        pass


@pytest.fixture
def throttled(tmp_path: Path) -> Iterator[list[str]]:
    """What puts a command into a control group with a tenth of a CPU."""
    group = CPU / f"tftraining-test-{os.getpid()}"
    group.mkdir()
    (group / "cpu.cfs_period_us").write_text("100000")
    (group / "cpu.cfs_quota_us").write_text("10000")
    yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
    deadline = time.monotonic() + 5
    while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    group.rmdir()


@pytest.mark.skipif(not (ROOT and os.access(CPU / "cpu.cfs_quota_us", os.W_OK)), reason="needs root and cgroup v1")
def test_a_tenth_of_a_cpu_is_enough_for_heartbeats(tmp_path: Path, throttled: list[str]) -> None:
    with LocalGang(tmp_path, {"worker": 2}, "--busy", *ENDLESS) as gang:
        gang.wrappers["worker-1"] = throttled
        gang.start()
        gang.wait_for_phase("Training")
        time.sleep(8.0)
        status = gang.status()
        assert (status["round"], status["lastRestart"]) == (1, None), gang.describe()


class Network:
    """A network namespace with one link to this machine, whose packets can be dropped."""

    def __init__(self) -> None:
        number = os.getpid() % 16000  # others of its kind may run beside it
        self.name, self.link = f"tft-{number}", f"tft{number}"
        net = f"10.213.{number // 64}"
        self.here, self.there = (f"{net}.{number % 64 * 4 + host}" for host in (1, 2))
        self._run("ip", "netns", "add", self.name)
        self._run("ip", "link", "add", self.link, "type", "veth", "peer", "name", "inner", "netns", self.name)
        self._run("ip", "address", "add", f"{self.here}/30", "dev", self.link)
        self._run("ip", "link", "set", self.link, "up")
        self._run("ip", "-n", self.name, "address", "add", f"{self.there}/30", "dev", "inner")
        self._run("ip", "-n", self.name, "link", "set", "inner", "up")

    @property
    def wrapper(self) -> list[str]:
        """What runs a command in it."""
        return ["ip", "netns", "exec", self.name]

    def drop(self, *directions: str) -> None:
        """Lose every packet of the rendezvous from now on, INPUT or OUTPUT; /status still gets through."""
        for direction in directions:
            side = "--sport" if direction == "INPUT" else "--dport"
            self._run(*self.wrapper, "iptables", "-A", direction, "-p", "tcp", side, self.port, "-j", "DROP")

    port = ""

    def restore(self) -> None:
        """Lose no more."""
        self._run(*self.wrapper, "iptables", "-F")

    def remove(self) -> None:
        """Everything is as before."""
        self._run("ip", "link", "delete", self.link)
        self._run("ip", "netns", "delete", self.name)

    @staticmethod
    def _run(*command: str) -> None:
        subprocess.run(command, check=True, capture_output=True, timeout=60)


@pytest.fixture
def network() -> Iterator[Network]:
    need_or_skip("ip", "iptables")
    made = Network()
    yield made
    made.remove()


DIRECTIONS = [
    ("INPUT",),
    pytest.param(("OUTPUT",), marks=pytest.mark.slow_fault),
    pytest.param(("INPUT", "OUTPUT"), marks=pytest.mark.slow_fault),
]


@pytest.mark.skipif(not ROOT, reason="needs root for a network namespace")
@pytest.mark.parametrize("directions", DIRECTIONS, ids="-".join)
def test_a_partition_ends_both_sides_before_the_next_round(
    tmp_path: Path, network: Network, directions: tuple[str, ...]
) -> None:
    with LocalGang(tmp_path, {"worker": 2}, *ENDLESS) as gang:
        network.port = str(gang.rendezvous)
        gang.hosts = {"worker-0": network.here, "worker-1": network.there}
        gang.wrappers["worker-1"] = network.wrapper
        gang.start()
        gang.wait_for_phase("Training")
        network.drop(*directions)
        gang.wait_for(lambda: gang.status("worker-1")["pid"] is None)
        status = gang.wait_for_phase("Restarting")
        assert (status["lastRestart"]["reason"], status["ledger"]["processFailures"]) == ("MemberLost", 0)
        network.restore()
        gang.wait_for_phase("Training", 2)
        assert not gang.violations()


@pytest.mark.slow_fault
@pytest.mark.skipif(not ROOT, reason="needs root for a network namespace")
def test_a_lost_member_is_replaced_while_its_old_launcher_is_partitioned(tmp_path: Path, network: Network) -> None:
    with LocalGang(tmp_path, {"worker": 2}, *ENDLESS) as gang:
        network.port = str(gang.rendezvous)
        gang.hosts = {"worker-0": network.here, "worker-1": network.there}
        gang.wrappers["worker-1"] = network.wrapper
        gang.start()
        gang.wait_for_phase("Training")
        network.drop("INPUT", "OUTPUT")
        gang.retired.append(gang.launchers["worker-1"])
        gang.hosts["worker-1"] = network.here
        gang.wrappers.clear()
        gang.start("worker-1")
        status = gang.wait_for_phase("Training", 2)
        assert status["ledger"]["processFailures"] == 0
        assert not gang.violations()
