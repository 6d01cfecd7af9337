"""The memory that a job may use on this machine: the limit of the cgroup of `tftj`, otherwise what is available.

It only reads files: a figure that cannot be read is None.
"""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")


def memory_for_job(root: Path = ROOT) -> int | None:
    """The bytes that all replicas together may use; None if Linux does not tell."""
    machine = _meminfo(root)
    total = machine.get("MemTotal:")
    # Without a limit, cgroup v1 has a number near 2**63 here, and v2 a word.
    limits = [each for each in _cgroup_limits(root) if total is None or each < total]
    return min(limits, default=machine.get("MemAvailable:"))


def _cgroup_limits(root: Path) -> Iterator[int]:
    """The limits of this process's memory cgroup, by its full path, or at the root of the mount, as in a container."""
    mounted = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if "memory" in controllers.split(","):
            places, name = (mounted / "memory" / path.lstrip("/"), mounted / "memory"), "memory.limit_in_bytes"
        elif controllers == "":
            places, name = (mounted / path.lstrip("/"), mounted), "memory.max"
        else:
            continue
        yield from (int(text) for place in places if (text := _text(place / name).strip()).isdigit())


def _meminfo(root: Path) -> dict[str, int]:
    words = (line.split() for line in _text(root / "proc/meminfo").splitlines())
    return {each[0]: int(each[1]) * 1024 for each in words if len(each) == 3 and each[1].isdigit()}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
