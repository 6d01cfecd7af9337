"""Detects whether the kernel's OOM killer has killed a process of this container.

On cgroup v1 only the process dies, by SIGKILL, and the pod's status never says why; on v2 that depends on the runtime.
The kernel counts these kills per memory cgroup. It only reads files, and must never raise: the count is unknown if the
files cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def count_kills(root: Path = CGROUPS, membership: Path = MEMBERSHIP) -> int | None:
    """The number of OOM kills in this memory cgroup so far; None if the kernel does not count them."""
    for directory in _directories(root, membership):
        for name in ("memory.events", "memory.oom_control"):
            if (count := _counter(directory / name)) is not None:
                return count
        # Kernels before 4.13 count only how often the limit was hit; with a SIGKILL that implies an OOM kill.
        if (count := _number(directory / "memory.failcnt")) is not None:
            return count
    return None


def has_risen(before: int | None, after: int | None) -> bool:
    """Whether the count has risen between two reads."""
    return before is not None and after is not None and after > before


def _directories(root: Path, membership: Path) -> Iterator[Path]:
    """The possible directories of this process's memory cgroup: its full path, or the root, as in most containers."""
    version_2, version_1 = "", ""
    for line in _read(membership).splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if "memory" in controllers.split(","):
            version_1 = path
        elif controllers == "":
            version_2 = path
    if version_1:
        yield root / "memory" / version_1.lstrip("/")
        yield root / "memory"
    elif version_2:
        yield root / version_2.lstrip("/")
        yield root


def _counter(path: Path) -> int | None:
    found = (line.split() for line in _read(path).splitlines() if line.startswith("oom_kill "))
    return next((int(words[1]) for words in found if len(words) == 2 and words[1].isdigit()), None)


def _number(path: Path) -> int | None:
    text = _read(path).strip()
    return int(text) if text.isdigit() else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""
