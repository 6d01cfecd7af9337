"""An incident, the cause of a round's end: the member that failed first, how, and whether the budget is charged.

Pure. One incident is at most one charge: the exits that it causes are never charged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tftraining.launch.failure.exit import Exit

MEMBER_LOST, TERMINATED = "MemberLost", "Terminated"  # a member is silent; it has received SIGTERM
LOSSES = (MEMBER_LOST, TERMINATED)  # as launchers see them; the operator knows more of a lost pod
RESIZED = "Resized"  # the spec's number of workers has changed
GROWN = "Grown"  # a lost worker is back
SPEC_CHANGED, RESTART_REQUESTED = "SpecChanged", "RestartRequested"
ASKED_FOR = (RESIZED, SPEC_CHANGED, RESTART_REQUESTED)
PLANNED = (*ASKED_FOR, GROWN)  # nothing has failed or was lost
REPLICAS_DIFFER = "ReplicasDiffer"  # the reason of the restart with spec.restartPolicy.onDivergence: Restore
DIFFERS = "ResumedTrainingDiffers"  # the reason of the restart after a resumed training that was found to differ


@dataclass(frozen=True)
class Incident:
    """Why a round ended, or one member's program. `at` is in monotonic, `time` in wall-clock seconds."""

    member: str
    # Error, Killed, Stalled, MemberLost, Terminated, ResumedTrainingDiffers, ReplicasDiffer, or the kind of the exit
    reason: str
    message: str
    charged: bool
    at: float
    time: float
    exit: Exit | None = None
    step: int | None = None  # the highest step of any member
    fit_start: int | None = None  # the steps of the program's earlier fits, which `step` counts too; None if unknown
    alone: bool = False  # only this member restarts
    same: str = ""  # the key by which same_failure.py recognizes a repeated failure
    steps_per_second: float | None = None  # before
    backup_skipped: str = ""  # why the members made no copy, though the end of the round was known before
    violation: str = ""  # how the resumed training of the round was found to differ from the undisturbed one
    others_well: bool = True  # no other member is known to have failed of its own
    moves: str = ""  # why the member leaves for a pod on another node (same_member.py)
    suspects: Sequence[tuple[int, int]] = ()  # backups in memory for the members to remove (suspect_copies.py)
    back_to: tuple[int, int] | None = None  # the backup in memory to which the training goes back (agreed_copy.py)
    back_from: int = 0  # a step that the training has not made yet, as the backups count
