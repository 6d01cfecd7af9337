"""Whether the kernel has killed a process of this container for lack of memory.

On cgroup v1 only the process dies, by SIGKILL, and the pod's status never says why; on v2 that depends on the runtime.
The kernel counts these kills for each memory cgroup. Reads files and nothing else; it must never raise: where nothing
can be read, nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def kills(root: Path = CGROUPS, membership: Path = MEMBERSHIP) -> int | None:
    """How many processes of this memory cgroup were killed so far, None if nobody counts."""
    for directory in _directories(root, membership):
        for name in ("memory.events", "memory.oom_control"):
            if (count := _counter(directory / name)) is not None:
                return count
        # Kernels before 4.13 count only how often the limit was hit; together with a SIGKILL that says as much.
        if (count := _number(directory / "memory.failcnt")) is not None:
            return count
    return None


def rose(before: int | None, after: int | None) -> bool:
    """Whether there was a kill between two looks."""
    return before is not None and after is not None and after > before


def _directories(root: Path, membership: Path) -> Iterator[Path]:
    """Where this process's memory cgroup may be seen: by its whole path, or at the top, as in most containers."""
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
