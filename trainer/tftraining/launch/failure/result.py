"""The job's result, and its form in a frame and in the termination message of a pod. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tftraining.launch.failure.exit import Exit, bounded, cut, exit_from_frame, exit_to_frame, exit_to_status
from tftraining.launch.failure.restart_budget import Ledger

MESSAGE_BYTES = 4096  # the kubelet's limit; it cuts a longer message in the middle
TOLD_BYTES = 1500
EXCEPTION_BYTES = 400
WORDS_BYTES = 1500  # of the verdict's message as JSON, in which a character may be 12 bytes
SUCCEEDED = "Succeeded"
FAILED = "Failed"


@dataclass(frozen=True)
class Result:
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
    def from_frame(cls, raw: Mapping[str, Any]) -> Result:
        """The verdict of a frame; KeyError, TypeError or ValueError if the frame is invalid."""
        ended = None if raw["exit"] is None else exit_from_frame(raw["exit"])
        return cls(str(raw["verdict"]), str(raw["reason"]), str(raw["message"]), raw["member"], ended)


def _head(verdict: Result) -> dict[str, Any]:
    return {"verdict": verdict.verdict, "reason": verdict.reason, "message": cut(verdict.message, WORDS_BYTES)}


def termination_message(verdict: Result, ledger: Ledger, told: Mapping[str, Any]) -> str:
    """The message that the operator reads from an ended pod: a line of JSON, then as many of the last lines as fit.

    `told` is the last progress and restart of /status, in case the operator has not read them in time; left out if it
    is too long.
    """
    ended = verdict.exit
    head = {
        **(told if len(json.dumps(told)) < TOLD_BYTES else {}),
        **_head(verdict),
        "member": verdict.member,
        **exit_to_status(ended),
        "exception": "" if ended is None else cut(ended.exception, EXCEPTION_BYTES),
        "ledger": ledger.to_json(),
    }
    text = f"tftraining/1 {json.dumps(head)}\n"
    # A line's JSON is never shorter than its UTF-8, so lines that fit as JSON fit in the file.
    lines = bounded(ended.lines, MESSAGE_BYTES - len(text)) if ended is not None else []
    return text + "".join(f"{line}\n" for line in lines)
