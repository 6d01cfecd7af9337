"""How much memory a job may use on this machine, from files as Linux has them."""

from pathlib import Path

import pytest

from tftraining_client.local.memory import memory_for_job

MIB = 1024**2
MEMINFO = "MemTotal:        8192 kB\nMemFree:  10 kB\nMemAvailable:    6144 kB\nHugePages_Total:       0\n"
V1 = "4:memory:/job/a\n1:cpu:/\n0::/\n"
V2 = "0::/user.slice/a.scope\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine of 8 MiB with 6 MiB available."""
    write(tmp_path, "proc/meminfo", MEMINFO)
    return tmp_path


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_a_machine_without_limits_gives_what_is_available(root: Path) -> None:
    write(root, "proc/self/cgroup", V1)
    write(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert memory_for_job(root) == 6 * MIB
    write(root, "proc/self/cgroup", V2)
    write(root, "sys/fs/cgroup/user.slice/a.scope/memory.max", "max\n")
    assert memory_for_job(root) == 6 * MIB


@pytest.mark.parametrize(
    ("membership", "path"),
    [
        (V1, "memory/job/a/memory.limit_in_bytes"),
        (V1, "memory/memory.limit_in_bytes"),  # in a container the path is that of the host
        (V2, "user.slice/a.scope/memory.max"),
        (V2, "memory.max"),
    ],
)
def test_the_limit_of_the_cgroup_counts(root: Path, membership: str, path: str) -> None:
    write(root, "proc/self/cgroup", membership)
    write(root, f"sys/fs/cgroup/{path}", f"{2 * MIB}\n")
    assert memory_for_job(root) == 2 * MIB


def test_nothing_is_known_without_the_files(tmp_path: Path) -> None:
    assert memory_for_job(tmp_path) is None


def test_this_machine_has_some() -> None:
    assert (memory_for_job() or 0) > MIB
