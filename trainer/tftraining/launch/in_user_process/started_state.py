"""What the start of the warm interpreter has left behind that a fork of it would lack, or share with the other rounds.

Before the program's first line Python runs `sitecustomize`, `usercustomize` and the import lines of `.pth` files. An
agent there may start a thread, a process or a timer, which no fork has, or open a connection, which all forks would
share. Then only a plain start is as the program expects. This module must only look, and never change anything.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Collection, Iterator

SITE = "sitecustomize or a .pth file"
CUSTOMIZE = ("sitecustomize", "usercustomize")
# In the text of such a module: variables that change from round to round, and a seed, which a fork draws anew.
WORDS = ("TF_CONFIG", "TFTRAINING_", "seed(")


def reason_for_plain_start(own_files: Collection[int]) -> str:
    """Why a fork would differ from a plain start, "" if it would not; for an interpreter that has imported nothing.

    `own_files` are the descriptors that we have opened."""
    return reason_of_threads() or next(_reasons({0, 1, 2, *own_files}), "")


def reason_of_threads() -> str:
    """The same for Python threads alone: an import may have started one."""
    if len(sys._current_frames()) > 1:
        threading = sys.modules.get("threading")
        names = [each.name for each in threading.enumerate()] if threading is not None else []
        return f"a thread that runs before it ({', '.join(names[1:]) or 'unnamed'}) would not exist in a fork"
    return ""


def _reasons(own_files: Collection[int]) -> Iterator[str]:
    if len(_numbers("task")) > 1:
        yield f"{SITE} started a native thread, which would not exist in a fork"
    if _has_children():
        yield f"{SITE} started a process, which would not be a child of a fork"
    if any(signal.getitimer(which)[0] for which in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)):
        yield f"{SITE} started a timer, which would not exist in a fork"
    if names := [_opened(fd) for fd in _numbers("fd") if fd not in own_files and _opened(fd)]:
        yield f"{SITE} opened {names[0]}, which all rounds would share"
    if sys.gettrace() is not None or sys.getprofile() is not None:
        yield f"{SITE} traces the interpreter, and with it the import of TensorFlow"
    if changed := _changed_variables():
        yield f"{SITE} set {min(changed)}"
    for name in CUSTOMIZE:
        if word := _word_in(getattr(sys.modules.get(name), "__file__", None)):
            yield f"{name} contains {word}, which may differ from round to round"


def _numbers(directory: str) -> list[int]:
    """The names in a directory of /proc/self that are numbers; empty if it cannot be read."""
    with contextlib.suppress(OSError):
        return sorted(int(name) for name in os.listdir(f"/proc/self/{directory}"))
    return []


def _opened(fd: int) -> str:
    """The file behind a descriptor; "" if it is closed, as that of the list of descriptors is by now."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/self/fd/{fd}")
    return ""


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _changed_variables() -> set[str]:
    """The variables that differ from those with which the interpreter was started."""
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = [each.partition(b"=") for each in file.read().split(b"\0") if each]
    except OSError:
        return set()
    before = {name: value for name, _, value in reversed(entries)}  # of two of one name the first counts
    changed = {name for name, value in os.environb.items() if before.get(name) != value}
    return {os.fsdecode(name) for name in changed | (before.keys() - os.environb.keys())}


def _word_in(path: str | None) -> str:
    try:
        with open(path or "", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return ""
    return next((word for word in WORDS if word in text), "")
