"""A program's exit, classified by its code and last output lines: some failures repeat after any restart.

Pure. It must never raise, whatever the program prints. The reason of any exit (Error, Killed) is `reason_of` in
incident.py, its words are in messages.py.
"""

from __future__ import annotations

import re
import signal as signals
from dataclasses import dataclass

NOT_FOUND = "NotFound"
SYNTAX_ERROR = "SyntaxError"
IMPORT_ERROR = "ImportError"
KERAS3_FIT = "Keras3Fit"
OOM_KILLED = "OOMKilled"
SIGNALED = 128  # a shell reports its child's signal n as exit code 128 + n

_SYNTAX = re.compile(r"^(SyntaxError|IndentationError|TabError)\b")
_IMPORT = re.compile(r"^(ImportError|ModuleNotFoundError)\b")
# The interpreter's own message for a missing script or module; it starts with the interpreter's name.
_NO_PROGRAM = re.compile(r"^\S*python\S*: (can't open file |No module named |Error while finding module spec)")
_PER_REPLICA = re.compile(r"\bunsupported type \(<class '[\w.]*\.PerReplica'>\) to a Tensor")
_LEGACY_BACKUP = re.compile(
    r"^RuntimeError: tftraining: the backup of another Keras: "
)  # in_user_process/keras3/files.py
_TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True)
class Exit:
    """A program's exit: its exit code or signal, its last output lines, and the kind.

    `kind` is "" or one of NotFound, SyntaxError, ImportError, Keras3Fit (these repeat after a restart), OOMKilled.
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
    if out_of_memory and signals.SIGKILL in (number, code - 128):  # a shell wrapper turns the signal into a code
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
