"""A failure before the first step: the table of docs/behaviour.md, which the launchers and the operator go by.

Pure. The rules of the job come first (restart_rules.py). Then, by whether the job has made steps before:

    no      the program cannot be imported or started           the job fails            `fails_for_good`
    no      the same exception sameFailureLimit times in a row  the job fails            `place_of`
    either  anything else                                       a restart in place

It must never end a job that a restart could help: once a job has made steps, its program is known to start.
"""

from __future__ import annotations

from tftraining.launch.failure.exit import Exit
from tftraining.launch.failure.incident import FATAL
from tftraining.launch.failure.same_failure import key_of
from tftraining.launch.progress import QUIET_START, Snapshot

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
