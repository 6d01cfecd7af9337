"""How a program ended, and what its last lines say about why: those that no restart can mend are told apart.

Pure. It must never raise for anything that a program can print.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from signal import SIGKILL

NOT_FOUND = "NotFound"
SYNTAX_ERROR = "SyntaxError"
IMPORT_ERROR = "ImportError"
KERAS3_FIT = "Keras3Fit"
OOM_KILLED = "OOMKilled"

_SYNTAX = re.compile(r"^(SyntaxError|IndentationError|TabError)\b")
_IMPORT = re.compile(r"^(ImportError|ModuleNotFoundError)\b")
# What the interpreter itself says of a script or a module that is not there; it starts with the interpreter's name.
_NO_PROGRAM = re.compile(r"^\S*python\S*: (can't open file |No module named |Error while finding module spec)")
_PER_REPLICA = re.compile(r"\bunsupported type \(<class '[\w.]*\.PerReplica'>\) to a Tensor")
_TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True)
class Exit:
    """One end of a program: its exit code or the signal that ended it, the last lines it printed, and the kind.

    `kind` is "" or one of NotFound, SyntaxError, ImportError, Keras3Fit (ends that will be the same again), OOMKilled.
    `exception` is the line that names it, such as `ValueError: boom`; "" if none is known.
    """

    code: int | None
    signal: int | None
    lines: tuple[str, ...] = ()
    kind: str = ""
    exception: str = ""

    @property
    def success(self) -> bool:
        """Whether the program did what it was asked to."""
        return self.code == 0


def exit_of(status: int, lines: tuple[str, ...], out_of_memory: bool = False, exception: str = "") -> Exit:
    """The Exit for a `status` as waitpid(2) gives it; `out_of_memory`: the kernel has killed somebody for that.
    `exception` is the last that was printed, which ended only a program that has failed by itself."""
    number, code = status & 0x7F, status >> 8
    if out_of_memory and SIGKILL in (number, code - 128):  # a shell in front of the program passes it on as a code
        return Exit(None if number else code, number or None, lines, OOM_KILLED)
    if number:
        return Exit(None, number, lines)
    return Exit(code, None, lines, kind_of(code, lines), exception if code == 1 else "")


def kind_of(code: int, lines: tuple[str, ...]) -> str:
    """The kind of an exit with `code` after `lines`; "" where a restart may help."""
    if code == 0:
        return ""
    if code == 127 or any(_NO_PROGRAM.search(line) for line in lines[-3:]):
        return NOT_FOUND
    if code != 1:
        return ""
    return _kind_of_traceback(lines)


def _kind_of_traceback(lines: tuple[str, ...]) -> str:
    """By the last line of the last traceback: what a program prints after it (at exit, from threads) does not count."""
    for number, line in reversed(list(enumerate(lines))):
        if _SYNTAX.search(line):
            return SYNTAX_ERROR
        if _IMPORT.search(line):
            return IMPORT_ERROR
        if _PER_REPLICA.search(line):
            return KERAS3_FIT if _raised_in_keras3(lines[:number]) else ""
        if line.startswith(_TRACEBACK):
            break
    return ""


def _raised_in_keras3(lines: tuple[str, ...]) -> bool:
    """Whether the traceback goes through Keras 3; the tensors in its message may have driven it out of the tail."""
    return not any(line.startswith(_TRACEBACK) for line in lines) or any("/keras/src/" in line for line in lines)
