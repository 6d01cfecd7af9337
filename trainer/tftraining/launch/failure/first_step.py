"""A failure before the first step: the table of docs/behaviour.md, which the launchers and the operator go by.

Pure. The rules of the job come first (restart_rules.py). Then, by whether the job has made steps before:

    no      the program cannot be imported or started           the job fails            `fails_for_good`
    no      the same exception sameFailureLimit times in a row  the job fails            `place_of`
    either  twice in a row, of a member whose program has run
            longer in this pod before                           a new pod for it         `Starts`
    either  sameMemberLimit times in a row of one member        on another node          same_member.py
    either  anything else                                       a restart in place

It must never end a job that a restart could help: once a job has made steps, its program is known to start.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tftraining.launch.failure.exit import FATAL, OOM_KILLED, SIGNALED, Exit
from tftraining.launch.failure.same_failure import key_of
from tftraining.launch.failure.traceback_folding import of_a_lost_peer
from tftraining.launch.progress import QUIET_START, Snapshot

UNCLEAN = "UncleanContainer"  # the reason of a new pod for a member whose program no longer starts in its container
IN_A_ROW = 2  # failed starts
WITHOUT_STEPS = 600.0  # seconds after which a program that reports nothing has certainly come further than before


def fails_for_good(reason: str, job_stepped: bool) -> bool:
    """Whether the program cannot be imported or started, and so would fail after any restart."""
    return reason in FATAL and not job_stepped


def has_stepped(told: Snapshot, reporter: bool, ran: float) -> bool:
    """Whether a program that ended after `ran` seconds had made a step; `reporter`: it reports its steps. Any other is
    assumed to make steps after QUIET_START, as everywhere."""
    return told.first_step_time is not None or (not reporter and ran >= QUIET_START)


def place_of(told: Snapshot, reporter: bool, ran: float, job_stepped: bool) -> str | None:
    """Where a program failed after `ran` seconds: "epoch/step", "" without reports; None where failures do not count.

    A program that resumes between two epochs and fails in a callback has begun its epoch, but made no step.
    """
    if reporter and (told.first_step_time is not None or told.epoch is not None):
        return f"{told.epoch}/{told.step}"
    if not has_stepped(told, reporter, ran):
        return None if job_stepped else ""
    return "" if ran <= WITHOUT_STEPS else None


def failure_key(ended: Exit, told: Snapshot, reporter: bool, ran: float, job_stepped: bool) -> str:
    """The key by which same_failure.py recognizes the failure; "" if it does not count."""
    return key_of(ended, place_of(told, reporter, ran, job_stepped), has_stepped(told, reporter, ran))


def failed_at_start(ended: Exit, told: Snapshot, reporter: bool, ran: float) -> bool:
    """Whether a program ended by a failure of its own before its first step. A signal (128 + n from a shell) comes from
    outside, as a kill or the end of the memory; a lost peer is no failure of its own."""
    own = ended.signal is None and 0 < (ended.code or 0) <= SIGNALED and ended.kind != OOM_KILLED
    return own and not of_a_lost_peer(ended.exception) and not has_stepped(told, reporter, ran)


@dataclass
class Starts:
    """The starts of one member's program in its present pod: whether something that an earlier round has left in the
    container, such as a directory or a lock, keeps it from starting."""

    longest: float = 0.0  # seconds of a round that no failed start of this program has ended
    shortest: float = math.inf  # seconds of a failed start
    failed: int = 0  # in a row
    stepped: bool = False  # it has made a step in this pod

    def record_exit(self, ended: Exit, told: Snapshot, reporter: bool, ran: float, restored: bool = False) -> None:
        """Note that the program ended by itself after `ran` seconds; `restored`: it had restored a backup in memory, so
        the container let it start, and the backup may be the cause."""
        if not restored and failed_at_start(ended, told, reporter, ran):
            self.failed, self.shortest = self.failed + 1, min(self.shortest, ran)
        else:
            self.record_stop(told, reporter, ran)

    def record_stop(self, told: Snapshot, reporter: bool, ran: float) -> None:
        """Note that the program was stopped after `ran` seconds."""
        self.longest = max(self.longest, ran)
        if has_stepped(told, reporter, ran):
            self.stepped, self.failed, self.shortest = True, 0, math.inf

    @property
    def are_spoilt(self) -> bool:
        """Whether the program has failed twice in a row where it has run longer before."""
        return self.failed >= IN_A_ROW and self.longest > self.shortest

    def describe(self, member: str) -> str:
        """Why the member leaves for a new pod, in words."""
        if not self.are_spoilt:
            return f"{member} has made no step in its pod yet, and leaves it with the others"
        return f"{member} failed {self.failed} times in a row before its first step, in a pod where it had run longer"
