"""Who stands still: members that report steps and have made none for too long.

Pure. It must never accuse a program that has never reported anything, nor one that has ended: silence is no proof.
A program that dials its peers makes no step either, and is no silent one: in that call it can only wait.
"""

from __future__ import annotations

from dataclasses import dataclass

from tftraining.launch.snapshot import Snapshot


@dataclass(frozen=True)
class Look:
    """One member's program in the present round.

    `reporter`: it is known to report, from this round or an earlier one, or to wait for its peers. `stuck`: the
    seconds for which the kernel has had it stopped or hanging.
    """

    member: str
    reporter: bool
    started: float
    progress: Snapshot
    stuck: float

    @property
    def moved(self) -> float:
        """When it made its last step, or started."""
        return max(self.started, self.progress.last_step_time or self.started)


def stalled(looks: list[Look], timeout: float, now: float) -> list[str]:
    """The members to blame when no step was made for `timeout` seconds; nobody as long as all move.

    Members that train together stop at the same step, whoever is the cause: a stopped process is the cause, then who is
    behind the others; with neither, all are named.
    """
    watched = [look for look in looks if look.reporter]
    if not any(now - look.moved > timeout for look in watched):
        return []
    frozen = [look.member for look in looks if look.stuck > 0]
    if frozen:
        return frozen
    least = min(look.progress.step or 0 for look in watched)
    return [look.member for look in watched if (look.progress.step or 0) == least]
