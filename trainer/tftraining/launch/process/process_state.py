"""The kernel's view of a process: stopped (SIGSTOP, a debugger) or hanging in a system call, and for how long; whether
it handles a signal.

It only reads /proc, and must never raise: a process that is gone counts as neither stuck nor handling a signal.
"""

from __future__ import annotations

from pathlib import Path


class StuckDetector:
    """How long a process has been stopped or hanging in the kernel, as far as regular checks can tell."""

    def __init__(self) -> None:
        self._since: float | None = None

    def stuck_seconds(self, pid: int | None, now: float) -> float:
        """Seconds up to `now` in which every check found the process stopped or hanging."""
        if pid is None or _read_state(pid) not in ("T", "t", "D"):
            self._since = None
            return 0.0
        self._since = now if self._since is None else self._since
        return now - self._since


def handles_signal(pid: int, number: int) -> bool:
    """Whether the process has a handler for a signal; an exec(2) removes handlers."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
    except (OSError, ValueError, IndexError, StopIteration):
        return False
    return bool(caught >> (number - 1) & 1)


def _read_state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
