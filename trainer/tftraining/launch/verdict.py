"""The job's result, and where it is stored: the verdict file in the job's directory, the termination message of a pod.

The file says that the job of this UID has succeeded, so a gang that is started again ends at once. It must never count
for another job, nor make a success fail: write errors go to the caller.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tftraining.launch.ending import Exit
from tftraining.launch.incident import bounded, cut, exit_from_frame, exit_to_frame
from tftraining.launch.json_text import parse
from tftraining.launch.ledger import Ledger

FILE = ".tftraining-verdict.json"
FILE_BYTES = 4096
MESSAGE_BYTES = 4096  # the kubelet's limit; it cuts a longer message in the middle
TOLD_BYTES = 1500
EXCEPTION_BYTES = 400
WORDS_BYTES = 1500  # of the verdict's message as JSON, in which a character may be 12 bytes
SUCCEEDED = "Succeeded"
FAILED = "Failed"


@dataclass(frozen=True)
class Verdict:
    """The end of a launcher's work; `verdict` is "" if the launcher was stopped before the job had ended."""

    verdict: str
    reason: str
    message: str
    member: str | None = None
    exit: Exit | None = None

    def to_frame(self) -> dict[str, Any]:
        """The form in which the chief sends it to the members."""
        ended = None if self.exit is None else exit_to_frame(self.exit)
        return {**_head(self), "member": self.member, "exit": ended}

    @classmethod
    def from_frame(cls, raw: Mapping[str, Any]) -> Verdict:
        """The verdict of a frame; KeyError, TypeError or ValueError if the frame is invalid."""
        ended = None if raw["exit"] is None else exit_from_frame(raw["exit"])
        return cls(str(raw["verdict"]), str(raw["reason"]), str(raw["message"]), raw["member"], ended)


def _head(verdict: Verdict) -> dict[str, Any]:
    return {"verdict": verdict.verdict, "reason": verdict.reason, "message": cut(verdict.message, WORDS_BYTES)}


def write_success(directory: Path, uid: str) -> None:
    """Write the verdict file: the job `uid` has succeeded. OSError if that fails."""
    directory.mkdir(parents=True, exist_ok=True)
    for left in directory.glob(f"{FILE}.*"):  # left by a launcher that was killed during the write
        left.unlink(missing_ok=True)
    # In a container every launcher has the same pid.
    temporary = directory / f"{FILE}.{secrets.token_hex(4)}"
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644), "w") as file:
            json.dump({"version": 1, "uid": uid, "verdict": SUCCEEDED}, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(directory / FILE)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def read_success(directory: Path | None, uid: str) -> Verdict | None:
    """The verdict of the file in the directory, if it is about the job `uid`; None otherwise."""
    if directory is None:
        return None
    try:
        with os.fdopen(os.open(directory / FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
            found = parse(file.read(FILE_BYTES))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or (found.get("uid"), found.get("verdict")) != (uid, SUCCEEDED):
        return None
    return Verdict(SUCCEEDED, "AlreadySucceeded", f"the job has succeeded before: {directory / FILE} says so")


def termination_message(verdict: Verdict, ledger: Ledger, told: Mapping[str, Any]) -> str:
    """The message that the operator reads from an ended pod: a line of JSON, then as many of the last lines as fit.

    `told` is the last progress and restart of /status, in case the operator has not read them in time; left out if it
    is too long.
    """
    ended = verdict.exit
    head = {
        **(told if len(json.dumps(told)) < TOLD_BYTES else {}),
        **_head(verdict),
        "member": verdict.member,
        "exitCode": None if ended is None else ended.code,
        "signal": None if ended is None else ended.signal,
        "exception": "" if ended is None else cut(ended.exception, EXCEPTION_BYTES),
        "ledger": ledger.to_json(),
    }
    text = f"tftraining/1 {json.dumps(head)}\n"
    # A line's JSON is never shorter than its UTF-8, so lines that fit as JSON fit in the file.
    lines = bounded(ended.lines, MESSAGE_BYTES - len(text)) if ended is not None else []
    return text + "".join(f"{line}\n" for line in lines)
