"""Decides whether there is memory for the copies of the training state, by what the training has used at most.

`objection` and `shortage` are pure and return the reason against copies, "" for none. The others ask Linux: the memory
cgroup if it is the container's own, otherwise the processes. The page cache of files does not count: Linux takes it
back when memory is short. A figure that cannot be read is 0 and stands in the way of nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

NO_LIMIT = "no memory limit: set spec.launcher.memoryBackup.sizeLimit"
PART = 0.5  # of the memory that is left, for the copies
FULL = 0.9  # of the limit: above it there are no copies
FEW = 0.05  # of the machine's memory: with less available, there are no copies
_UNITS = {"kB": 1024}


@dataclass(frozen=True)
class Limits:
    """Bytes: of the container, or of this job on this machine (`memory`); for all copies of a member (`size`)."""

    memory: int | None
    size: int | None


@dataclass(frozen=True)
class Used:
    """Bytes of memory in use: at most, now, and what the machine has in all and available."""

    peak: int = 0
    now: int = 0
    machine: int = 0
    available: int = 0


def objection(need: int, limits: Limits, used: Used, *, resumed: bool = False, copies: str = "two") -> str:
    """Why `need` bytes of copies may not be taken. After a restore (`resumed`) the peak includes copies."""
    if limits.memory is None and limits.size is None:
        return NO_LIMIT
    if limits.size is not None and need > limits.size:
        return f"{copies} copies need {mib(need)}, and sizeLimit is {mib(limits.size)}"
    if limits.memory is not None and not resumed and need > PART * max(0, limits.memory - used.peak):
        limit, peak = mib(limits.memory), mib(used.peak)
        return (
            f"{copies} copies need {mib(need)}, more than half of what is left: the limit is {limit}, the peak {peak}"
        )
    return shortage(limits, used)


def shortage(limits: Limits, used: Used) -> str:
    """Why the memory of the copies has to be given back."""
    if limits.memory is not None and used.now > FULL * limits.memory:
        return f"memory is short: {mib(used.now)} of {mib(limits.memory)} are in use"
    if used.available < FEW * used.machine:
        return f"memory is short: {mib(used.available)} of the machine's {mib(used.machine)} are available"
    return ""


def mib(size: int) -> str:
    """Bytes as people write them."""
    return f"{round(size / (1 << 20))} MiB"


def measure(limit: int | None, root: str = "/", pid: int = 0) -> Used:
    """What is in use and was at most. `limit`: of the container, if known: the cgroup that has it is its own."""
    machine, available = _machine(root)
    processes = _processes(root, pid)
    # The peak of the processes, too: that of the cgroup may have been reached while it had less cache.
    peak = sum(each.get("VmHWM", 0) for each in processes)
    if (group := _own_group(root, limit)) is not None:
        return Used(max(peak, group[0]), group[1], machine, available)
    return Used(peak, sum(map(_resident, processes)), machine, available)


def measure_now(limit: int | None, root: str = "/") -> Used:
    """What is in use now, without the peak, cheap enough to ask often. Without a cgroup of the container's own it
    counts this process alone, because looking at all processes takes milliseconds."""
    group = _own_group(root, limit)
    now = group[1] if group is not None else _resident(_numbers(os.path.join(root, "proc/self/status")))
    return Used(0, now, *_machine(root))


def _machine(root: str) -> tuple[int, int]:
    """The machine's memory: all, and what is available."""
    told = _numbers(os.path.join(root, "proc/meminfo"))
    return told.get("MemTotal", 0), told.get("MemAvailable", 0)


def _processes(root: str, pid: int) -> list[dict[str, int]]:
    return [_numbers(os.path.join(root, f"proc/{each}/status")) for each in _tree(root, pid or os.getpid())]


def _resident(status: dict[str, int]) -> int:
    """The memory of a process in /proc/<pid>/status, without the pages of files."""
    return status["RssAnon"] + status.get("RssShmem", 0) if "RssAnon" in status else status.get("VmRSS", 0)


def _own_group(root: str, limit: int | None) -> tuple[int, int] | None:
    """The peak and the present use of the container's memory cgroup; None if that cannot be read."""
    for directory, (most, highest, present, *cached) in _cgroups(root):
        if limit is not None and 0 < _number(os.path.join(directory, most)) <= 1.01 * limit:
            stat = _numbers(os.path.join(directory, "memory.stat"))
            cache = sum(stat.get(name, 0) for name in cached)
            now = max(0, _number(os.path.join(directory, present)) - cache)
            return max(now, _number(os.path.join(directory, highest)) - cache), now
    return None


_V2 = ("memory.max", "memory.peak", "memory.current", "inactive_file", "active_file")
_V1 = (
    "memory.limit_in_bytes",
    "memory.max_usage_in_bytes",
    "memory.usage_in_bytes",
    "total_inactive_file",
    "total_active_file",
)


def _cgroups(root: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The memory cgroup of this process: its directory and the names of its figures, version 1 or 2."""
    mounted = os.path.join(root, "sys/fs/cgroup")
    for line in _lines(os.path.join(root, "proc/self/cgroup")):
        _, controllers, path = ["", "", "", *line.split(":", 2)][-3:]
        if controllers == "" or "memory" in controllers.split(","):
            place, names = (mounted, _V2) if controllers == "" else (os.path.join(mounted, "memory"), _V1)
            # In a container the path may be that of the host, and the mounted directory the container's own.
            own = place + path.rstrip("/")
            directory = own if os.path.isfile(os.path.join(own, names[0])) else place
            if os.path.isfile(os.path.join(directory, names[0])):
                yield directory, names


def _tree(root: str, pid: int) -> list[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(os.path.join(root, "proc")):
            if name.isdigit() and (fields := " ".join(_lines(os.path.join(root, f"proc/{name}/stat")))):
                parent = int(fields.rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def _numbers(path: str) -> dict[str, int]:
    """The numbers of a file with a name and a number a line."""
    found = {}
    for line in _lines(path):
        name, number, *unit = [*line.replace(":", " ").split(), "", ""][:3]
        if number.isdigit():
            found[name] = int(number) * _UNITS.get("".join(unit), 1)
    return found


def _number(path: str) -> int:
    return next((int(line) for line in _lines(path) if line.isdigit()), 0)


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []
