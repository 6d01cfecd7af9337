"""A program's exit: its kind by code and last output lines, for some failures repeat after any restart; its reason; its
form in frames and in the status, with the bounds of the last lines.

Pure. What classifies an exit must never raise, whatever the program prints. The words for it are in
launch/failure_and_restart_messages.py.
"""

from __future__ import annotations

import json
import re
import signal as signals
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tftraining.launch.failure.exception import LENGTH

NOT_FOUND = "NotFound"
SYNTAX_ERROR = "SyntaxError"
IMPORT_ERROR = "ImportError"
KERAS3_FIT = "Keras3Fit"
OOM_KILLED = "OOMKilled"
FATAL = {
    NOT_FOUND: "the command was not found",
    SYNTAX_ERROR: "the program has a syntax error",
    IMPORT_ERROR: "the program cannot import a module",
    KERAS3_FIT: (
        "fit of Keras 3 cannot train two or more workers here: install keras 3.10 to 3.15, which the launcher patches "
        "(spec.launcher.keras: Auto), or tf_keras, and write `import tf_keras as keras`"
    ),
}
SIGNALED = 128  # a shell reports its child's signal n as exit code 128 + n
TAIL_BYTES = 12 * 1024  # of JSON for the last output lines, so that they always fit into a frame
LINE_LENGTH = 500
CHARACTER_BYTES = 12  # the largest size of one character in JSON

_SYNTAX = re.compile(r"^(SyntaxError|IndentationError|TabError)\b")
_IMPORT = re.compile(r"^(ImportError|ModuleNotFoundError)\b")
# The interpreter's own message for a missing script or module; it starts with the interpreter's name.
_NO_PROGRAM = re.compile(r"^\S*python\S*: (can't open file |No module named |Error while finding module spec)")
_PER_REPLICA = re.compile(r"\bunsupported type \(<class '[\w.]*\.PerReplica'>\) to a Tensor")
_LEGACY_BACKUP = re.compile(
    r"^RuntimeError: tftraining: the backup of another Keras: "
)  # in_user_process/keras3/files.py
# What CUDA, ROCm and NCCL say of the device itself. Not what healthy peers print (ncclRemoteError, ncclSystemError, the
# sick one's words), nor SIGBUS, which a full /dev/shm causes too, nor a count ("uncorrectable errors: 0").
_HARDWARE = re.compile(
    r"^(?!.*(?:\baborted by\b|\banother task\b|\bremote)).*(?:"
    r"\bCUDA_ERROR_(?:ECC|NVLINK)_UNCORRECTABLE\b|\bcudaError(?:ECC|Nvlink)Uncorrectable\b|\bhipErrorECCNotCorrectable\b"
    r"|\buncorrectable (?:\w+ ){0,2}error\b(?! (?:count|rate)|s?:? *0)"
    r"|\bncclUnhandledCudaError\b|\bNCCL\b.*\bunhandled cuda error\b|\bfallen off the bus\b)",
    re.IGNORECASE,
)
_TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True)
class Exit:
    """A program's exit: its exit code or signal, its last output lines, and the kind.

    `kind` is "" or one of NotFound, SyntaxError, ImportError, Keras3Fit (these repeat after a restart), OOMKilled.
    A reason that is handled as Error is no kind: see `reason_of`.
    `exception` is the line that names the exception, such as `ValueError: boom`; "" if unknown.
    """

    code: int | None
    signal: int | None
    lines: tuple[str, ...] = ()
    kind: str = ""
    exception: str = ""

    @property
    def success(self) -> bool:
        """Whether the program exited with 0."""
        return self.code == 0


def exit_of(status: int, lines: tuple[str, ...], out_of_memory: bool = False, exception: str = "") -> Exit:
    """The Exit for a waitpid(2) `status`. `out_of_memory`: the kernel's OOM killer has killed a process.
    `exception`: the last one printed; it counts only for exit code 1, as the cause of the exit."""
    number, code = status & 0x7F, status >> 8
    if out_of_memory and signals.SIGKILL in (number, code - SIGNALED):  # a shell wrapper turns the signal into a code
        return Exit(None if number else code, number or None, lines, OOM_KILLED)
    if number:
        return Exit(None, number, lines)
    return Exit(code, None, lines, kind_of(code, lines), exception if code == 1 else "")


def kind_of(code: int, lines: tuple[str, ...]) -> str:
    """The kind of an exit with `code` after `lines`; "" if a restart may help."""
    if code == 0:
        return ""
    if code == 127 or any(_NO_PROGRAM.search(line) for line in lines[-3:]):
        return NOT_FOUND
    if code != 1:
        return ""
    return _kind_of_traceback(lines)


def _kind_of_traceback(lines: tuple[str, ...]) -> str:
    """The kind by the last line of the last traceback; output after it (at exit, from threads) does not count."""
    for number, line in reversed(list(enumerate(lines))):
        if _SYNTAX.search(line):
            return SYNTAX_ERROR
        if _IMPORT.search(line):
            return IMPORT_ERROR
        if _LEGACY_BACKUP.search(line):
            return KERAS3_FIT
        if _PER_REPLICA.search(line):
            return KERAS3_FIT if _raised_in_keras3(lines[:number]) else ""
        if line.startswith(_TRACEBACK):
            break
    return ""


def _raised_in_keras3(lines: tuple[str, ...]) -> bool:
    """Whether the traceback goes through Keras 3; also True if a long message has pushed it out of the tail."""
    return not any(line.startswith(_TRACEBACK) for line in lines) or any("/keras/src/" in line for line in lines)


def reason_of(ended: Exit) -> str:
    """The reason of a failed exit, in one word."""
    if ended.kind:
        return ended.kind
    return "Killed" if ended.signal == signals.SIGKILL else "Error"


def exit_code(ended: Exit | None) -> int:
    """The exit code as a shell reports it: 128 + n for signal n; 1 if unknown."""
    if ended is None:
        return 1
    return SIGNALED + ended.signal if ended.signal is not None else ended.code or 1


def exit_from_frame(raw: Mapping[str, Any]) -> Exit:
    """A program's exit from its launcher's frame; TypeError or ValueError for invalid fields."""
    code, number = raw.get("code"), raw.get("signal")
    lines = tuple(str(line) for line in raw.get("lines", ()))
    ended = (None if code is None else int(code), None if number is None else int(number))
    return Exit(*ended, lines, str(raw["kind"]), str(raw["exception"])[:LENGTH])


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


def hardware_in(ended: Exit | None) -> str:
    """The line by which the end of a program blames the hardware; "" for none."""
    lines = () if ended is None else (ended.exception, *reversed(ended.lines))
    return next((line.strip()[:200] for line in lines if _HARDWARE.search(line)), "")
