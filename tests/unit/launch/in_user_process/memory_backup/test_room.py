"""Whether there is memory for two copies, and what Linux says about it, from files as Linux writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tftraining.launch.in_user_process.memory_backup.room import NO_LIMIT, Limits, Used, measure, measure_now, objection

MIB = 1 << 20
MACHINE = {"machine": 1000 * MIB, "available": 500 * MIB}


@pytest.mark.parametrize(
    ("limits", "used", "resumed", "why"),
    [
        (Limits(None, None), Used(), False, NO_LIMIT),
        (Limits(None, None), Used(), True, NO_LIMIT),
        (Limits(None, 20 * MIB), Used(**MACHINE), False, ""),
        (Limits(None, 19 * MIB), Used(), False, "two copies need 20 MiB, and sizeLimit is 19 MiB"),
        (Limits(None, 19 * MIB), Used(), True, "two copies need 20 MiB, and sizeLimit is 19 MiB"),
        (Limits(100 * MIB, None), Used(peak=60 * MIB, **MACHINE), False, ""),
        (
            Limits(100 * MIB, None),
            Used(peak=61 * MIB),
            False,
            "two copies need 20 MiB, more than half of what is left: the limit is 100 MiB, the peak 61 MiB",
        ),
        (
            Limits(100 * MIB, 99 * MIB),
            Used(peak=120 * MIB),
            False,
            "two copies need 20 MiB, more than half of what is left: the limit is 100 MiB, the peak 120 MiB",
        ),
        (Limits(100 * MIB, None), Used(peak=99 * MIB, now=90 * MIB), True, ""),
        (Limits(100 * MIB, None), Used(now=91 * MIB), True, "memory is short: 91 MiB of 100 MiB are in use"),
        (
            Limits(None, 20 * MIB),
            Used(machine=1000 * MIB, available=49 * MIB),
            False,
            "memory is short: 49 MiB of the machine's 1000 MiB are available",
        ),
    ],
)
def test_why_there_is_no_memory_for_copies(limits: Limits, used: Used, resumed: bool, why: str) -> None:
    assert objection(20 * MIB, limits, used, resumed=resumed) == why


@pytest.fixture
def linux(tmp_path: Path) -> Path:
    """A machine with process 7, its child 8 and another process."""
    for pid, parent, peak, now in ((7, 1, 30, 20), (8, 7, 10, 5), (9, 1, 500, 400)):
        write(tmp_path / f"proc/{pid}/stat", f"{pid} (a) b) S {parent} 0 0\n")
        write(tmp_path / f"proc/{pid}/status", f"Name:\ta\nVmHWM:\t{peak * 1024} kB\nVmRSS:\t{now * 1024} kB\n")
    write(tmp_path / "proc/meminfo", f"MemTotal:  {1000 * 1024} kB\nMemAvailable: {500 * 1024} kB\n")
    return tmp_path


def write(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(str(text))


def version_2(root: Path, own: str, limit: object) -> None:
    write(root / "proc/self/cgroup", f"0::{own}\n")
    group = root / "sys/fs/cgroup"
    for name, number in (("max", limit), ("peak", 90 * MIB), ("current", 60 * MIB)):
        write(group / f"memory.{name}", f"{number}\n")
    write(group / "memory.stat", f"anon 1\ninactive_file {10 * MIB}\nactive_file {20 * MIB}\n")


def version_1(root: Path, own: str, limit: object) -> None:
    write(root / "proc/self/cgroup", f"5:cpu,cpuacct:/\n4:memory:{own}\n0::/\n")
    group = root / "sys/fs/cgroup/memory" / own.strip("/")
    for name, number in (("limit", limit), ("max_usage", 90 * MIB), ("usage", 60 * MIB)):
        write(group / f"memory.{name}_in_bytes", f"{number}\n")
    write(group / "memory.stat", f"cache 7\ntotal_inactive_file {10 * MIB}\ntotal_active_file {20 * MIB}\n")


@pytest.mark.parametrize("version", [version_1, version_2])
def test_the_containers_cgroup_counts_without_the_cache_of_files(linux: Path, version: object) -> None:
    assert callable(version)
    version(linux, "/", 200 * MIB)
    assert measure(200 * MIB, str(linux), 7) == Used(60 * MIB, 30 * MIB, **MACHINE)
    assert measure_now(200 * MIB, str(linux)) == Used(0, 30 * MIB, **MACHINE)


def test_the_path_of_a_cgroup_may_be_that_of_the_host(linux: Path) -> None:
    version_2(linux, "/kubepods/pod1/2", 200 * MIB)
    assert measure(200 * MIB, str(linux), 7).now == 30 * MIB


def test_a_process_may_have_needed_more_than_the_cgroup_without_its_present_cache(linux: Path) -> None:
    version_2(linux, "/", 200 * MIB)
    write(linux / "proc/8/status", f"VmHWM: {50 * 1024} kB\n")
    assert measure(200 * MIB, str(linux), 7).peak == 80 * MIB


@pytest.mark.parametrize("limit", ["max", 300 * MIB])
def test_of_another_cgroup_the_processes_of_the_program_count(linux: Path, limit: object) -> None:
    version_2(linux, "/", limit)
    assert measure(200 * MIB, str(linux), 7) == Used(40 * MIB, 25 * MIB, **MACHINE)
    assert measure_now(200 * MIB, str(linux)) == Used(**MACHINE)


def test_without_proc_nothing_is_known(tmp_path: Path) -> None:
    assert measure(1, str(tmp_path)) == Used()
    assert objection(1, Limits(2, None), measure(2, str(tmp_path))) == ""


def test_on_this_machine_the_program_is_measured() -> None:
    used = measure(None, pid=os.getpid())
    assert used.peak >= used.now > 5 * MIB
    assert used.machine > used.available > 0
