"""What ended a round: which member was first, how, whether the program is to blame, and whether a restart can help.

Pure. One incident is one charge: the exits that follow from it are never charged.
"""

from __future__ import annotations

import json
import signal as signals
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tftraining.launch.ending import IMPORT_ERROR, KERAS3_FIT, NOT_FOUND, OOM_KILLED, SYNTAX_ERROR, Exit
from tftraining.launch.exception import LENGTH, exception_of

FATAL = {
    NOT_FOUND: "the command was not found",
    SYNTAX_ERROR: "the program has a syntax error",
    IMPORT_ERROR: "the program cannot import what it needs",
    KERAS3_FIT: (
        "model.fit of Keras 3 does not work with two or more workers: install tf_keras in the image (the launcher then "
        "sets TF_USE_LEGACY_KERAS=1), or use a custom training loop"
    ),
}
TAIL_BYTES = 12 * 1024  # of the last lines, so that a frame has room for them whatever they are
LINE_LENGTH = 500
CHARACTER_BYTES = 12  # of JSON, at most


@dataclass(frozen=True)
class Incident:
    """Why the gang has to start again. `at` is monotonic, `time` wall-clock seconds."""

    member: str
    reason: str  # Error, Killed, Stalled, MemberLost, Terminated, or the kind of the exit
    message: str
    charged: bool
    at: float
    time: float
    exit: Exit | None = None
    step: int | None = None  # the highest that any member had reached
    alone: bool = False  # the others go on
    same: str = ""  # what it would be known again by (see same_failure.py)


def exit_from_frame(raw: Mapping[str, Any]) -> Exit:
    """How a program ended, as its launcher told; TypeError or ValueError if the fields are wrong."""
    code, number = raw.get("code"), raw.get("signal")
    lines = tuple(str(line) for line in raw.get("lines", ()))
    # An older launcher tells only the lines.
    exception = str(raw["exception"])[:LENGTH] if "exception" in raw else exception_of(lines) if code == 1 else ""
    ended = (None if code is None else int(code), None if number is None else int(number))
    return Exit(*ended, lines, str(raw["kind"]), exception)


def exit_to_frame(ended: Exit) -> dict[str, Any]:
    """The form in which it travels, its last lines bounded."""
    told = {"code": ended.code, "signal": ended.signal, "kind": ended.kind, "exception": ended.exception}
    return {**told, "lines": bounded(ended.lines)}


def bounded(lines: tuple[str, ...], limit: int = TAIL_BYTES) -> list[str]:
    """The last of `lines`, none longer than LINE_LENGTH, as many as are at most `limit` bytes of JSON."""
    kept = [line[:LINE_LENGTH] for line in lines]
    while kept and len(json.dumps(kept)) > limit:
        kept.pop(0)
    return kept


def cut(text: str, limit: int) -> str:
    """The beginning of a text, as much as is at most `limit` bytes of JSON."""
    text = text[:limit]
    while text and (over := len(json.dumps(text)) - limit) > 0:
        text = text[: -max(1, over // CHARACTER_BYTES)]
    return text


def reason_of(ended: Exit) -> str:
    """One word for a failed exit."""
    if ended.kind:
        return ended.kind
    return "Killed" if ended.signal == signals.SIGKILL else "Error"


def describe(member: str, ended: Exit) -> str:
    """`worker-1 was killed (SIGKILL)`, `worker-1: ValueError: boom`, `worker-1 failed with exit code 3: <last>`."""
    if ended.kind == OOM_KILLED:
        return f"{member} ran out of memory (OOMKilled)"
    if ended.signal is not None:
        return f"{member} was killed ({signal_name(ended.signal)})"
    last = ended.exception or next((line.strip() for line in reversed(ended.lines) if line.strip()), "")
    explained = FATAL.get(ended.kind)
    if ended.exception and not explained:
        return f"{member}: {ended.exception}"
    told = f": {explained}" if explained else ""
    return f"{member} failed with exit code {ended.code}{told}" + (f": {last[:300]}" if last else "")


def signal_name(number: int) -> str:
    """SIGKILL for 9."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


def exit_code(ended: Exit | None) -> int:
    """What a shell would say: 128 + n for a signal; 1 where there is nothing better."""
    if ended is None:
        return 1
    return 128 + ended.signal if ended.signal is not None else ended.code or 1
