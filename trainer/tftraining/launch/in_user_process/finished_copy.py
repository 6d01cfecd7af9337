"""Copies of finished trainings: directories `<backup>.finished-<n>` with a mark file that identifies the job.

BackupAndRestore deletes its backup when `fit` ends. A program that fails after that would repeat the training, so
finished_fit.py keeps its final state until the job has ended. A copy is valid only for the job that made it, and only
with its mark. A list file names every copy, so that the launcher can remove it. Local paths only, and only the standard
library: the user's interpreter loads this module too.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

LIST_NAME = ".tftraining-finished"
MARK = "finished.json"
STATE = "final"  # prefix of the files with the state
MAX_COPIES = 20  # the most copies of one backup
_NAME = re.compile(r".\.finished-(\d+)$", re.DOTALL)


def list_file(directory: Path | None, scratch: Path, member: str) -> Path:
    """The list file of a member's copies: in the job's directory if there is one, because that outlives the pod."""
    return (directory or scratch) / f"{LIST_NAME}-{member}"


def copy_number(path: str) -> int:
    """The n of a copy, 0 for any other path."""
    found = _NAME.search(path)
    return int(found[1]) if found else 0


def copy_path(backup: str, number: int) -> str:
    """The path of a backup's copy with this number."""
    return f"{backup}.finished-{number}"


def copies(backup: str) -> list[str]:
    """All existing copies of a backup, sorted by number. OSError if the directory cannot be read."""
    directory, name = os.path.split(backup)
    if not os.path.isdir(directory):
        return []
    prefix = f"{name}.finished-"
    found = [os.path.join(directory, each) for each in os.listdir(directory) if each.startswith(prefix)]
    return sorted(filter(copy_number, found), key=copy_number)


def read_mark(path: str) -> dict[str, Any] | None:
    """The content of a copy's mark; None without a mark, or if the sizes of its files have changed."""
    try:
        with open(os.path.join(path, MARK), encoding="utf-8") as file:
            mark = json.load(file)
        complete = _sizes(path) == mark["sizes"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return mark if complete and isinstance(mark, dict) else None


def write_mark(path: str, content: Mapping[str, Any]) -> None:
    """Write the mark atomically, which makes the copy valid."""
    temporary = os.path.join(path, f"{MARK}.{os.getpid()}")
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump({**content, "sizes": _sizes(path)}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, os.path.join(path, MARK))


def drop_mark(path: str) -> None:
    """Remove the mark, which makes the copy invalid."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(path, MARK))


def wait_for_mark(path: str, uid: str, seconds: float) -> dict[str, Any] | None:
    """Wait for the mark of a copy by another machine, which shared storage may show late; None after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        mark = read_mark(path)
        if mark is not None and mark.get("uid") == uid:
            return mark
        if time.monotonic() > deadline:
            return None
        time.sleep(0.2)


def keep_state(path: str) -> None:
    """Remove the backup's files from the copy; keep the state and the mark."""
    with contextlib.suppress(OSError):
        for name in os.listdir(path):
            if not name.startswith((STATE, MARK)):
                remove(os.path.join(path, name))


def remove(path: str) -> None:
    """Remove a file or directory if it exists, without following a link. OSError if that fails."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def add_to_list(path: str, file: str) -> None:
    """Add a copy to the list file; call it before making the copy."""
    os.makedirs(os.path.dirname(file), exist_ok=True)
    if path in read_list(file):
        return
    with open(file, "a", encoding="utf-8") as lines:
        lines.write(json.dumps(path) + "\n")


def read_list(file: str) -> list[str]:
    """The plausible copies in the list file: absolute paths with a copy's name."""
    try:
        with open(file, encoding="utf-8") as lines:
            found = [_parsed(line) for line in lines]
    except (OSError, ValueError):
        return []
    return [each for each in found if os.path.isabs(each) and copy_number(each)]


def remove_listed(file: Path) -> list[str]:
    """Remove all listed copies, then the list file; return one error line for each copy that remains."""
    problems = [why for path in read_list(str(file)) if (why := _try_remove(path))]
    if not problems:
        with contextlib.suppress(OSError):
            file.unlink()
    return problems


def _try_remove(path: str) -> str:
    try:
        remove(path)
    except OSError as error:
        return f"{path}: {error.strerror}"
    return ""


def _parsed(line: str) -> str:
    try:
        return str(json.loads(line))
    except ValueError:
        return ""


def _sizes(path: str) -> dict[str, int]:
    names: Iterable[str] = sorted(name for name in os.listdir(path) if name.startswith(STATE))
    return {name: os.path.getsize(os.path.join(path, name)) for name in names}
