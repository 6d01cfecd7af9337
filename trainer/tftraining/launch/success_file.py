"""The file in the job's directory that says that the job of this UID has succeeded.

A gang that is started again after that ends at once. The file must never count for another job, nor make a success
fail: write errors go to the caller.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from pathlib import Path

from tftraining.launch.config.json_text import parse
from tftraining.launch.failure.result import SUCCEEDED, Result

FILE = ".tftraining-verdict.json"
FILE_BYTES = 4096


def write_success(directory: Path, uid: str) -> None:
    """Write the verdict file: the job `uid` has succeeded. OSError if that fails."""
    directory.mkdir(parents=True, exist_ok=True)
    for leftover in directory.glob(f"{FILE}.*"):  # left by a launcher that was killed during the write
        leftover.unlink(missing_ok=True)
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


def read_success(directory: Path | None, uid: str) -> Result | None:
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
    return Result(SUCCEEDED, "AlreadySucceeded", f"the job has already succeeded, according to {directory / FILE}")
