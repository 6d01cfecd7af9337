"""Finds stalled members: those that report steps and have made none for too long, which restarts the gang where the
user has set a limit (stallTimeoutSeconds), and is only told where the limit follows from the training itself (NoStep).

Pure. It must never name a program that has never reported anything, nor one that has ended: silence proves nothing.
A program that connects to its peers makes no step either, but is watched: in that call it can only wait.
"""

from __future__ import annotations

from dataclasses import dataclass

from tftraining.launch.progress import Snapshot

NO_STEP_SECONDS, NO_STEP_GAPS = 600.0, 10


@dataclass(frozen=True)
class WatchedProgram:
    """One member's program in the present round.

    `is_watched`: it has reported in this round or an earlier one, or waits for its peers. `stuck_seconds`: how long it
    has been stopped or hanging in the kernel. `longest_gap`: the longest time between two of its steps so far, seconds.
    """

    member: str
    is_watched: bool
    started_at: float
    progress: Snapshot
    stuck_seconds: float
    longest_gap: float = 0.0

    @property
    def last_step_at(self) -> float:
        """When the program made its last step, or started."""
        return max(self.started_at, self.progress.last_step_time or self.started_at)


def limit(program: WatchedProgram) -> float:
    """For how many seconds a program that trains may make no step: evaluations and saves are gaps, too."""
    return max(NO_STEP_SECONDS, NO_STEP_GAPS * program.longest_gap)


def find_without_step(programs: list[WatchedProgram], now: float) -> list[WatchedProgram]:
    """The programs that train, and stand still beyond their own limit; the stalled ones of them."""
    late = [each for each in programs if each.progress.first_step_time is not None]
    late = [each for each in late if each.is_watched and now - each.last_step_at > limit(each)]
    names = find_stalled(programs, min(map(limit, late)), now) if late else []
    return [each for each in programs if each.member in names]


def find_stalled(programs: list[WatchedProgram], timeout: float, now: float) -> list[str]:
    """The stalled members once one has made no step for `timeout` seconds; none while all make steps.

    Members that train together stop at the same step, whichever is the cause. So these are the members whose
    processes are stopped, else the members with the fewest steps, which may be all.
    """
    watched = [program for program in programs if program.is_watched]
    if not any(now - program.last_step_at > timeout for program in watched):
        return []
    frozen = [program.member for program in programs if program.stuck_seconds > 0]
    if frozen:
        return frozen
    fewest_steps = min(program.progress.step or 0 for program in watched)
    return [program.member for program in watched if (program.progress.step or 0) == fewest_steps]
