"""The file in the job's directory that says that the job of this UID has succeeded.

A gang that is started again after that ends at once. The file must never count for another job, nor make a success
fail: write errors go to the caller.
"""

from __future__ import annotations

import json
from pathlib import Path

from tftraining.launch.atomic_file import read_file, write_file
from tftraining.launch.config.json_text import parse
from tftraining.launch.failure.result import SUCCEEDED, Result

FILE = ".tftraining-verdict.json"
FILE_BYTES = 4096


def write_success(directory: Path, uid: str) -> None:
    """Write the verdict file: the job `uid` has succeeded. OSError if that fails."""
    write_file(directory / FILE, success_text(uid))


def read_success(directory: Path | None, uid: str) -> Result | None:
    """The verdict of the file in the directory, if it is about the job `uid`; None otherwise."""
    if directory is None:
        return None
    try:
        return recorded_success(read_file(directory / FILE, FILE_BYTES), uid, str(directory / FILE))
    except OSError:
        return None


def success_text(uid: str) -> str:
    """The content of the file."""
    return json.dumps({"version": 1, "uid": uid, "verdict": SUCCEEDED})


def recorded_success(content: str | bytes, uid: str, place: str) -> Result | None:
    """The verdict of the content, if it is about the job `uid`; None otherwise. `place` names the file for people."""
    try:
        found = parse(content)
    except ValueError:
        return None
    if not isinstance(found, dict) or (found.get("uid"), found.get("verdict")) != (uid, SUCCEEDED):
        return None
    return Result(SUCCEEDED, "AlreadySucceeded", f"the job has already succeeded, according to {place}")
