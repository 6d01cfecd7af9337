"""An incident, the cause of a round's end: the member that failed first, how, and whether the budget is charged.

Pure. One incident is at most one charge: the exits that it causes are never charged.
"""

from __future__ import annotations

import json
import signal as signals
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tftraining.launch.failure.exception import LENGTH, exception_of
from tftraining.launch.failure.exit import IMPORT_ERROR, KERAS3_FIT, NOT_FOUND, SYNTAX_ERROR, Exit

FATAL = {
    NOT_FOUND: "the command was not found",
    SYNTAX_ERROR: "the program has a syntax error",
    IMPORT_ERROR: "the program cannot import a module",
    KERAS3_FIT: (
        "fit of Keras 3 cannot train two or more workers here: install keras 3.10 to 3.15, which the launcher patches "
        "(spec.launcher.keras: Auto), or tf_keras, and write `import tf_keras as keras`"
    ),
}
DIFFERS = "ResumedTrainingDiffers"  # the reason of the restart after a resumed training that was found to differ
TAIL_BYTES = 12 * 1024  # of JSON for the last output lines, so that they always fit into a frame
LINE_LENGTH = 500
CHARACTER_BYTES = 12  # the largest size of one character in JSON


@dataclass(frozen=True)
class Incident:
    """Why a round ended, or one member's program. `at` is in monotonic, `time` in wall-clock seconds."""

    member: str
    reason: str  # Error, Killed, Stalled, MemberLost, Terminated, ResumedTrainingDiffers, or the kind of the exit
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
    suspects: Sequence[tuple[int, int]] = ()  # backups in memory for the members to remove (suspect_copies.py)


def exit_from_frame(raw: Mapping[str, Any]) -> Exit:
    """A program's exit from its launcher's frame; TypeError or ValueError for invalid fields."""
    code, number = raw.get("code"), raw.get("signal")
    lines = tuple(str(line) for line in raw.get("lines", ()))
    # An older launcher sends only the lines.
    exception = str(raw["exception"])[:LENGTH] if "exception" in raw else exception_of(lines) if code == 1 else ""
    ended = (None if code is None else int(code), None if number is None else int(number))
    return Exit(*ended, lines, str(raw["kind"]), exception)


def exit_to_frame(ended: Exit) -> dict[str, Any]:
    """The exit as fields of a frame, with bounded output lines."""
    told = {"code": ended.code, "signal": ended.signal, "kind": ended.kind, "exception": ended.exception}
    return {**told, "lines": bounded(ended.lines)}


def exit_to_status(ended: Exit | None) -> dict[str, Any]:
    """The exit as fields of /status and of the termination message, which the operator reads."""
    if ended is None:
        return {"exitCode": None, "signal": None, "exception": ""}
    return {"exitCode": ended.code, "signal": ended.signal, "exception": ended.exception}


def bounded(lines: tuple[str, ...], limit: int = TAIL_BYTES) -> list[str]:
    """As many of the last `lines`, each cut to LINE_LENGTH, as fit into `limit` bytes of JSON."""
    kept = [line[:LINE_LENGTH] for line in lines]
    while kept and len(json.dumps(kept)) > limit:
        kept.pop(0)
    return kept


def cut(text: str, limit: int) -> str:
    """The beginning of a text that fits into `limit` bytes of JSON."""
    text = text[:limit]
    while text and (over := len(json.dumps(text)) - limit) > 0:
        text = text[: -max(1, over // CHARACTER_BYTES)]
    return text


def reason_of(ended: Exit) -> str:
    """The reason of a failed exit, in one word."""
    if ended.kind:
        return ended.kind
    return "Killed" if ended.signal == signals.SIGKILL else "Error"


def exit_code(ended: Exit | None) -> int:
    """The exit code as a shell reports it: 128 + n for signal n; 1 if unknown."""
    if ended is None:
        return 1
    return 128 + ended.signal if ended.signal is not None else ended.code or 1
